//! Reuse of connections, and answers that arrive late on them.

use super::certificates::{acceptor, pinned, self_signed};
use super::*;
use http_body_util::BodyExt;
use tokio::net::TcpSocket;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

/// Maximum wait for something that is expected.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let port = server(move |mut stream| {
        let count = count.clone();
        async move {
            // The server closes the connection after one answer.
            if head(&mut stream).await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(ok("x").as_bytes()).await;
            }
            let _ = head(&mut stream).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    for _ in 0..3 {
        assert_eq!(poll.session.fetch(Request::get("")).await.unwrap().body, b"x");
    }
    assert_eq!(served.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_body_after_an_answer_without_body_does_not_reach_the_next_request() {
    let stray = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n");
    for (method, first) in [
        (Method::HEAD, stray("200 OK")),
        (Method::GET, stray("304 Not Modified")),
        (Method::GET, stray("204 No Content").replace("content-length: 5\r\n", "")),
    ] {
        let first = Arc::new(first);
        let port = server(move |mut stream| {
            let first = first.clone();
            async move {
                let Some(request) = head(&mut stream).await else { return };
                let odd = request.contains(" /odd ");
                let answer = if odd { (*first).clone() } else { ok("honest") };
                let _ = stream.write_all(answer.as_bytes()).await;
                if odd {
                    // Send the stray answer as late as possible: together with the answer to the next request on this
                    // connection.
                    let _ = head(&mut stream).await;
                    let _ = stream.write_all(b"HTTP/1.1 500 Poison\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        let poll = poll(&format!("http://127.0.0.1:{port}/"));
        poll.session.fetch(Request { method: method.clone(), ..Request::get("/odd") }).await.unwrap();
        let next = poll.session.fetch(Request::get("/other")).await.unwrap();
        assert_eq!((next.status, &next.body[..]), (200, &b"honest"[..]), "{method:?}");
    }
}

#[tokio::test]
async fn a_request_body_that_the_server_parses_as_a_request_does_not_answer_another_request() {
    let port = server(|mut stream| async move {
        let (mut unread, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let end = unread.windows(4).position(|window| window == b"\r\n\r\n");
            if end.is_none() || unread.starts_with(b"GET /smuggled") {
                // Answer the smuggled request as late as possible: when the next request arrives.
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => unread.extend_from_slice(&buffer[..n]),
                }
            }
            let Some(end) = end else { continue };
            let request: Vec<u8> = unread.drain(..end + 4).collect();
            let path = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap_or_default().to_owned();
            let _ = stream.write_all(ok(&path).as_bytes()).await;
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    let smuggled = Some(b"GET /smuggled HTTP/1.1\r\n\r\n".to_vec());
    let post = Request { method: Method::POST, body: smuggled, ..Request::get("/first") };
    assert_eq!(&poll.session.fetch(post).await.unwrap().body[..], b"/first");
    assert_eq!(&poll.session.fetch(Request::get("/other")).await.unwrap().body[..], b"/other");
}

#[tokio::test]
async fn a_late_second_answer_does_not_reach_another_kind() {
    let port = server(|mut stream| async move {
        let mut answer = ok("fine");
        while head(&mut stream).await.is_some() {
            let _ = stream.write_all(answer.as_bytes()).await;
            // The answer to the next request on this connection.
            answer = ok("poison");
        }
    })
    .await;
    // All targets of a lane share its connections.
    let lane = Egress::new(Config::default()).lane(tokio::runtime::Handle::current());
    let url = format!("http://127.0.0.1:{port}/");
    let poll = |kind: &str| {
        let target = grant(&url, Tls::system().unwrap(), Secrets::default());
        Session::new(lane.clone(), target, LIMITS, Instant::now() + Duration::from_secs(20)).with_share(kind)
    };
    let (greedy, honest) = (poll("greedy"), poll("honest"));
    let read = async |session: &Session, path: &str| session.fetch(Request::get(path)).await.unwrap().body;
    assert_eq!(&read(&greedy, "/first").await[..], b"fine");
    assert_eq!(&read(&honest, "/second").await[..], b"fine");
    assert_eq!(&read(&greedy, "/third").await[..], b"poison", "the kind keeps its own connection");
}

#[tokio::test]
async fn a_connection_with_more_than_one_answer_is_not_used_again() {
    const POISON: &str = "HTTP/1.1 500 Poison\r\ncontent-length: 0\r\n\r\n";
    for comes_later in [false, true] {
        let (sent, mut received) = unbounded_channel();
        let port = server(move |mut stream| {
            let sent = sent.clone();
            async move {
                // Without this, the second answer waits until the first one is acknowledged.
                stream.set_nodelay(true).unwrap();
                let _ = head(&mut stream).await;
                let first = if comes_later { ok("honest") } else { ok("honest") + POISON };
                let _ = stream.write_all(first.as_bytes()).await;
                if comes_later {
                    let _ = stream.write_all(POISON.as_bytes()).await;
                }
                let _ = sent.send(());
                let _ = head(&mut stream).await;
            }
        })
        .await;
        let (poll, other) = (poll(&format!("http://127.0.0.1:{port}/")), canned(ok("x")).await);
        for _ in 0..2 {
            let response = poll.session.fetch(Request::get("")).await.unwrap();
            assert_eq!((response.status, &response.body[..]), (200, &b"honest"[..]), "later: {comes_later}");
            timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
            // The runtime notices what has arrived before it notices an answer that is sent after that.
            self::poll(&format!("http://127.0.0.1:{other}/")).session.fetch(Request::get("")).await.unwrap();
        }
        assert_eq!(poll.egress.gauges().connections.load(Ordering::Relaxed), 2, "later: {comes_later}");
    }
}

#[tokio::test]
async fn a_connection_whose_request_was_not_written_whole_is_not_used_again() {
    const BUFFER: u32 = 4096;
    // The second request is longer than the buffers of both ends.
    for (bytes, is_used_again) in [(1, true), (1 << 20, false)] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(BUFFER).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(BUFFER).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let serve = async {
            server.read_exact(&mut [0]).await.unwrap();
            server.write_all(ok("x").as_bytes()).await.unwrap();
        };
        let (mut sender, mut driver) = http1::Stream::plain(client).begin().await.unwrap();
        let request = hyper::Request::get("/").header("long", "x".repeat(bytes)).body(Default::default()).unwrap();
        let answer =
            async { sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes() };
        let (answer, ()) = timeout(PATIENCE, async { tokio::join!(driver.run(answer), serve) }).await.unwrap();
        assert_eq!(answer, "x");
        assert_eq!(driver.finish(sender).is_some(), is_used_again, "{bytes} bytes");
    }
}

#[tokio::test]
async fn a_tls_connection_is_used_again_and_its_session_is_closed() {
    let certificate = self_signed(&["localhost"]);
    let der = certificate.cert.der().to_vec();
    let acceptor = acceptor(der.clone(), certificate.signing_key.serialize_der(), &[]);
    let (sent, mut received) = unbounded_channel();
    let port = server(move |stream| {
        let (acceptor, sent) = (acceptor.clone(), sent.clone());
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut buffer = [0; 4096];
            // Each request arrives in one piece.
            let end = loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => break Ok(()),
                    Ok(_) => stream.write_all(ok("x").as_bytes()).await.unwrap(),
                    Err(error) => break Err(error),
                }
            };
            let _ = sent.send(end);
        }
    })
    .await;
    let url = format!("https://localhost:{port}/");
    let poll = poll_with(Egress::new(Config::default()), grant(&url, pinned(&der).0, Secrets::default()), LIMITS);
    for _ in 0..3 {
        assert_eq!(poll.session.fetch(Request::get("")).await.unwrap().body, b"x");
    }
    assert_eq!(poll.egress.gauges().connections.load(Ordering::Relaxed), 1);
    drop(poll);
    // Without the message that closes a session, the server's library reports an unexpected end.
    timeout(PATIENCE, received.recv()).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_given_up_without_a_request_to_that_server() {
    let (sent, mut received) = unbounded_channel();
    let closes = Arc::new(tokio::sync::Notify::new());
    let close = closes.clone();
    let closing = server(move |mut stream| {
        let (sent, closes) = (sent.clone(), closes.clone());
        async move {
            let _ = head(&mut stream).await;
            let _ = stream.write_all(ok("x").as_bytes()).await;
            closes.notified().await;
            let _ = stream.shutdown().await;
            // It returns when the client closes the connection.
            let _ = head(&mut stream).await;
            let _ = sent.send(());
        }
    })
    .await;
    let other = canned(ok("x")).await;
    let lane = Egress::new(Config::default()).lane(tokio::runtime::Handle::current());
    let fetch = async |port: u16| {
        let target = grant(&format!("http://127.0.0.1:{port}/"), Tls::system().unwrap(), Secrets::default());
        let deadline = Instant::now() + Duration::from_secs(20);
        Session::new(lane.clone(), target, LIMITS, deadline).fetch(Request::get("")).await.unwrap()
    };
    fetch(closing).await;
    close.notify_one();
    fetch(other).await;
    assert!(received.try_recv().is_err(), "closed connections are not looked for after each request");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(25)).await;
    tokio::time::resume();
    timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn only_a_short_body_that_is_not_asked_for_keeps_its_connection() {
    for (length, expected) in [(3_000, 1), (20_000_000, 3)] {
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = accepted.clone();
        let body = ok(&"x".repeat(length));
        let port = server(move |mut stream| {
            counter.fetch_add(1, Ordering::Relaxed);
            let body = body.clone();
            async move {
                while head(&mut stream).await.is_some() {
                    let _ = stream.write_all(body.as_bytes()).await;
                }
            }
        })
        .await;
        let poll = poll(&format!("http://127.0.0.1:{port}/"));
        for _ in 0..3 {
            let request = Request { reading: BodyReading::None, ..Request::get("") };
            let response = poll.session.fetch(request).await.unwrap();
            assert_eq!((response.status, response.body.len(), response.is_complete), (200, 0, false));
        }
        assert_eq!(accepted.load(Ordering::Relaxed), expected, "{length} bytes");
    }
}

#[tokio::test]
async fn as_many_connections_are_kept_as_requests_were_in_flight_together() {
    /// More than the number that is always kept, and no more than one kind may send to a host.
    const TOGETHER: usize = 15;
    let barrier = Arc::new(tokio::sync::Barrier::new(TOGETHER));
    let port = server(move |mut stream| {
        let barrier = barrier.clone();
        async move {
            while head(&mut stream).await.is_some() {
                // No answer before all requests have arrived, so that each needs its own connection.
                barrier.wait().await;
                let _ = stream.write_all(ok("x").as_bytes()).await;
            }
        }
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    for _ in 0..3 {
        let all = (0..TOGETHER).map(|number| poll.session.fetch(Request::get(format!("/{number}"))));
        for response in futures_util::future::join_all(all).await {
            assert_eq!(response.unwrap().body, b"x");
        }
        let connections = poll.egress.gauges().connections.load(Ordering::Relaxed);
        assert_eq!(connections, TOGETHER as u64, "every later request finds an idle connection");
    }
}
