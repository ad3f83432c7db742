//! Complete, oversized, malformed and missing answers.

use super::*;

#[tokio::test]
async fn answers_have_reason_headers_body_and_timing() {
    let port = canned("HTTP/1.1 595 no route to host\r\nX-A: b\r\ncontent-length: 3\r\n\r\nabc").await;
    let poll = poll(&format!("http://127.0.0.1:{port}/base?q"));
    let response = poll.session.fetch(Request::get("")).await.unwrap();
    assert_eq!((response.status, response.reason.as_str(), &response.body[..]), (595, "no route to host", &b"abc"[..]));
    assert!(response.headers.contains(&("x-a".to_owned(), "b".to_owned())));
    assert!(response.timing.total_ms >= response.timing.first_byte_ms && response.timing.first_byte_ms > 0.0);
    let again = poll.session.fetch(Request::get("/other")).await.unwrap();
    assert_eq!((again.timing.connect_ms, again.timing.dns_ms), (0.0, 0.0), "the connection is reused");
    assert_eq!(poll.egress.gauges().connections.load(Ordering::Relaxed), 1);
    assert_eq!(poll.session.usage(), Usage { requests: 2, bytes: 6 });
}

#[tokio::test]
async fn answers_that_exceed_a_limit_are_refused() {
    let long = "x".repeat((1 << 20) + 1);
    let sized = canned(ok(&long)).await;
    let chunked =
        canned(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n", long.len()))
            .await;
    let endless = server(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    for port in [sized, chunked, endless] {
        assert_eq!(code(&poll(&format!("http://127.0.0.1:{port}/")), Request::get("")).await, "body_too_large");
    }
    let headers = canned(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101))).await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{headers}/")), Request::get("")).await, "headers_too_large");
    let most = canned(format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "a: b\r\n".repeat(99))).await;
    assert!(poll(&format!("http://127.0.0.1:{most}/")).session.fetch(Request::get("")).await.is_ok());
    let head = canned(format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(100_000))).await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{head}/")), Request::get("")).await, "headers_too_large");
    let zipped = canned("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx").await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{zipped}/")), Request::get("")).await, "encoded_body");
    let half = canned(ok(&"x".repeat(700_000))).await;
    let poll = poll(&format!("http://127.0.0.1:{half}/"));
    for _ in 0..2 {
        assert!(poll.session.fetch(Request::get("")).await.is_ok());
    }
    assert_eq!(code(&poll, Request::get("")).await, "body_too_large", "2.1 MB exceed the limit of all bodies");
}

#[tokio::test]
async fn concurrent_answers_of_a_poll_share_one_limit() {
    let half = canned(ok(&"x".repeat(700_000))).await;
    let poll = poll(&format!("http://127.0.0.1:{half}/"));
    let all = futures_util::future::join_all((0..5).map(|n| poll.session.fetch(Request::get(format!("/{n}"))))).await;
    let (taken, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len()), (2, 3), "two bodies fit into 2 MiB");
    assert!(refused.iter().all(|result| matches!(result, Err(Error::BodyTooLarge { .. }))));
}

#[tokio::test]
async fn an_exhausted_byte_budget_delays_and_then_refuses_answers() {
    let half = canned(ok(&"x".repeat(700_000))).await;
    let config = Config { max_body_bytes_in_flight: 1 << 20, ..Config::default() };
    let url = format!("http://127.0.0.1:{half}/");
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let first = poll.session.fetch(Request::get("/1")).await.unwrap();
    assert_eq!(code(&poll, Request::get("/2")).await, "overloaded", "the first answer still holds its share");
    assert_eq!(poll.egress.gauges().waited_for_bytes.load(Ordering::Relaxed), 1);
    drop(first);
    assert!(poll.session.fetch(Request::get("/3")).await.is_ok());
}

#[tokio::test]
async fn invalid_answers_have_a_specific_error_code() {
    for (answer, expected) in [
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", "closed"),
        ("", "closed"),
    ] {
        let port = server(move |mut stream| async move {
            head(&mut stream).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await;
        assert_eq!(code(&poll(&format!("http://127.0.0.1:{port}/")), Request::get("")).await, expected, "{answer}");
    }
}

#[tokio::test]
async fn a_request_without_answer_times_out_and_reports_its_phase() {
    let port = server(|mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let request = Request { timeout: Some(Duration::from_millis(50)), ..Request::get("") };
    let error = poll.session.fetch(request).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: "waiting for the answer", .. }), "{error:?}");
    assert_eq!(error.code(), "timeout");
}

#[tokio::test]
async fn endless_informational_answers_are_refused() {
    let port = server(|mut stream| async move {
        let _ = head(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n").await.is_ok() {}
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    assert_eq!(code(&poll, Request::get("")).await, "headers_too_large");
    assert!(!poll.session.was_starved());
}
