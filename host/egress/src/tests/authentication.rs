//! Authentication and signatures against servers that check them.

use super::*;
use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use sha2::Sha256;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const PASSWORD: &str = "Circle of Life";

fn credentials(user: &str) -> Credentials {
    Credentials { user: user.to_owned(), password: "password".to_owned() }
}

fn session_for(port: u16, captured: &Arc<Captured>) -> Session {
    let url = format!("http://127.0.0.1:{port}/");
    let target = grant(&url, Tls::system().unwrap(), secrets(&[("password", PASSWORD), ("token", "s3cr3t-t0ken")]));
    poll_with(Egress::new(Config::default()), target, LIMITS).session.with_captured(captured.clone())
}

/// Returns the value of a header of a request.
fn value<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns a parameter of a header, without its quotes.
fn parameter(header: &str, name: &str) -> String {
    let found = header.split([' ', ',']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default().trim_matches(['"', '}']).to_owned()
}

/// A server that wants Digest authentication, as RFC 7616 says it, and sends the header back.
struct DigestServer {
    /// The challenges of the answers with status 401, with `NONCE` in place of the nonce.
    challenges: Vec<&'static str>,
    /// The number of answers for which a nonce is good.
    uses: usize,
    nonces: Mutex<Vec<usize>>,
    requests: AtomicUsize,
}

impl DigestServer {
    async fn start(challenges: Vec<&'static str>, uses: usize) -> (u16, Arc<Self>) {
        let server_ = Arc::new(Self { challenges, uses, nonces: Mutex::default(), requests: AtomicUsize::new(0) });
        let state = server_.clone();
        let port = server(move |mut stream| {
            let state = state.clone();
            async move {
                while let Some(request) = head(&mut stream).await {
                    let _ = stream.write_all(state.answer(&request).as_bytes()).await;
                }
            }
        })
        .await;
        (port, server_)
    }

    fn answer(&self, request: &str) -> String {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut nonces = self.nonces.lock().unwrap();
        if let Some(sent) = value(request, "authorization") {
            let number: Option<usize> =
                parameter(sent, "nonce").split('-').next_back().and_then(|last| last.parse().ok());
            let uses = number.and_then(|number| nonces.get_mut(number)).filter(|uses| **uses < self.uses);
            if let Some(uses) = uses.filter(|uses| self.is_right(request, sent, **uses + 1)) {
                *uses += 1;
                let body = format!("{{\"you\":\"{}\"}}", sent.replace('"', "\\\""));
                let proof = "Authentication-Info: rspauth=\"0123456789abcdef\"\r\n";
                return ok(&body).replacen("\r\n", &format!("\r\n{proof}"), 1);
            }
        }
        nonces.push(0);
        let nonce = format!("n/A+=-{}", nonces.len() - 1);
        let challenges: String = (self.challenges.iter())
            .map(|challenge| format!("www-authenticate: {}\r\n", challenge.replace("NONCE", &nonce)))
            .collect();
        format!("HTTP/1.1 401 No\r\n{challenges}content-length: 0\r\n\r\n")
    }

    fn is_right(&self, request: &str, sent: &str, count: usize) -> bool {
        let of = |name| parameter(sent, name);
        let hash = |text: String| match of("algorithm").trim_end_matches("-sess") {
            "SHA-256" => HEXLOWER.encode(&Sha256::digest(text)),
            _ => HEXLOWER.encode(&Md5::digest(text)),
        };
        let mut parts = request.split(' ');
        let (method, uri) = (parts.next().unwrap(), parts.next().unwrap());
        let mut first = hash(format!("Mufasa:home:{PASSWORD}"));
        if of("algorithm").ends_with("-sess") {
            first = hash(format!("{first}:{}:{}", of("nonce"), of("cnonce")));
        }
        let second = hash(format!("{method}:{uri}"));
        let response = if of("qop").is_empty() {
            hash(format!("{first}:{}:{second}", of("nonce")))
        } else {
            let counted = usize::from_str_radix(&of("nc"), 16) == Ok(count);
            assert!(counted, "the nonce count of {sent} is not {count}");
            hash(format!("{first}:{}:{}:{}:auth:{second}", of("nonce"), of("nc"), of("cnonce")))
        };
        of("uri") == uri && of("response") == response
    }
}

const SHA256: &str = "Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth, auth-int\", algorithm=SHA-256, opaque=\"x\"";
const MD5: &str = "Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth\", algorithm=MD5";

fn digest(path: &str, user: &str) -> Request {
    Request { authentication: Some(Authentication::Digest(credentials(user))), ..Request::get(path) }
}

#[tokio::test]
async fn challenges_are_answered_and_their_nonce_is_used_again() {
    for challenges in [
        vec![SHA256, MD5],
        vec![MD5],
        vec!["Digest realm=\"home\", nonce=\"NONCE\""],
        vec!["Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth\", algorithm=MD5-sess"],
        vec!["Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth\", algorithm=SHA-256-sess"],
        vec!["digest realm=\"home\", nonce=\"NONCE\", qop=\"AUTH\", algorithm=md5"],
        vec!["Digest realm=\"home\", nonce=\"NONCE\", qop=auth, ALGORITHM=\"sha-256-SESS\""],
        vec!["Basic realm=\"home\"", "Negotiate", MD5],
        vec!["Basic realm=\"home\", Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth\""],
        vec!["Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth\", algorithm=SHA-3", MD5],
        vec!["Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth-int\"", SHA256],
    ] {
        let (port, state) = DigestServer::start(challenges.clone(), 3).await;
        let captured = Arc::new(Captured::default());
        for path in ["/a?b=c", "/d", "/e"] {
            let session = session_for(port, &captured);
            let answer = session.fetch(digest(path, "Mufasa")).await.unwrap();
            let body = String::from_utf8(answer.body).unwrap();
            assert_eq!(answer.status, 200, "{challenges:?}");
            assert!(answer.headers.iter().all(|(name, _)| name != "authentication-info"), "{:?}", answer.headers);
            // The text that is derived from the password is masked like the password.
            let response = parameter(&body.replace("\\\"", "\""), "response");
            assert!(!response.is_empty() && response.bytes().all(|byte| byte == b'*'), "{body}");
            assert_eq!(session.secrets_used(), ["password"]);
            assert_eq!(session.usage().requests, if path == "/a?b=c" { 2 } else { 1 });
        }
        assert_eq!(state.requests.load(Ordering::Relaxed), 4, "one challenge for three answers: {challenges:?}");
        // The nonce is used up.
        assert_eq!(session_for(port, &captured).fetch(digest("/f", "Mufasa")).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_nonce_for_each_answer_and_a_wrong_password_end() {
    let (port, state) = DigestServer::start(vec![MD5], 1).await;
    let captured = Arc::new(Captured::default());
    for number in 1..4 {
        assert_eq!(session_for(port, &captured).fetch(digest("/", "Mufasa")).await.unwrap().status, 200);
        assert_eq!(state.requests.load(Ordering::Relaxed), 2 * number);
    }
    // A wrong user, with the nonce of the right one: the server sends a new nonce once.
    let wrong = session_for(port, &captured);
    assert_eq!(wrong.fetch(digest("/", "Scar")).await.unwrap().status, 401);
    assert_eq!(wrong.usage().requests, 2);
    // Then the password is not offered without a challenge, and once in a poll.
    let again = session_for(port, &captured);
    for requests in [2, 3, 4] {
        assert_eq!(again.fetch(digest("/", "Scar")).await.unwrap().status, 401);
        assert_eq!(again.usage().requests, requests);
    }
}

#[tokio::test]
async fn challenges_that_cannot_be_answered_are_explained() {
    let long = format!("Digest realm=\"home\", qop=\"auth\", nonce=\"{}\"", "n".repeat(4096));
    for (challenge, expected) in [
        ("Digest realm=\"home\", nonce=\"NONCE\", qop=\"auth-int\"", Some("qop auth-int")),
        ("Digest realm=\"home\", nonce=\"NONCE\", algorithm=SHA-3", Some("algorithm SHA-3")),
        ("Digest realm=\"home\", nonce=\"NONCE\", algorithm=\"M\\\\D5\"", Some("algorithm M")),
        ("Digest realm=\"home\"", Some("algorithm none")),
        ("Digest realm=\"home", Some("cannot be read")),
        ("Basic realm=\"home\"", None),
        (Box::leak(long.into_boxed_str()), None),
    ] {
        let (port, _) = DigestServer::start(vec![challenge], 1).await;
        let result = session_for(port, &Arc::default()).fetch(digest("/", "Mufasa")).await;
        match expected {
            Some(expected) => {
                let error = result.unwrap_err();
                assert_eq!(error.code(), "authentication_unsupported", "{error}");
                assert!(error.to_string().contains(expected), "{error} should say {expected}");
            }
            None => assert_eq!(result.unwrap().status, 401, "{challenge}"),
        }
    }
}

/// Starts a server that sends the first line, a header and the body of a request back. Returns its port.
async fn echo(header: &'static str) -> u16 {
    server(move |mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let (start, body) = request.split_once("\r\n\r\n").unwrap();
            let line = start.lines().next().unwrap();
            let echoed = serde_json::json!([line, value(start, header).unwrap_or_default(), body]).to_string();
            let _ = stream.write_all(ok(&echoed).as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn basic_and_bearer_are_sent_and_masked() {
    let port = echo("authorization").await;
    let sent = async |authentication: Authentication| {
        let request = Request { authentication: Some(authentication), ..Request::get("/x") };
        session_for(port, &Arc::default()).fetch(request).await.map(|answer| String::from_utf8(answer.body).unwrap())
    };
    let stars = "*".repeat(12);
    let bearer = sent(Authentication::Bearer("token".to_owned())).await.unwrap();
    assert_eq!(bearer, format!(r#"["GET /x HTTP/1.1","Bearer {stars}",""]"#));
    let basic = sent(Authentication::Basic(credentials("me"))).await.unwrap();
    assert!(basic.contains("Basic *****") && !basic.contains("bWU6"), "{basic}");
    for (refused, code) in [
        (Authentication::Basic(credentials("a:b")), "bad_request"),
        (Authentication::Basic(credentials("a\nb")), "ok"),
        (Authentication::Bearer("missing".to_owned()), "secret_unknown"),
    ] {
        let result = sent(refused.clone()).await;
        assert_eq!(result.as_ref().map_or_else(|error| error.code(), |_| "ok"), code, "{refused:?}");
    }
    let both = Request {
        authentication: Some(Authentication::Bearer("token".to_owned())),
        headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
        ..Request::get("/")
    };
    assert_eq!(session_for(port, &Arc::default()).fetch(both).await.unwrap_err().code(), "bad_request");
}

fn signature(name: &str, input: Vec<SignaturePart>, encoding: SignatureEncoding) -> Signature {
    let key = vec![SignaturePart::Secret("token".to_owned(), SecretEncoding::Utf8)];
    Signature { name: name.to_owned(), algorithm: "hmac-sha256".to_owned(), key, input, encoding, iterations: None }
}

fn expected_signature(input: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"s3cr3t-t0ken");
    HEXLOWER.encode(ring::hmac::sign(&key, input.as_bytes()).as_ref())
}

#[tokio::test]
async fn a_signed_webhook_is_accepted_and_its_signature_is_masked() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let (start, body) = request.split_once("\r\n\r\n").unwrap();
            let expected = format!("t=1,v1={}", expected_signature(&format!("1.{body}")));
            let sent = value(start, "x-signature").unwrap_or_default();
            let status = if sent == expected { "200 OK" } else { "403 Forbidden" };
            let body = format!("{sent} {body}");
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let session = session_for(port, &Arc::default());
    let body = format!("{{\"password\":\"{}\"}}", session.reference("secret.password"));
    let request = Request {
        method: Method::POST,
        headers: vec![("x-signature".to_owned(), format!("t=1,v1={}", session.reference("signature.v1")))],
        body: Some(body.into_bytes()),
        signatures: vec![signature(
            "v1",
            vec![SignaturePart::Bytes(b"1.".to_vec()), SignaturePart::Body],
            SignatureEncoding::Hex,
        )],
        ..Request::get("/hook")
    };
    let answer = session.fetch(request).await.unwrap();
    let (stars, password) = ("*".repeat(64), "*".repeat(PASSWORD.len()));
    assert_eq!(answer.status, 200);
    assert_eq!(String::from_utf8(answer.body).unwrap(), format!("t=1,v1={stars} {{\"password\":\"{password}\"}}"));
    assert_eq!(session.secrets_used(), ["password", "token"]);
}

#[tokio::test]
async fn signatures_are_inserted_into_headers_paths_queries_and_bodies() {
    let port = echo("x-header").await;
    let session = session_for(port, &Arc::default());
    let reference = session.reference("signature.s");
    let signed = |input, encoding| vec![signature("s", vec![SignaturePart::Bytes(input)], encoding)];
    let request = Request {
        method: Method::POST,
        headers: vec![("x-header".to_owned(), format!("<{reference}>"))],
        body: Some(format!("[{reference}]").into_bytes()),
        signatures: signed(b"x".to_vec(), SignatureEncoding::Base64),
        ..Request::get(format!("/a/{reference}/b?s={reference}&t"))
    };
    let answer = String::from_utf8(session.fetch(request.clone()).await.unwrap().body).unwrap();
    assert_eq!(answer.matches("*****").count() / 8, 4, "each place is masked: {answer}");
    assert!(
        answer.starts_with(r#"["POST /a/***"#) && answer.contains("&t HTTP/1.1") && answer.ends_with("*]\"]"),
        "{answer}"
    );
    for (odd, expected) in [
        (Request { signatures: Vec::new(), ..request.clone() }, "which it does not have"),
        (
            Request { signatures: signed(b"x".to_vec(), SignatureEncoding::Raw), ..request.clone() },
            "for other signatures",
        ),
        (
            Request { signatures: vec![signature("s", vec![SignaturePart::Body], SignatureEncoding::Hex)], ..request },
            "signs the body",
        ),
    ] {
        let error = session.fetch(odd).await.unwrap_err();
        assert!(error.code() == "bad_request" && error.to_string().contains(expected), "{error} should say {expected}");
    }
}

/// Returns requests that guess the first characters of a secret, one after another, behind a text of the plugin.
fn guesses() -> Vec<Request> {
    let printable = || (b' '..=b'~').map(|byte| char::from(byte).to_string());
    let mut requests = Vec::new();
    for user in ["", "u", "uu", "uuu", "uuuu", "uuuuu"] {
        let encoded = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        let guesses: Vec<String> =
            printable().map(|guess| encoded(format!("{user}:{guess}AAAAAAAA")).chars().take(8).collect()).collect();
        for authentication in [
            Authentication::Basic(credentials(user)),
            Authentication::Digest(credentials(user)),
            Authentication::Bearer("password".to_owned()),
        ] {
            let headers = vec![("x-header".to_owned(), guesses.join(" "))];
            let authentication = Some(authentication);
            requests.push(Request { headers, authentication, ..Request::get("/") });
        }
    }
    requests
}

#[tokio::test]
async fn what_a_plugin_sees_of_authentication_and_signatures_does_not_depend_on_the_secret() {
    let port = echo("x-header").await;
    let url = format!("http://127.0.0.1:{port}/");
    let seen = async |secret: &str| {
        let target = grant(&url, Tls::system().unwrap(), secrets(&[("password", secret)]));
        let captured = Arc::new(Captured::default());
        let session = poll_with(Egress::new(Config::default()), target, Limits { requests: 500, ..LIMITS }).session;
        let session = session.with_captured(captured);
        let mut requests = guesses();
        let part = |encoding| SignaturePart::Secret("password".to_owned(), encoding);
        for (algorithm, key) in [
            ("sha256", Vec::new()),
            ("md5", Vec::new()),
            ("hmac-sha512", vec![SignaturePart::Bytes(b"k".to_vec())]),
            ("hmac-sha1", vec![part(SecretEncoding::Utf16Le)]),
        ] {
            for encoding in [SignatureEncoding::Hex, SignatureEncoding::Base64, SignatureEncoding::Base64Url] {
                let (name, input) = ("s".to_owned(), vec![part(SecretEncoding::Utf8)]);
                let (algorithm, key) = (algorithm.to_owned(), key.clone());
                let signatures = vec![Signature { name, algorithm, key, input, encoding, iterations: None }];
                for (prefix, source) in [
                    ("", CaptureSource::Pattern("x-(.+)".to_owned())),
                    ("x-JUNK", CaptureSource::Pattern("x-(JUNK.*)\"".to_owned())),
                    ("x-JUNKJUNK", CaptureSource::JsonPointer("/1".to_owned())),
                ] {
                    let value = format!(
                        "{prefix}{} {}",
                        session.reference("signature.s"),
                        session.reference("secret.password")
                    );
                    let headers = vec![("x-header".to_owned(), value)];
                    let captures = vec![Capture::new("c", source, Duration::from_secs(60))];
                    requests.push(Request { headers, captures, signatures: signatures.clone(), ..Request::get("/") });
                    let headers = vec![("x-header".to_owned(), session.reference("secret.c"))];
                    requests.push(Request { headers, ..Request::get("/") });
                }
            }
        }
        for guess in ["s", "s3", "s3c", "s3cr3t-", "S3CR3T-"] {
            let pattern = CaptureSource::Pattern(format!("({guess}[^\"]*)"));
            let captures = vec![Capture { optional: true, ..Capture::new("p", pattern, Duration::from_secs(60)) }];
            let headers = vec![("x-header".to_owned(), session.reference("secret.password"))];
            requests.push(Request { headers, captures, ..Request::get("/") });
        }
        let mut seen = Vec::new();
        for request in requests {
            let answer = session.fetch(request).await;
            seen.push(answer.map(|answer| (answer.status, answer.headers, String::from_utf8(answer.body).unwrap())));
        }
        seen
    };
    let (first, second) = (seen("s3cr3t-Token_9x/Zq+77").await, seen("abcdefghij\"klmn<op>%4").await);
    assert_eq!(first.len(), 18 + 72 + 5);
    for (number, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "request {number}");
    }
    let guesses = first[..18].iter().flatten();
    assert!(guesses.clone().count() == 18 && guesses.into_iter().all(|(.., body)| !body.contains('*')));
    assert!(first[18..].iter().flatten().any(|(.., body)| body.contains("****")));
}

#[tokio::test]
async fn a_captured_value_in_a_path_is_one_segment_and_stays_within_the_permitted_paths() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let path = request.split(' ').nth(1).unwrap().to_owned();
            let _ = stream.write_all(ok(&format!("{{\"path\":\"{path}\",\"id\":\"../../admin?x\"}}")).as_bytes()).await;
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/");
    let session = |prefixes: Option<Vec<String>>, captured: &Arc<Captured>| {
        let (base, origin) = Origin::parse(&url).unwrap();
        let origins = vec![OriginGrant { origin, tls: Tls::system().unwrap() }];
        let narrowing = Narrowing { path_prefixes: prefixes, ..Narrowing::default() };
        let target = Grant { narrowing, expands_path: true, ..Grant::new(base, origins, Secrets::default()) };
        poll_with(Egress::new(Config::default()), Arc::new(target), LIMITS).session.with_captured(captured.clone())
    };
    let captured = Arc::new(Captured::default());
    let capture = Capture::new("id", CaptureSource::JsonPointer("/id".to_owned()), Duration::from_secs(60));
    let free = session(None, &captured);
    free.fetch(Request { captures: vec![capture], ..Request::get("/api/me") }).await.unwrap();
    let path = |session: &Session| format!("/api/{}/state", session.reference("secret.id"));
    let answer = free.fetch(Request::get(path(&free))).await.unwrap();
    assert!(String::from_utf8(answer.body).unwrap().contains("/api/..%2F..%2Fadmin%3Fx/state"));
    let narrowed = session(Some(vec!["/api".to_owned()]), &captured);
    let error = narrowed.fetch(Request::get(path(&narrowed))).await.unwrap_err();
    assert_eq!(error.code(), "denied");
    assert!(!error.to_string().contains("admin") && error.to_string().contains("with its secrets inserted"), "{error}");
}

#[tokio::test]
async fn a_recording_answers_signed_requests_and_captures_of_patterns_and_numbers() {
    let port = canned(ok(r#"{"number":12345678,"page":"csrf=0a1b2c3d4e5f;"}"#)).await;
    let url = format!("http://127.0.0.1:{port}/");
    let key = SecretString::from(include_str!("../signatures/keys/rsa-pkcs8.pem"));
    let rules = SecretRules { private_keys: ["key".to_owned()].into(), ..SecretRules::default() };
    let live = Secrets::with_rules([("key".to_owned(), key)].into(), rules).unwrap();
    let fetch = async |secrets: Secrets, tape: Tape| {
        let target = grant(&url, Tls::system().unwrap(), secrets);
        let session = poll_with(Egress::new(Config::default()), target, LIMITS).session;
        let session = session.with_captured(Arc::default()).with_tape(tape);
        let capture = |name: &str, source| Capture::new(name, source, Duration::from_secs(60));
        let request = Request {
            headers: vec![("authorization".to_owned(), format!("Bearer x.{}", session.reference("signature.jwt")))],
            captures: vec![
                capture("number", CaptureSource::JsonPointer("/number".to_owned())),
                capture("csrf", CaptureSource::Pattern("csrf=([0-9a-f]+);".to_owned())),
            ],
            signatures: vec![Signature {
                name: "jwt".to_owned(),
                algorithm: "rsa-sha256".to_owned(),
                key: vec![SignaturePart::Secret("key".to_owned(), SecretEncoding::Utf8)],
                input: vec![SignaturePart::Bytes(b"x".to_vec())],
                encoding: SignatureEncoding::Base64Url,
                iterations: None,
            }],
            ..Request::get("/")
        };
        let answer = session.fetch(request).await.unwrap();
        assert!(session.has_secret("number") && session.has_secret("csrf"));
        String::from_utf8(answer.body).unwrap()
    };
    let recorder = Arc::new(Recorder::default());
    let seen = fetch(live, Tape::Record(recorder.clone())).await;
    assert_eq!(seen, r#"{"number":0,"page":"csrf=************;"}"#);
    let player = Arc::new(Player::new(recorder.exchanges()));
    assert_eq!(fetch(secrets(&[("key", "a secret of the recording")]), Tape::Replay(player.clone())).await, seen);
    assert_eq!(player.differences(), Vec::<String>::new());
}

#[tokio::test]
async fn methods_are_sent_as_they_are_written_except_those_that_tunnel_or_echo() {
    let port = echo("x").await;
    let session = session_for(port, &Arc::default());
    for text in ["PROPFIND", "REPORT", "M", "ABCDEFGHIJKLMNOP"] {
        let method = method(text).unwrap();
        let answer = session.fetch(Request { method, ..Request::get("/") }).await.unwrap();
        assert!(String::from_utf8(answer.body).unwrap().starts_with(&format!("[\"{text} / ")), "{text}");
    }
    for denied in [Method::CONNECT, Method::TRACE] {
        let error = session.fetch(Request { method: denied, ..Request::get("/") }).await.unwrap_err();
        assert_eq!((error.code(), error.class()), ("denied", ErrorClass::Denied));
    }
    for text in ["", "get", "GET ", "G-T", "ABCDEFGHIJKLMNOPQ", "GÉT", "GET\r\nx"] {
        assert!(method(text).unwrap_err().contains("upper-case"), "{text:?}");
    }
}

#[tokio::test]
async fn the_status_of_a_broken_answer_is_that_of_the_last_one() {
    let port = server(|mut stream| async move {
        let challenge = MD5.replace("NONCE", "n");
        let first = format!("HTTP/1.1 401 No\r\nwww-authenticate: {challenge}\r\ncontent-length: 0\r\n\r\n");
        while head(&mut stream).await.is_some_and(|request| value(&request, "authorization").is_none()) {
            let _ = stream.write_all(first.as_bytes()).await;
        }
        let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nx").await;
    })
    .await;
    let session = session_for(port, &Arc::default());
    let Exchanged { status, result, .. } = session.exchange(digest("", "Mufasa")).await;
    assert_eq!((result.unwrap_err().code(), status), ("closed", Some(503)));
}
