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
    for count in [99, 101, 5_000] {
        let lines = "a: b\r\n".repeat(count);
        let many = canned(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n")).await;
        let response = poll(&format!("http://127.0.0.1:{many}/")).session.fetch(Request::get("")).await.unwrap();
        assert_eq!(response.headers.len(), count + 1);
    }
    let head = canned(format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(100_000))).await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{head}/")), Request::get("")).await, "headers_too_large");
    let packed = canned("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx").await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{packed}/")), Request::get("")).await, "encoded_body");
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

/// Sends an answer in pieces of this many bytes, and then closes.
async fn in_pieces(answer: Vec<u8>, size: usize) -> u16 {
    server(move |mut stream| {
        let answer = answer.clone();
        async move {
            let _ = stream.set_nodelay(true);
            while head(&mut stream).await.is_some() {
                for piece in answer.chunks(size) {
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn heads_are_read_as_other_clients_read_them() {
    for (head, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Security-Policy: a;\r\n b\r\n", ("content-security-policy", "a; b")),
        ("HTTP/1.1 200 OK\r\nServer : x\r\n", ("server", "x")),
        ("HTTP/1.1 200 OK\r\nWarning: f() in /a.php\r\nno colon\r\nA: b\r\n", ("a", "b")),
        ("HTTP/1.1 200 OK\r\nSet-Cookie: \x01id=1\r\n", ("set-cookie", "\u{1}id=1")),
        ("HTTP/1.1 200 OK\r\nX (odd): 1\r\n", ("x (odd)", "1")),
        ("HTTP/1.1   200   OK\r\nA: b\r\n", ("a", "b")),
        ("\r\nHTTP/1.0 200\r\nA: b\r\nConnection: keep-alive\r\n", ("a", "b")),
        ("HTTP/1.1 103 Early Hints\r\nLink : x\r\n\r\nHTTP/1.1 200 OK\r\nA : b\r\n", ("a", "b")),
        ("HTTP/1.1 302 Found\r\nLocation: /caf\u{e9}\r\n", ("location", "/caf\u{e9}")),
    ] {
        for size in [1, 7, 4096] {
            let answer = format!("{head}content-length : 2\r\n\r\nup").into_bytes();
            let poll = poll(&format!("http://127.0.0.1:{}/", in_pieces(answer, size).await));
            for path in ["/1", "/2"] {
                let response = poll.session.fetch(Request::get(path)).await.unwrap();
                assert_eq!(response.body, b"up", "{head:?}");
                let expected = (expected.0.to_owned(), expected.1.to_owned());
                assert!(response.headers.contains(&expected), "{head:?}: {:?}", response.headers);
            }
            assert_eq!(poll.egress.gauges().connections.load(Ordering::Relaxed), 1, "the connection is reused");
        }
    }
    let latin = [&b"HTTP/1.1 302 Found\r\nlocation: /caf\xe9?a=%20\r\ncontent-length: 0\r\n\r\n"[..]].concat();
    let response =
        poll(&format!("http://127.0.0.1:{}/", canned(latin).await)).session.fetch(Request::get("")).await.unwrap();
    assert!(response.headers.contains(&("location".to_owned(), "/caf%E9?a=%20".to_owned())), "{:?}", response.headers);
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_quoted_without_its_secrets() {
    for (answer, expected) in [
        ("SSH-2.0-sesame-sesame\r\n", "not HTTP (it begins with \"SSH-2.0-*************\")"),
        ("HTTP/1.1 200 OK\r\nContent-Length: sesame-sesame\r\n\r\n", "the line \"Content-Length: *************\""),
        ("HTTP/1.1 abc\r\n\r\n", "the line \"HTTP/1.1 abc\""),
        ("\x15\x03\x03\x00\x02\x02\x46", "begins with a message of TLS"),
    ] {
        let url = format!("http://127.0.0.1:{}/", canned(answer).await);
        let grant = grant(&url, Tls::system().unwrap(), secrets(&[("token", "sesame-sesame")]));
        let poll = poll_with(Egress::new(Config::default()), grant, LIMITS);
        let error = poll.session.fetch(Request::get("")).await.unwrap_err();
        assert_eq!(error.code(), "protocol");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn the_status_is_known_although_the_body_cannot_be_read() {
    for (answer, code) in [
        ("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nx".to_owned(), "closed"),
        ("HTTP/1.1 503 Busy\r\ncontent-length: 9000000000\r\n\r\nx".to_owned(), "body_too_large"),
        ("HTTP/1.1 503 Busy\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx".to_owned(), "encoded_body"),
        ("HTTP/1.1 503 Busy\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_owned(), "broken_encoding"),
        ("HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), "protocol"),
    ] {
        let port = server(move |mut stream| {
            let answer = answer.clone();
            async move {
                head(&mut stream).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await;
        let poll = poll(&format!("http://127.0.0.1:{port}/"));
        let Exchanged { status, result, .. } = poll.session.exchange(Request::get("")).await;
        assert_eq!((result.unwrap_err().code(), status), (code, Some(503)));
    }
    let stalled = server(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 9\r\n\r\nx").await;
        std::future::pending::<()>().await;
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{stalled}/"));
    let request = Request { timeout: Some(Duration::from_millis(300)), ..Request::get("") };
    let Exchanged { status, result, .. } = poll.session.exchange(request).await;
    assert_eq!((result.unwrap_err().code(), status), ("timeout", Some(500)));
}
