//! Places of captured values, their limits, and what replaces them.

use super::*;

static NO_MATCHES: Matches = Matches::new();

fn answer<'a>(headers: &'a [(String, String)], body: &'a str) -> Answer<'a> {
    Answer {
        status: 200,
        headers,
        body: body.as_bytes(),
        is_masked: false,
        permits_short: false,
        is_replayed: false,
        matches: &NO_MATCHES,
    }
}

/// Searches a body for the pattern of a capture, if it has one.
fn searched(capture: &Capture, body: &str) -> Matches {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let searched = AtomicUsize::new(0);
    let searching = matches(std::slice::from_ref(capture), (200, body.as_bytes()), &searched);
    runtime.block_on(searching).unwrap()
}

fn capture(name: &str, source: CaptureSource, seconds: u64) -> Capture {
    Capture::new(name, source, Duration::from_secs(seconds))
}

fn pointer(at: &str) -> CaptureSource {
    CaptureSource::JsonPointer(at.to_owned())
}

#[test]
fn values_are_found_and_masked_in_their_place() {
    let headers =
        [("Set-Cookie", "a=1; Path=/"), ("set-cookie", "Ticket=\"PMG:x::abc=\"; Secure"), ("X-Token", "12345678")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let body = r#"{"data": {"ticket": "no", "ticket": "PMG:root@pam:65::\u0041bc", "a/b~c": ["x", "y"], "n": 87654321, "yes": true}}"#;
    for (source, expected) in [
        (pointer("/data/ticket"), Some("PMG:root@pam:65::Abc")),
        (pointer("/data/a~1b~0c/1"), Some("y")),
        (pointer("/data/a~1b~0c/2"), None),
        (pointer("/data/a~1b~0c/x"), None),
        (pointer("/data/n"), Some("87654321")),
        (pointer("/data/yes"), Some("true")),
        (CaptureSource::Pattern(r#"root@([a-z]+):6"#.to_owned()), Some("pam")),
        (CaptureSource::Pattern("(nothing) like it".to_owned()), None),
        (CaptureSource::Pattern("(like it)?PMG".to_owned()), None),
        (pointer("/data/n/m"), None),
        (pointer("/data"), None),
        (pointer("data/ticket"), None),
        (pointer(""), None),
        (CaptureSource::Header("x-token".to_owned()), Some("12345678")),
        (CaptureSource::Cookie("Ticket".to_owned()), Some("PMG:x::abc=")),
        (CaptureSource::Cookie("ticket".to_owned()), None),
    ] {
        let capture = capture("t", source.clone(), 1);
        let matches = searched(&capture, body);
        let found = Answer { matches: &matches, ..answer(&headers, body) }.find(&capture).unwrap();
        assert_eq!(found.as_ref().map(|(value, _)| value.as_str()), expected, "{source:?}");
        let Some((value, place)) = found else { continue };
        let (mut headers, mut starred) = (headers.clone(), body.as_bytes().to_vec());
        Place::star(place.into_iter().collect(), &mut headers, &mut starred);
        let starred = String::from_utf8(starred).unwrap();
        let left = format!("{starred} {headers:?}");
        let elsewhere = headers.iter().any(|(_, header)| header.contains(&value)) || value == "y";
        assert!(!left.contains(&value) || elsewhere, "{left}");
        assert!(serde_json::from_str::<serde_json::Value>(&starred).is_ok(), "{starred}");
    }
    let find = |body, at| answer(&[], body).find(&capture("t", pointer(at), 1)).unwrap().map(|(value, _)| value);
    assert_eq!(find("no json", "/x"), None);
    assert_eq!(find("\"whole\"", "").as_deref(), Some("whole"));
}

#[tokio::test(start_paused = true)]
async fn stored_values_expire_and_are_limited_in_length_and_number() {
    let captured = Captured::default();
    let at_t = |name: &str, seconds| capture(name, pointer("/t"), seconds);
    let keep = |capture, body: &str| captured.keep(&[capture], &Sent::default(), &answer(&[], body));
    keep(at_t("a", 60), r#"{"t": "first-ticket"}"#).unwrap();
    assert_eq!(keep(at_t("b", 90), r#"{"other": "first-ticket"}"#).unwrap_err().code(), "capture_missing");
    let optional = Capture { optional: true, ..at_t("b", 90) };
    keep(optional, r#"{"other": "first-ticket"}"#).unwrap();
    assert_eq!(captured.valid().keys().collect::<Vec<_>>(), ["a"]);
    for short in [r#"{"t": "short"}"#, r#"{"t": ""}"#, r#"{"t": 1234567}"#, r#"{"t": true}"#] {
        assert_eq!(keep(at_t("b", 60), short).unwrap_err().code(), "capture_too_short");
        let permitted = Answer { permits_short: true, ..answer(&[], short) };
        let kept = captured.keep(&[at_t("b", 60)], &Sent::default(), &permitted);
        assert_eq!(kept.is_ok(), !short.contains("\"\""), "{short}");
    }
    captured.forget("b");
    for refused in [
        format!(r#"{{"t": "{}"}}"#, "x".repeat(MAX_VALUE_BYTES + 1)),
        format!(r#"{{"t": "long-enough"}}{}"#, " ".repeat(MAX_BODY_BYTES)),
    ] {
        assert_eq!(keep(at_t("b", 60), &refused).unwrap_err().code(), "capture_refused");
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(captured.valid().is_empty());
    for number in 0..MAX_CAPTURES {
        keep(at_t(&format!("n{number}"), 60), r#"{"t": "some-ticket"}"#).unwrap();
    }
    assert!(keep(at_t("more", 60), r#"{"t": "some-ticket"}"#).is_err());
    captured.forget("n0");
    keep(at_t("more", 60), r#"{"t": "some-ticket"}"#).unwrap();
    let refused = Answer { status: 401, ..answer(&[], r#"{"t": "other-ticket"}"#) };
    captured.keep(&[at_t("n99", 60)], &Sent::default(), &refused).unwrap();
    assert!(!captured.valid().contains_key("n99"));
}

#[test]
fn values_sent_by_the_plugin_are_not_captured_and_cookies_are_masked() {
    let captured = Captured::default();
    let request = Request {
        captures: vec![capture("t", pointer("/t"), 60)],
        headers: vec![("x".to_owned(), "a guessed-ticket".to_owned())],
        ..Request::get("/echo")
    };
    let sent = Sent::of(&request);
    let keep = |body: &str, headers| captured.keep(&request.captures, &sent, &answer(headers, body));
    assert_eq!(keep(r#"{"t": "guessed-ticket"}"#, &[]).unwrap_err().code(), "capture_refused");
    assert!(captured.valid().is_empty());
    let cookie =
        ["session=fresh-ticket; Secure", "gone=; Max-Age=0"].map(|cookie| ("set-cookie".to_owned(), cookie.to_owned()));
    let places = keep(r#"{"t": "fresh-ticket"}"#, &cookie).unwrap();
    let (mut headers, mut body) = (cookie.clone(), br#"{"t": "fresh-ticket"}"#.to_vec());
    Place::star(places, &mut headers, &mut body);
    assert!(!String::from_utf8_lossy(&body).contains("fresh"));
    // The name and the attributes stay, so that the answer can be recorded and replayed.
    let headers = headers.map(|(_, value)| value);
    assert_eq!(headers, ["session=************; Secure", "gone=; Max-Age=0"]);
}

#[test]
fn captures_of_a_request_are_limited() {
    let of = |source| Request { captures: vec![capture("t", source, 60)], ..Request::get("") };
    for (source, good) in [
        (pointer(&"/a".repeat(8)), true),
        (pointer(&"/a".repeat(9)), false),
        (pointer(&format!("/{}", "a".repeat(256))), false),
        (CaptureSource::Header("x".repeat(65)), false),
        (CaptureSource::Cookie("x".repeat(64)), true),
        (CaptureSource::Pattern("csrf\" value=\"([^\"]+)".to_owned()), true),
        (CaptureSource::Pattern("no group".to_owned()), false),
        (CaptureSource::Pattern("(open".to_owned()), false),
        (CaptureSource::Pattern(format!("({})", "x".repeat(1 << 10))), false),
        // Each of these repeats the one inside.
        (CaptureSource::Pattern("((((a{20}){20}){20}){20})".to_owned()), false),
    ] {
        assert_eq!(check(&of(source.clone()), &Secrets::default()).is_ok(), good, "{source:?}");
    }
    // Deeply nested bodies are parsed once.
    let deep = format!("{}\"value-at-the-end\"{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(answer(&[], &deep).find(&capture("t", pointer("/0/0/0"), 1)).unwrap(), None);
}

#[tokio::test]
async fn the_searches_of_a_poll_are_limited() {
    let pattern = |text: &str| CaptureSource::Pattern(text.to_owned());
    // The engine needs a time in proportion to the number of states: this is about the most expensive pattern.
    let slow = "(?:(?:a|a|a|a){12})*(?:a?){60}(b)";
    let captures = [capture("t", pattern(slow), 1), capture("u", pattern(slow), 1), capture("v", pattern("(x)"), 1)];
    let searched = AtomicUsize::new(0);
    let body = vec![b'a'; 1000];
    let found = matches(&captures, (200, &body), &searched).await.unwrap();
    assert_eq!((found.len(), searched.load(Ordering::Relaxed)), (2, 2000), "each pattern is searched once");
    // Answers without a value to find cost nothing.
    assert!(matches(&captures, (404, &body), &searched).await.unwrap().is_empty());
    assert!(matches(&captures, (200, &vec![b'a'; MAX_SEARCHED_BYTES + 1]), &searched).await.unwrap().is_empty());
    assert_eq!(searched.load(Ordering::Relaxed), 2000);
    searched.store(MAX_POLL_SEARCHED_BYTES - 1999, Ordering::Relaxed);
    assert_eq!(matches(&captures, (200, &body), &searched).await.unwrap_err().code(), "too_much_searched_in_poll");
}
