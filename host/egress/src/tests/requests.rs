//! What stands in a request, and what a plugin is told of one that cannot be sent.

use super::*;

#[tokio::test]
async fn the_host_header_is_the_operators_and_for_the_targets_own_origin() {
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
async fn a_capture_that_found_nothing_says_so_when_it_is_used() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let answer = if request.starts_with("GET /denied") {
                "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".to_owned()
            } else {
                ok(r#"{"data":{"sid":5}}"#)
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let capture = |path: &str, source| Request {
        captures: vec![Capture { name: "sid".to_owned(), source, ttl: Duration::from_secs(60) }],
        ..Request::get(path)
    };
    let uses = || Request { headers: vec![("x-sid".to_owned(), "${secret.sid}".to_owned())], ..Request::get("/") };
    assert_eq!(code(&poll, uses()).await, "secret_unknown", "nobody has tried");
    for (request, expected) in [
        (capture("/", CaptureSource::JsonPointer("/data/sid".to_owned())), "at \"/data/sid\""),
        (capture("/", CaptureSource::JsonPointer("data/sid".to_owned())), "at \"data/sid\""),
        (capture("/", CaptureSource::Cookie("sid".to_owned())), "in a cookie \"sid\""),
        (capture("/denied", CaptureSource::Header("x-sid".to_owned())), "answered 401"),
    ] {
        poll.session.fetch(request).await.unwrap();
        let error = poll.session.fetch(uses()).await.unwrap_err();
        assert!(error.code() == "capture_missing" && error.retryable(), "{error:?}");
        assert!(error.to_string().contains(expected), "{error} should say {expected}");
    }
}

#[tokio::test]
async fn a_secret_in_a_path_is_refused_unsent() {
    let poll = poll("http://127.0.0.1:1/");
    for path in ["x?key=${secret.token}", "/${basic.token}"] {
        let error = poll.session.fetch(Request::get(path)).await.unwrap_err();
        assert!(error.code() == "bad_request" && error.to_string().contains("logs of servers"), "{error}");
    }
}
