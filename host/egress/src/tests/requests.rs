//! The contents and limits of requests, and the errors of refused requests.

use super::*;

#[tokio::test]
async fn the_configured_host_header_is_sent_only_to_the_targets_own_origin() {
    let echo = || {
        server(|mut stream| async move {
            while let Some(request) = head(&mut stream).await {
                let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("none");
                let _ = stream.write_all(ok(host).as_bytes()).await;
            }
        })
    };
    let (port, other) = (echo().await, echo().await);
    let urls = [port, other].map(|port| format!("http://127.0.0.1:{port}/"));
    let origins =
        urls.iter().map(|url| OriginGrant { origin: Origin::parse(url).unwrap().1, tls: Tls::system().unwrap() });
    let base = Origin::parse(&urls[0]).unwrap().0;
    let grant =
        Grant { host: Some("shop.example:81".to_owned()), ..Grant::new(base, origins.collect(), Secrets::default()) };
    let poll = poll_with(Egress::new(Config::default()), Arc::new(grant), LIMITS);
    let seen =
        async |path: &str| String::from_utf8(poll.session.fetch(Request::get(path)).await.unwrap().body).unwrap();
    assert_eq!(seen("").await, "shop.example:81");
    assert_eq!(seen(&urls[1]).await, format!("127.0.0.1:{other}"));
    let own = Request { headers: vec![("Host".to_owned(), "inside.example".to_owned())], ..Request::get("") };
    let error = poll.session.fetch(own).await.unwrap_err();
    assert!(error.code() == "bad_request" && error.to_string().contains("host_header"), "{error}");
}

#[tokio::test]
async fn a_missed_capture_is_reported_when_the_secret_is_used() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let answer = if request.starts_with("GET /denied") {
                "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".to_owned()
            } else {
                ok(r#"{"data":{"sid":null}}"#)
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let capture = |path: &str, source| Request {
        captures: vec![Capture::new("sid", source, Duration::from_secs(60))],
        ..Request::get(path)
    };
    let uses = || {
        let headers = vec![("x-sid".to_owned(), poll.session.reference("secret.sid"))];
        Request { headers, ..Request::get("/") }
    };
    assert_eq!(code(&poll, uses()).await, "secret_unknown", "no capture was tried");
    for (request, expected) in [
        (capture("/", CaptureSource::JsonPointer("/data/sid".to_owned())), "at \"/data/sid\""),
        (capture("/", CaptureSource::JsonPointer("data/sid".to_owned())), "at \"data/sid\""),
        (capture("/", CaptureSource::Cookie("sid".to_owned())), "in a cookie \"sid\""),
        (capture("/denied", CaptureSource::Header("x-sid".to_owned())), "status 401"),
    ] {
        let missing = |error: Error| {
            assert!(error.code() == "capture_missing" && error.retryable(), "{error:?}");
            assert!(error.to_string().contains(expected), "{error} should say {expected}");
        };
        let optional = |capture: &Capture| Capture { optional: true, ..capture.clone() };
        let optional = Request { captures: request.captures.iter().map(optional).collect(), ..request.clone() };
        poll.session.fetch(optional).await.unwrap();
        missing(poll.session.fetch(uses()).await.unwrap_err());
        match request.path.as_str() {
            "/denied" => assert_eq!(poll.session.fetch(request).await.unwrap().status, 401),
            _ => missing(poll.session.fetch(request).await.unwrap_err()),
        }
    }
}

#[tokio::test]
async fn a_secret_in_a_path_is_refused() {
    let poll = poll("http://127.0.0.1:1/");
    for path in ["x?key=${secret.token}", "/${basic.token}"] {
        let error = poll.session.fetch(Request::get(poll.session.written(path))).await.unwrap_err();
        assert!(error.code() == "bad_request" && error.to_string().contains("log paths"), "{error}");
    }
}

#[tokio::test]
async fn requests_to_other_origins_are_denied() {
    let port = canned(ok("x")).await;
    let base = format!("http://127.0.0.1:{port}/a/b");
    let poll = poll(&base);
    for path in ["", "/c", "c?d", "?x=1", &base] {
        assert!(poll.session.fetch(Request::get(path)).await.is_ok(), "{path}");
    }
    for path in ["http://127.0.0.1:1/", "https://127.0.0.1/", "//evil/", "http://localhost/"] {
        assert_eq!(code(&poll, Request::get(path)).await, "denied", "{path}");
    }
    for path in ["/a b", "/a\nb", "\\\\evil\\x", "http://user:pw@127.0.0.1/", "file:///etc/passwd"] {
        assert_eq!(code(&poll, Request::get(path)).await, "bad_request", "{path}");
    }
}

#[tokio::test]
async fn names_are_checked_by_their_addresses() {
    let port = canned(ok("x")).await;
    let own = Config { own_listeners: vec![format!("127.0.0.1:{port}").parse().unwrap()], ..Config::default() };
    let system = || Tls::system().unwrap();
    let by_name = poll_with(
        Egress::new(own.clone()),
        grant(&format!("http://localhost:{port}/"), system(), Secrets::default()),
        LIMITS,
    );
    assert_eq!(code(&by_name, Request::get("")).await, "denied", "the name resolves to the host's own listener");
    let named =
        poll_with(Egress::new(own), grant(&format!("http://127.0.0.1:{port}/"), system(), Secrets::default()), LIMITS);
    assert!(named.session.fetch(Request::get("")).await.is_ok(), "the operator wrote the address itself");
    assert_eq!(code(&poll("http://no-such-host.invalid/"), Request::get("")).await, "dns_not_found");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{free}/")), Request::get("")).await, "connect_refused");
}

#[tokio::test]
async fn requests_and_captures_are_limited() {
    let port = canned(ok("x")).await;
    let url = format!("http://127.0.0.1:{port}/");
    let limits = Limits { requests: 1, ..LIMITS };
    let poll =
        poll_with(Egress::new(Config::default()), grant(&url, Tls::system().unwrap(), Secrets::default()), limits);
    let capture =
        |name: &str| Capture::new(name, CaptureSource::JsonPointer("/ticket".to_owned()), Duration::from_secs(60));
    for captures in [vec![capture("to ken")], vec![capture("")], vec![capture("t"); 17]] {
        let session = Poll { session: fresh(&url), egress: poll.egress.clone() };
        assert_eq!(code(&session, Request { captures, ..Request::get("") }).await, "bad_request");
    }
    assert!(poll.session.fetch(Request::get("")).await.is_ok());
    assert_eq!(code(&poll, Request::get("")).await, "too_many_requests_in_poll");
    assert_eq!(poll.session.usage().requests, 1);
}

/// Returns a session of a target without secrets.
fn fresh(url: &str) -> Session {
    poll(url).session
}

#[tokio::test]
async fn headers_and_bodies_of_requests_are_limited() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            let mut rest = vec![0; length.parse::<usize>().unwrap() - body.len()];
            let _ = stream.read_exact(&mut rest).await;
            let _ = stream.write_all(ok("fine").as_bytes()).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let request = |headers: usize, value: usize, body: usize| Request {
        method: Method::POST,
        headers: (0..headers).map(|number| (format!("x-{number}"), "v".repeat(value))).collect(),
        body: Some(vec![b'b'; body]),
        ..Request::get("")
    };
    assert!(poll.session.fetch(request(100, 1, 1 << 20)).await.is_ok());
    for (headers, value, body) in [(101, 1, 0), (30_000, 1, 0), (2, 40_000, 0), (0, 0, (1 << 20) + 1)] {
        assert_eq!(code(&poll, request(headers, value, body)).await, "bad_request", "{headers} {value} {body}");
    }
    let mut sent = 0;
    while let Ok(answer) = poll.session.fetch(request(0, 0, 1 << 20)).await {
        assert_eq!(answer.status, 200);
        sent += 1;
    }
    assert_eq!(sent, 6, "one megabyte was sent before");
    assert_eq!(code(&poll, request(0, 0, 1 << 20)).await, "too_much_sent_in_poll");
    for refused in ["Range", "if-range", "Accept-Charset", "A-IM", "transfer_encoding", "Content_Length"] {
        let headers = vec![(refused.to_owned(), "bytes=0-3".to_owned())];
        assert_eq!(code(&poll, Request { headers, ..Request::get("") }).await, "bad_request", "{refused}");
    }
}

#[tokio::test]
async fn requests_with_an_empty_body_say_so() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let length = request.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("none");
            let _ = stream.write_all(ok(length).as_bytes()).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    for (method, body, expected) in [
        (Method::POST, None, "0"),
        (Method::PUT, Some(Vec::new()), "0"),
        (Method::PATCH, Some(b"ab".to_vec()), "2"),
        (Method::GET, None, "none"),
        (Method::DELETE, None, "none"),
    ] {
        let answer = poll.session.fetch(Request { method: method.clone(), body, ..Request::get("") }).await.unwrap();
        assert_eq!(String::from_utf8(answer.body).unwrap(), expected, "{method}");
    }
}
