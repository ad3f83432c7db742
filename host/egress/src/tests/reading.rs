//! Answers that are not read to their end.

use super::*;

/// Sends the first part of an answer, and then nothing.
async fn stalled(first: &'static str) -> u16 {
    server(move |mut stream| async move {
        while head(&mut stream).await.is_some() {
            let _ = stream.write_all(first.as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_read_as_far_as_the_plugin_wants() {
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: up\n\ndata: d";
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\ncontent-encoding: br\r\n\r\nabc";
    let first = "HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\nabcdef";
    for (answer, reading, expected) in [
        (events, BodyReading::Until(vec![b"\n\n".to_vec()]), "data: up\n\n"),
        (events, BodyReading::None, ""),
        (long, BodyReading::None, ""),
        (first, BodyReading::First(4), "abcd"),
    ] {
        let poll = poll(&format!("http://127.0.0.1:{}/", stalled(answer).await));
        for exchange in 0..2 {
            let response = poll.session.fetch(Request { reading: reading.clone(), ..Request::get("") }).await.unwrap();
            assert_eq!((String::from_utf8(response.body).unwrap().as_str(), response.status), (expected, 200));
            assert_eq!((response.is_complete, response.exchange), (false, exchange), "{reading:?}");
        }
    }
    let whole = poll(&format!("http://127.0.0.1:{}/", stalled(long).await));
    assert_eq!(code(&whole, Request::get("")).await, "encoded_body");
    let empty = poll(&format!("http://127.0.0.1:{}/", canned(ok("")).await));
    let response = empty.session.fetch(Request { reading: BodyReading::None, ..Request::get("") }).await.unwrap();
    assert!(response.is_complete);
    for reading in [
        BodyReading::First(0),
        BodyReading::First((8 << 20) + 1),
        BodyReading::Until(Vec::new()),
        BodyReading::Until(vec![Vec::new()]),
        BodyReading::Until(vec![vec![b'a'; 257]]),
        BodyReading::Until(vec![vec![b'a']; 17]),
    ] {
        assert_eq!(code(&empty, Request { reading, ..Request::get("") }).await, "bad_request");
    }
}

#[tokio::test]
async fn a_capture_reads_the_part_that_was_read() {
    let port = stalled("HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\ntoken=abcdefgh12; rest").await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let pattern = CaptureSource::Pattern("token=([a-z0-9]+);".to_owned());
    let request = Request {
        reading: BodyReading::Until(vec![b";".to_vec()]),
        captures: vec![Capture::new("token", pattern, Duration::from_secs(60))],
        ..Request::get("")
    };
    let response = poll.session.fetch(request).await.unwrap();
    assert_eq!(String::from_utf8(response.body).unwrap(), "token=**********;");
    assert!(poll.session.has_secret("token"));
}

#[tokio::test]
async fn the_length_of_an_unseen_body_does_not_reveal_which_characters_a_secret_has() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            let token = request.lines().find_map(|line| line.strip_prefix("x-token: ")).unwrap_or_default();
            let answer = ok(&format!("{token:?}"));
            let end = if request.starts_with("HEAD") { answer.find("\r\n\r\n").unwrap() + 4 } else { answer.len() };
            let _ = stream.write_all(&answer.as_bytes()[..end]).await;
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/");
    for (method, reading) in [
        (Method::GET, BodyReading::None),
        (Method::GET, BodyReading::First(3)),
        (Method::GET, BodyReading::Whole),
        (Method::HEAD, BodyReading::Whole),
    ] {
        let mut seen = Vec::new();
        for secret in ["abcdefgh", "ab\"d\"fg\"", "********"] {
            let grant = grant(&url, Tls::system().unwrap(), secrets(&[("token", secret)]));
            let poll = poll_with(Egress::new(Config::default()), grant, LIMITS);
            let headers = vec![("x-token".to_owned(), poll.session.reference("secret.token"))];
            let (method, reading) = (method.clone(), reading.clone());
            let answer = poll.session.fetch(Request { method, reading, headers, ..Request::get("") }).await.unwrap();
            seen.push((answer.headers, answer.body));
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{method} {reading:?}: {seen:?}");
    }
    let open = poll(&url).session;
    let request = Request { reading: BodyReading::First(1), ..Request::get("") };
    let answer = open.fetch(request).await.unwrap();
    assert_eq!(answer.headers, [("content-length".to_owned(), "2".to_owned())], "without secrets, it is useful");
}
