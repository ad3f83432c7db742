//! Secrets in requests, and captured and masked secrets in answers.

use super::*;
use secrecy::ExposeSecret;

#[tokio::test]
async fn a_ticket_is_captured_masked_used_and_deleted() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let cookie = request.lines().find_map(|line| line.strip_prefix("cookie: ")).unwrap_or("none");
            let body = format!(
                r#"{{"data":{{"ticket":"PMG:me::abc/+=","you":"{}"}}}}"#,
                if cookie == "Auth=PMG:me::abc/+=" { "known" } else { "unknown" }
            );
            let head = format!("HTTP/1.1 200 OK\r\nset-cookie: Auth=abc/+=\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/");
    let captured = Arc::new(Captured::default());
    let target = grant(&url, Tls::system().unwrap(), secrets(&[("password", "hunter2hunter2")]));
    let session =
        || poll_with(Egress::new(Config::default()), target.clone(), LIMITS).session.with_captured(captured.clone());
    let capture = |name: &str| Request {
        captures: vec![Capture::new(
            name,
            CaptureSource::JsonPointer("/data/ticket".to_owned()),
            Duration::from_secs(60),
        )],
        ..Request::get("/login")
    };
    let taken = session().fetch(capture("password")).await.unwrap_err();
    assert_eq!(taken.code(), "bad_request", "a capture must not use the name of an operator's secret");

    let login = session().fetch(capture("ticket")).await.unwrap();
    let seen = String::from_utf8(login.body).unwrap();
    assert_eq!(seen, r#"{"data":{"ticket":"**************","you":"unknown"}}"#);
    assert!(!format!("{:?}", login.headers).contains("abc"), "{:?}", login.headers);

    // A later poll of the same target.
    let later = session();
    assert!(later.has_secret("ticket") && later.has_secret("password") && !later.has_secret("other"));
    let with_ticket = || Request {
        headers: vec![("cookie".to_owned(), format!("Auth={}", later.reference("secret.ticket")))],
        ..Request::get("/status")
    };
    let answer = later.fetch(with_ticket()).await.unwrap();
    let seen = String::from_utf8(answer.body).unwrap();
    assert!(seen.contains(r#""you":"known""#), "{seen}");
    assert_eq!(later.secrets_used(), ["ticket"]);

    later.forget_secret("ticket").await;
    assert_eq!(later.fetch(with_ticket()).await.unwrap_err().code(), "secret_unknown");
    let other = poll_with(Egress::new(Config::default()), target.clone(), LIMITS).session;
    assert!(!other.has_secret("ticket"), "another target has no access to the ticket");
}

/// Starts a server that sends a header of the request back, in JSON and in a header. Returns its port.
async fn echo() -> u16 {
    server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let value = |name: &str| request.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").to_owned();
            let (token, cut) = (value("x-token: "), value("x-cut: "));
            let body =
                serde_json::json!({ "token": token, "cut": cut.chars().take(20).collect::<String>() }).to_string();
            let head = format!("HTTP/1.1 200 no {token}\r\nx-echo: {token}\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn answers_do_not_depend_on_the_value_of_a_secret() {
    let url = format!("http://127.0.0.1:{}/", echo().await);
    let seen = async |secret: &str| {
        let target = grant(&url, Tls::system().unwrap(), secrets(&[("token", secret)]));
        let captured = Arc::new(Captured::default());
        let session = poll_with(Egress::new(Config::default()), target, LIMITS).session.with_captured(captured);
        let mut seen = Vec::new();
        let mut ask = async |headers: Vec<(&str, String)>, captures: bool| {
            let capture = |name: &str, source| Capture::new(name, source, Duration::from_secs(60));
            let pointer = CaptureSource::JsonPointer("/token".to_owned());
            let captures = if captures {
                vec![capture("guess", pointer), capture("other", CaptureSource::Header("x-echo".to_owned()))]
            } else {
                Vec::new()
            };
            let written = |(name, value): (&str, String)| (name.to_owned(), session.written(&value));
            let headers = headers.into_iter().map(written).collect();
            let answer = session.fetch(Request { headers, captures, ..Request::get("") }).await;
            seen.push(answer.map(|answer| (answer.status, answer.reason, answer.headers, answer.body)));
        };
        // The plugin captures guesses of the beginning, and sends the secret after the same text. If both were masked
        // by value, it would learn one character after another.
        for guess in ["a", "ab", "s3", "3cr3t-Token_9x/", "S3CR3T-", "s3cr3t-"] {
            ask(vec![("x-token", format!("JUNKJUNK{guess}"))], true).await;
            ask(vec![("x-token", "JUNKJUNK${secret.token}".to_owned())], false).await;
            ask(vec![("x-token", format!("${{secret.guess}} {guess}")), ("x-cut", "${secret.token}".to_owned())], true)
                .await;
            ask(vec![("x-cut", format!("${{basic.token}} {guess}"))], false).await;
            ask(vec![("x-token", "${secret.other}".to_owned())], false).await;
        }
        seen
    };
    let (first, second) = (seen("s3cr3t-Token_9x/Zq+77").await, seen("abcdefghij\"klmn<op>%4").await);
    assert_eq!(first.len(), 30);
    for (number, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "request {number}");
    }
    assert!(first.iter().flatten().any(|(.., body)| body.contains(&b'*')));
}

#[tokio::test]
async fn secrets_are_sent_and_masked_in_the_answer() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let token =
                request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("none").to_owned();
            let body = format!("{{\"you\":\"{token}\"}}");
            let answer =
                format!("HTTP/1.1 401 no {token}\r\nx-echo: {token}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/");
    let grant = grant(&url, Tls::system().unwrap(), secrets(&[("token", "hunter2hunter2")]));
    let poll = poll_with(Egress::new(Config::default()), grant, LIMITS);
    let request = |value: &str| Request {
        headers: vec![("authorization".to_owned(), poll.session.written(value))],
        ..Request::get("")
    };
    let response = poll.session.fetch(request("Bearer ${secret.token}")).await.unwrap();
    let stars = "*".repeat(14);
    assert_eq!(response.reason, format!("no Bearer {stars}"));
    assert!(response.headers.contains(&("x-echo".to_owned(), format!("Bearer {stars}"))));
    assert_eq!(String::from_utf8(response.body).unwrap(), format!("{{\"you\":\"Bearer {stars}\"}}"));
    assert_eq!(code(&poll, request("${secret.other}")).await, "secret_unknown");
    for (name, value) in
        [("host", "evil"), ("Content-Length", "3"), ("x", "a\r\nb: c"), ("bad name", "x"), ("proxy-authorization", "x")]
    {
        let request = Request { headers: vec![(name.to_owned(), value.to_owned())], ..Request::get("") };
        assert_eq!(code(&poll, request).await, "bad_request", "{name}");
    }
}

/// Stores values in memory.
#[derive(Debug, Default)]
struct Shelf {
    stored: std::sync::Mutex<Vec<(String, String)>>,
    is_full: std::sync::atomic::AtomicBool,
}

impl DurableStore for Shelf {
    fn store(&self, values: &[DurableValue]) -> Result<(), String> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err("no space left on device".to_owned());
        }
        let text = |value: &DurableValue| (value.name.clone(), value.value.expose_secret().to_owned());
        *self.stored.lock().unwrap() = values.iter().map(text).collect();
        Ok(())
    }

    fn close(&self) {}
}

#[tokio::test]
async fn durable_values_are_stored_before_the_plugin_gets_the_answer() {
    let counter = Arc::new(AtomicUsize::new(0));
    let port = server(move |mut stream| {
        let counter = counter.clone();
        async move {
            while head(&mut stream).await.is_some() {
                let number = counter.fetch_add(1, Ordering::Relaxed);
                let body = format!(r#"{{"refresh":"refresh-{number}","access":"access-{number}"}}"#);
                let _ = stream.write_all(ok(&body).as_bytes()).await;
            }
        }
    })
    .await;
    let shelf = Arc::new(Shelf::default());
    let left = Duration::from_secs(60);
    let old = DurableValue { name: "old".to_owned(), value: SecretString::from("old-value"), left };
    let captured = Arc::new(Captured::restored(shelf.clone(), vec![old]));
    let Poll { session, .. } = poll(&format!("http://127.0.0.1:{port}/"));
    let session = session.with_captured(captured);
    assert!(session.has_secret("old") && !session.has_secret("refresh"));
    let capture = |name: &str, durable| {
        let source = CaptureSource::JsonPointer(format!("/{name}"));
        Capture { durable, ..Capture::new(name, source, Duration::from_secs(60)) }
    };
    let request = |durable| {
        let captures = vec![capture("refresh", durable), capture("access", false)];
        Request { captures, ..Request::get("") }
    };
    let stored = || {
        let stored = shelf.stored.lock().unwrap().clone();
        stored.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    session.fetch(request(true)).await.unwrap();
    assert_eq!(stored(), ["old=old-value", "refresh=refresh-0"]);
    session.forget_secret("old").await;
    session.forget_secret("access").await;
    assert_eq!(stored(), ["refresh=refresh-0"]);
    shelf.is_full.store(true, Ordering::Relaxed);
    let error = session.fetch(request(true)).await.unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(session.has_secret("refresh"), "it is kept in memory");
    shelf.is_full.store(false, Ordering::Relaxed);
    session.fetch(request(true)).await.unwrap();
    assert_eq!(stored(), ["refresh=refresh-2"]);
    session.fetch(request(false)).await.unwrap();
    assert_eq!(stored(), Vec::<String>::new(), "the value is not durable any more");
}
