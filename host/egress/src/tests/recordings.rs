//! Recorded exchanges and their replay.

use super::*;

const COOKIE: &str = "session=abcdefgh12345678";

/// Starts a server whose log-in sets a cookie, which all other paths need.
async fn with_log_in() -> u16 {
    server(|mut stream| async move {
        while let Some(head) = head(&mut stream).await {
            let answer = match head {
                login if login.starts_with("POST /login") => {
                    format!("HTTP/1.1 200 OK\r\nset-cookie: {COOKIE}; Path=/; HttpOnly\r\ncontent-length: 0\r\n\r\n")
                }
                other if other.to_lowercase().contains(&format!("cookie: {COOKIE}\r\n")) => ok("welcome"),
                _ => "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned(),
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

fn login() -> Request {
    Request { method: Method::POST, ..Request::get("/login") }
}

fn home(cookie: &str) -> Request {
    Request { headers: vec![("Cookie".to_owned(), cookie.to_owned())], ..Request::get("/home") }
}

/// Logs in and requests a page, with the cookie captured or as the plugin sees it. Returns the status of the page.
async fn visit(session: &Session, is_captured: bool) -> u16 {
    let capture = Capture::new("sid", CaptureSource::Cookie("session".to_owned()), Duration::from_secs(60));
    let captures = if is_captured { vec![capture] } else { Vec::new() };
    let answer = session.fetch(Request { captures, ..login() }).await.unwrap();
    let seen = &answer.headers.iter().find(|(name, _)| name == "set-cookie").unwrap().1;
    assert!(!is_captured || !seen.contains("abcdefgh"), "{seen}");
    assert!(seen.starts_with("session=") && seen.ends_with("; Path=/; HttpOnly"), "{seen}");
    let as_seen = seen.split(';').next().unwrap();
    let cookie = if is_captured { format!("session={}", session.reference("secret.sid")) } else { as_seen.to_owned() };
    session.fetch(home(&cookie)).await.unwrap().status
}

#[tokio::test]
async fn a_log_in_with_a_cookie_is_recorded_without_it_and_replayed() {
    let url = format!("http://127.0.0.1:{}/", with_log_in().await);
    for is_captured in [true, false] {
        let recorder = Arc::new(Recorder::default());
        let session = poll(&url).session.with_tape(Tape::Record(recorder.clone()));
        assert_eq!(visit(&session, is_captured).await, 200);
        let text = serde_json::to_string(&recorder.exchanges()).unwrap();
        assert!(!text.contains("abcdefgh"), "{text}");
        assert_eq!(text.contains("session=${secret.sid}"), is_captured, "{text}");

        let player = Arc::new(Player::new(recorder.exchanges()));
        let session = poll(&url).session.with_tape(Tape::Replay(player.clone()));
        assert_eq!(visit(&session, is_captured).await, 200);
        assert_eq!(player.differences(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_replay_chooses_among_answers_of_a_url_by_the_body_and_then_in_order() {
    let exchange = |body: &str, answer: &str| {
        let text = format!(
            r#"{{"request": {{"method": "POST", "url": "http://127.0.0.1:9/rpc", "body": "{body}"}},
                "response": {{"status": 200, "body": "{answer}"}}}}"#
        );
        serde_json::from_str::<Exchange>(&text).unwrap()
    };
    let recorded = [("login", "sid"), ("data", "one"), ("data", "two")].map(|(body, answer)| exchange(body, answer));
    for (sent, expected, differs) in [
        (vec!["login", "data", "data", "data"], vec!["sid", "one", "two", "two"], 0),
        // A later poll has a session: its first request is not the log-in.
        (vec!["data", "data"], vec!["one", "two"], 1),
        (vec!["data", "login"], vec!["one", "sid"], 1),
        // Bodies that the recording does not have get its answers in order.
        (vec!["other", "other"], vec!["sid", "one"], 3),
    ] {
        let player = Arc::new(Player::new(recorded.to_vec()));
        let session = poll("http://127.0.0.1:9/").session.with_tape(Tape::Replay(player.clone()));
        let mut answers = Vec::new();
        for body in &sent {
            let body = Some(body.as_bytes().to_vec());
            let request = Request { method: Method::POST, body, ..Request::get("/rpc") };
            answers.push(String::from_utf8(session.fetch(request).await.unwrap().body).unwrap());
        }
        assert_eq!(
            (answers, player.differences().len()),
            (expected.iter().map(ToString::to_string).collect(), differs),
            "{sent:?}"
        );
    }
}

fn signed(algorithm: &str, key: Vec<SignaturePart>, input: Vec<SignaturePart>) -> Signature {
    let (encoding, iterations) = (SignatureEncoding::Hex, None);
    Signature { name: "v1".to_owned(), algorithm: algorithm.to_owned(), key, input, encoding, iterations }
}

#[tokio::test]
async fn a_replay_compares_signatures_and_refuses_what_the_host_refuses() {
    let url = format!("http://127.0.0.1:{}/", canned(ok("taken")).await);
    let session = |tape| {
        let known = secrets(&[("key", "a key of a test"), ("login", "user:password")]);
        poll_with(Egress::new(Config::default()), grant(&url, Tls::system().unwrap(), known), LIMITS)
            .session
            .with_tape(tape)
    };
    let bytes = |text: &str| vec![SignaturePart::Bytes(text.as_bytes().to_vec())];
    let secret = |name: &str, encoding| vec![SignaturePart::Secret(name.to_owned(), encoding)];
    let key = || secret("key", SecretEncoding::Utf8);
    let login = |user: &str| Credentials { user: user.to_owned(), password: "login".to_owned() };
    let request = |signature: Signature, user: &str| Request {
        signatures: vec![signature],
        authentication: Some(Authentication::Basic(login(user))),
        ..Request::get("")
    };
    let recorder = Arc::new(Recorder::default());
    let right = request(signed("hmac-sha256", key(), bytes("text")), "me");
    session(Tape::Record(recorder.clone())).fetch(right.clone()).await.unwrap();
    let text = serde_json::to_string(&recorder.exchanges()).unwrap();
    assert!(text.contains(r#""secret":"key""#) && !text.contains("a key of"), "{text}");
    let (base64, hmac) = (SecretEncoding::Base64, "hmac-sha256");
    for (request, expected) in [
        (right, Ok("")),
        (request(signed(hmac, key(), bytes("WRONG")), "me"), Ok("a different signature \"v1\"")),
        (request(signed(hmac, secret("key", base64), bytes("text")), "me"), Ok("a different signature \"v1\"")),
        (request(signed(hmac, key(), bytes("text")), "you"), Ok("a different authentication")),
        (request(signed("hmac_sha256", key(), bytes("text")), "me"), Err("there is no algorithm")),
        (request(signed(hmac, secret("kex", base64), bytes("text")), "me"), Err("kex")),
        (request(signed(hmac, bytes("${secret.key}"), bytes("text")), "me"), Err("contains a reference to secret.key")),
        (request(signed(hmac, key(), bytes("x ${basic.login}")), "me"), Err("contains a reference to basic.login")),
    ] {
        for is_replayed in [true, false] {
            let player = Arc::new(Player::new(recorder.exchanges()));
            let session = session(if is_replayed { Tape::Replay(player.clone()) } else { Tape::Off });
            let mut request = request.clone();
            for part in request.signatures.iter_mut().flat_map(|of| of.key.iter_mut().chain(&mut of.input)) {
                if let SignaturePart::Bytes(bytes) = part {
                    *bytes = session.written(std::str::from_utf8(bytes).unwrap()).into_bytes();
                }
            }
            match (session.fetch(request).await, expected) {
                (Ok(_), Ok(expected)) if is_replayed => {
                    let differences = player.differences().join("; ");
                    assert!(
                        differences.contains(expected) && differences.is_empty() == expected.is_empty(),
                        "{differences}"
                    );
                }
                // The secret is not base64, which only the network shows.
                (Ok(_), Ok(_)) | (Err(Error::SecretUnusable { .. }), Ok(_)) => {}
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (result, expected) => panic!("{result:?}, expected {expected:?}"),
            }
        }
    }
}
