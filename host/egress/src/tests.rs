//! Against real servers on loopback.

mod requests;

use super::*;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use secrecy::SecretString;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

const LIMITS: Limits = Limits { requests: 100, body: 1 << 20, bodies: 2 << 20 };

/// Serves each connection with `serve`; gives the port.
async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// Reads one request's head (and what came with it); nothing when the connection ended.
async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
        }
    }
    Some(String::from_utf8_lossy(&read).into_owned())
}

/// Answers every request of every connection with the same bytes.
async fn canned(answer: impl Into<Vec<u8>>) -> u16 {
    let answer = Arc::new(answer.into());
    server(move |mut stream| {
        let answer = answer.clone();
        async move {
            while head(&mut stream).await.is_some() {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn secrets(values: &[(&str, &str)]) -> Secrets {
    Secrets::new(values.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect()).unwrap()
}

fn grant(url: &str, tls: Tls, secrets: Secrets) -> Arc<Grant> {
    let (base, origin) = Origin::parse(url).unwrap();
    let origins = vec![OriginGrant { origin, tls }];
    Arc::new(Grant::new(base, origins, secrets))
}

struct Poll {
    session: Session,
    egress: Egress,
}

fn poll_with(egress: Egress, grant: Arc<Grant>, limits: Limits) -> Poll {
    let lane = egress.lane(tokio::runtime::Handle::current());
    let deadline = Instant::now() + Duration::from_secs(20);
    Poll { session: Session::new(lane, grant, limits, deadline), egress }
}

fn poll(url: &str) -> Poll {
    poll_with(Egress::new(Config::default()), grant(url, Tls::system().unwrap(), Secrets::default()), LIMITS)
}

async fn code(poll: &Poll, request: Request) -> String {
    match poll.session.fetch(request).await {
        Ok(response) => panic!("answered {} {}", response.status, response.reason),
        Err(error) => {
            assert!(!error.to_string().contains("Error"), "an internal type's text: {error}");
            error.code().to_owned()
        }
    }
}

#[tokio::test]
async fn an_answer_arrives_whole_with_its_reason_and_timing() {
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
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let port = server(move |mut stream| {
        let count = count.clone();
        async move {
            // One answer, then the next request finds the connection closed.
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
async fn requests_go_to_the_targets_origins_only() {
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
async fn names_are_checked_where_they_lead() {
    let port = canned(ok("x")).await;
    let own = Config { own_listeners: vec![format!("127.0.0.1:{port}").parse().unwrap()], ..Config::default() };
    let system = || Tls::system().unwrap();
    let by_name = poll_with(
        Egress::new(own.clone()),
        grant(&format!("http://localhost:{port}/"), system(), Secrets::default()),
        LIMITS,
    );
    assert_eq!(code(&by_name, Request::get("")).await, "denied", "its own listener by a name");
    let named =
        poll_with(Egress::new(own), grant(&format!("http://127.0.0.1:{port}/"), system(), Secrets::default()), LIMITS);
    assert!(named.session.fetch(Request::get("")).await.is_ok(), "the operator named the address itself");
    assert_eq!(code(&poll("http://no-such-host.invalid/"), Request::get("")).await, "dns_not_found");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{free}/")), Request::get("")).await, "connect_refused");
}

#[tokio::test]
async fn answers_are_capped() {
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
    let headers = canned(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(300))).await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{headers}/")), Request::get("")).await, "headers_too_large");
    let head = canned(format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(100_000))).await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{head}/")), Request::get("")).await, "headers_too_large");
    let zipped = canned("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx").await;
    assert_eq!(code(&poll(&format!("http://127.0.0.1:{zipped}/")), Request::get("")).await, "encoded_body");
    let half = canned(ok(&"x".repeat(700_000))).await;
    let poll = poll(&format!("http://127.0.0.1:{half}/"));
    for _ in 0..2 {
        assert!(poll.session.fetch(Request::get("")).await.is_ok());
    }
    assert_eq!(code(&poll, Request::get("")).await, "body_too_large", "2.1 MB are more than all bodies may have");
}

#[tokio::test]
async fn answers_that_come_at_once_share_one_cap() {
    let half = canned(ok(&"x".repeat(700_000))).await;
    let poll = poll(&format!("http://127.0.0.1:{half}/"));
    let all = futures_util::future::join_all((0..5).map(|n| poll.session.fetch(Request::get(format!("/{n}"))))).await;
    let (taken, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len()), (2, 3), "2 MiB hold two of them");
    assert!(refused.iter().all(|result| matches!(result, Err(Error::BodyTooLarge { .. }))));
}

#[tokio::test]
async fn a_budget_that_is_used_up_delays_and_then_refuses_and_never_hangs() {
    let half = canned(ok(&"x".repeat(700_000))).await;
    let config = Config { max_body_bytes_in_flight: 1 << 20, ..Config::default() };
    let url = format!("http://127.0.0.1:{half}/");
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let first = poll.session.fetch(Request::get("/1")).await.unwrap();
    assert_eq!(code(&poll, Request::get("/2")).await, "overloaded", "the first is still held");
    assert_eq!(poll.egress.gauges().waited_for_bytes.load(Ordering::Relaxed), 1);
    drop(first);
    assert!(poll.session.fetch(Request::get("/3")).await.is_ok());
}

#[tokio::test]
async fn what_is_no_answer_says_what_it_is() {
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
async fn silence_ends_at_the_deadline_and_says_where() {
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
async fn requests_and_captures_have_their_limits() {
    let port = canned(ok("x")).await;
    let url = format!("http://127.0.0.1:{port}/");
    let limits = Limits { requests: 1, ..LIMITS };
    let poll =
        poll_with(Egress::new(Config::default()), grant(&url, Tls::system().unwrap(), Secrets::default()), limits);
    let capture = |name: &str| Capture {
        name: name.to_owned(),
        source: CaptureSource::JsonPointer("/ticket".to_owned()),
        ttl: Duration::from_secs(60),
    };
    for captures in [vec![capture("to ken")], vec![capture("")], vec![capture("t"); 9]] {
        let session = Poll { session: fresh(&url), egress: poll.egress.clone() };
        assert_eq!(code(&session, Request { captures, ..Request::get("") }).await, "bad_request");
    }
    assert!(poll.session.fetch(Request::get("")).await.is_ok());
    assert_eq!(code(&poll, Request::get("")).await, "too_many_requests_in_poll");
    assert_eq!(poll.session.usage().requests, 1);
}

/// A session of a target without secrets.
fn fresh(url: &str) -> Session {
    poll(url).session
}

#[tokio::test]
async fn a_ticket_is_captured_masked_used_and_forgotten() {
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
        captures: vec![Capture {
            name: name.to_owned(),
            source: CaptureSource::JsonPointer("/data/ticket".to_owned()),
            ttl: Duration::from_secs(60),
        }],
        ..Request::get("/login")
    };
    let taken = session().fetch(capture("password")).await.unwrap_err();
    assert_eq!(taken.code(), "bad_request", "an operator's secret's name is taken");

    let login = session().fetch(capture("ticket")).await.unwrap();
    let seen = String::from_utf8(login.body).unwrap();
    assert_eq!(seen, r#"{"data":{"ticket":"**************","you":"unknown"}}"#);
    assert!(!format!("{:?}", login.headers).contains("abc"), "{:?}", login.headers);

    // A later poll of the same target.
    let later = session();
    assert!(later.has_secret("ticket") && later.has_secret("password") && !later.has_secret("other"));
    let with_ticket = || Request {
        headers: vec![("cookie".to_owned(), "Auth=${secret.ticket}".to_owned())],
        ..Request::get("/status")
    };
    let answer = later.fetch(with_ticket()).await.unwrap();
    let seen = String::from_utf8(answer.body).unwrap();
    assert!(seen.contains(r#""you":"known""#), "{seen}");
    assert_eq!(later.secrets_used(), ["ticket"]);

    later.forget_secret("ticket");
    assert_eq!(later.fetch(with_ticket()).await.unwrap_err().code(), "secret_unknown");
    let other = poll_with(Egress::new(Config::default()), target.clone(), LIMITS).session;
    assert!(!other.has_secret("ticket"), "another target's");
}

/// A server that sends back what it is sent, as JSON and in a header.
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
async fn what_a_plugin_sees_does_not_depend_on_the_value_of_a_secret() {
    let url = format!("http://127.0.0.1:{}/", echo().await);
    let seen = async |secret: &str| {
        let target = grant(&url, Tls::system().unwrap(), secrets(&[("token", secret)]));
        let captured = Arc::new(Captured::default());
        let session = poll_with(Egress::new(Config::default()), target, LIMITS).session.with_captured(captured);
        let mut seen = Vec::new();
        let mut ask = async |headers: Vec<(&str, String)>, captures: bool| {
            let capture = |name: &str, source| Capture { name: name.to_owned(), source, ttl: Duration::from_secs(60) };
            let pointer = CaptureSource::JsonPointer("/token".to_owned());
            let captures = if captures {
                vec![capture("guess", pointer), capture("other", CaptureSource::Header("x-echo".to_owned()))]
            } else {
                Vec::new()
            };
            let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let answer = session.fetch(Request { headers, captures, ..Request::get("") }).await;
            seen.push(answer.map(|answer| (answer.status, answer.reason, answer.headers, answer.body)));
        };
        // Captured guesses of the beginning, and the secret behind the same text: were both starred by value, a plugin
        // would learn one character after another.
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
async fn what_is_sent_has_limits() {
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
        method: Method::Post,
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
    assert_eq!(sent, 6, "one megabyte went before");
    assert_eq!(code(&poll, request(0, 0, 1 << 20)).await, "too_much_sent_in_poll");
    for refused in ["Range", "if-range", "Accept-Charset", "A-IM", "transfer_encoding", "Content_Length"] {
        let headers = vec![(refused.to_owned(), "bytes=0-3".to_owned())];
        assert_eq!(code(&poll, Request { headers, ..Request::get("") }).await, "bad_request", "{refused}");
    }
}

#[tokio::test]
async fn a_body_that_comes_where_there_is_none_poisons_no_other_answer() {
    let stray = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n");
    for (method, first) in [
        (Method::Head, stray("200 OK")),
        (Method::Get, stray("304 Not Modified")),
        (Method::Get, stray("204 No Content").replace("content-length: 5\r\n", "")),
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
                    // As late as can be: together with the answer to the next request on this connection.
                    let _ = head(&mut stream).await;
                    let _ = stream.write_all(b"HTTP/1.1 500 Poison\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        let poll = poll(&format!("http://127.0.0.1:{port}/"));
        poll.session.fetch(Request { method, ..Request::get("/odd") }).await.unwrap();
        let next = poll.session.fetch(Request::get("/other")).await.unwrap();
        assert_eq!((next.status, &next.body[..]), (200, &b"honest"[..]), "{method:?}");
    }
}

#[tokio::test]
async fn a_body_that_the_server_leaves_unread_answers_no_other_request() {
    let port = server(|mut stream| async move {
        let (mut unread, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let end = unread.windows(4).position(|window| window == b"\r\n\r\n");
            if end.is_none() || unread.starts_with(b"GET /smuggled") {
                // What was smuggled is answered as late as can be: when the next request is there.
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
    let post = Request { method: Method::Post, body: smuggled, ..Request::get("/first") };
    assert_eq!(&poll.session.fetch(post).await.unwrap().body[..], b"/first");
    assert_eq!(&poll.session.fetch(Request::get("/other")).await.unwrap().body[..], b"/other");
}

#[tokio::test]
async fn a_late_second_answer_reaches_no_other_kind() {
    let port = server(|mut stream| async move {
        let mut answer = ok("fine");
        while head(&mut stream).await.is_some() {
            let _ = stream.write_all(answer.as_bytes()).await;
            // Whatever is asked next on this connection.
            answer = ok("poison");
        }
    })
    .await;
    // One lane: its connections are shared by all its targets.
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
    assert_eq!(&read(&greedy, "/third").await[..], b"poison", "its own connection is kept");
}

#[tokio::test]
async fn informational_answers_without_end_are_given_up() {
    let port = server(|mut stream| async move {
        let _ = head(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n").await.is_ok() {}
    })
    .await;
    let poll = poll(&format!("http://127.0.0.1:{port}/"));
    assert_eq!(code(&poll, Request::get("")).await, "headers_too_large");
    assert!(!poll.session.was_starved());
}

#[tokio::test]
async fn one_kind_does_not_take_all_slots_of_a_host() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            if request.contains(" /hang") {
                std::future::pending::<()>().await;
            }
            let _ = stream.write_all(ok("fine").as_bytes()).await;
        }
    })
    .await;
    let egress = Egress::new(Config { max_requests_per_host: 4, ..Config::default() });
    let url = format!("http://127.0.0.1:{port}/");
    let poll = |kind: &str| {
        let target = grant(&url, Tls::system().unwrap(), Secrets::default());
        poll_with(egress.clone(), target, LIMITS).session.with_share(kind)
    };
    let (greedy, honest) = (poll("greedy"), poll("honest"));
    let hang =
        |number: usize| Request { timeout: Some(Duration::from_secs(5)), ..Request::get(format!("/hang{number}")) };
    let hanging = futures_util::future::join_all((0..50).map(|number| greedy.fetch(hang(number))));
    let one_more = async {
        let answer = honest.fetch(Request::get("/fine")).await;
        assert_eq!(answer.unwrap().status, 200);
    };
    tokio::select! {
        _ = hanging => panic!("the honest request waited for those that hang"),
        () = one_more => {}
    }
    // One that waits behind others of its kind has been starved, and says nothing of its target.
    let behind = poll("greedy");
    let mut taken = std::pin::pin!(futures_util::future::join_all((0..3).map(|number| greedy.fetch(hang(number)))));
    tokio::select! {
        biased;
        _ = &mut taken => panic!("they hang"),
        () = std::future::ready(()) => {}
    }
    let late = Request { timeout: Some(Duration::from_millis(200)), ..Request::get("/fine") };
    assert_eq!(behind.fetch(late).await.unwrap_err().code(), "timeout");
    assert!(behind.was_starved() && !greedy.was_starved());
}

#[tokio::test]
async fn a_poll_that_waits_for_its_own_requests_is_not_starved() {
    let port = server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let egress = Egress::new(Config { max_requests_per_host: 4, ..Config::default() });
    // Fewer than there are slots, more, and more than a poll that waits for others has under way.
    for count in [2, 5, 16] {
        let target = grant(&format!("http://127.0.0.1:{port}/"), Tls::system().unwrap(), Secrets::default());
        let poll = poll_with(egress.clone(), target, LIMITS).session.with_share("greedy");
        let hang = |number: usize| Request {
            timeout: Some(Duration::from_millis(200)),
            ..Request::get(format!("/{count}/{number}"))
        };
        for answer in futures_util::future::join_all((0..count).map(|number| poll.fetch(hang(number)))).await {
            assert_eq!(answer.unwrap_err().code(), "timeout");
        }
        assert!(!poll.was_starved(), "{count} requests, and the server answers none");
    }
}

#[tokio::test]
async fn large_bodies_that_never_end_keep_no_small_one_waiting() {
    let port = server(|mut stream| async move {
        while let Some(request) = head(&mut stream).await {
            if request.contains(" /large") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n").await;
                let _ = stream.write_all(&vec![b'x'; 899_999]).await;
                std::future::pending::<()>().await;
            }
            let _ = stream.write_all(ok("fine").as_bytes()).await;
        }
    })
    .await;
    let egress = Egress::new(Config { max_body_bytes_in_flight: 2 << 20, ..Config::default() });
    let url = format!("http://127.0.0.1:{port}/");
    let poll = || poll_with(egress.clone(), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS).session;
    let (greedy, honest) = ([poll(), poll(), poll()], poll());
    let hanging = futures_util::future::join_all(greedy.iter().enumerate().map(|(number, session)| {
        session.fetch(Request { timeout: Some(Duration::from_secs(9)), ..Request::get(format!("/large{number}")) })
    }));
    let small = async {
        for _ in 0..20 {
            assert_eq!(honest.fetch(Request::get("/fine")).await.unwrap().body, b"fine");
        }
    };
    tokio::select! {
        _ = hanging => panic!("small answers waited for large ones"),
        () = small => {}
    }
}

#[tokio::test]
async fn secrets_go_out_and_come_back_as_stars() {
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
    let request =
        |value: &str| Request { headers: vec![("authorization".to_owned(), value.to_owned())], ..Request::get("") };
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

/// Serves slowly: counts requests, and answers when told.
async fn held(count: Arc<AtomicUsize>, gate: Arc<tokio::sync::Semaphore>) -> u16 {
    server(move |mut stream| {
        let (count, gate) = (count.clone(), gate.clone());
        async move {
            while head(&mut stream).await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                let _ = stream.write_all(ok("shared hunter2hunter2").as_bytes()).await;
            }
        }
    })
    .await
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn identical_requests_are_sent_once_and_masked_for_each() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let egress = Egress::new(Config::default());
    let knows =
        poll_with(egress.clone(), grant(&url, Tls::system().unwrap(), secrets(&[("t", "hunter2hunter2")])), LIMITS);
    let ignorant = poll_with(egress.clone(), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let hasty = Request { timeout: Some(Duration::from_millis(20)), ..Request::get("") };
    let other = Request { headers: vec![("accept".to_owned(), "x".to_owned())], ..Request::get("") };
    // The server answers only when the hasty one has given up.
    let impatient = async {
        let result = knows.session.fetch(hasty).await;
        gate.add_permits(2);
        result
    };
    let (a, b, c, d) = tokio::join!(
        knows.session.fetch(Request::get("")),
        ignorant.session.fetch(Request::get("")),
        impatient,
        knows.session.fetch(other),
    );
    assert_eq!(a.unwrap().body, b"shared **************");
    assert_eq!(b.unwrap().body, b"shared hunter2hunter2");
    assert_eq!(c.unwrap_err().code(), "timeout", "each keeps its own deadline");
    assert!(d.is_ok(), "other headers, another request");
    assert_eq!(egress.gauges().coalesced.load(Ordering::Relaxed), 2);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_shared_request_ends_when_the_last_caller_leaves() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let config = Config { max_requests_per_host: 1, ..Config::default() };
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let brief = |path: &str| Request { timeout: Some(Duration::from_millis(30)), ..Request::get(path) };
    assert_eq!(code(&poll, brief("/a")).await, "timeout");
    // Its slot is free again, or this one would wait for ever.
    gate.add_permits(2);
    let again = Request { timeout: Some(Duration::from_secs(10)), ..Request::get("/b") };
    assert!(poll.session.fetch(again).await.is_ok());
}

#[tokio::test]
async fn request_slots_are_kept_for_each_host() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let config = Config { max_requests_per_host: 2, ..Config::default() };
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let requests = (0..6).map(|n| poll.session.fetch(Request::get(format!("/{n}"))));
    let watch = async {
        for done in 0..3 {
            until("two at a time", || count.load(Ordering::SeqCst) == 2 * (done + 1)).await;
            assert_eq!(count.load(Ordering::SeqCst), 2 * (done + 1));
            gate.add_permits(2);
        }
    };
    let (results, ()) = tokio::join!(futures_util::future::join_all(requests), watch);
    assert!(results.into_iter().all(|result| result.is_ok()));
    assert_eq!(poll.egress.gauges().waited_for_slot.load(Ordering::Relaxed), 4);
}

// --- TLS -----------------------------------------------------------------------------------------------------------

async fn tls_server(chain: Vec<u8>, key: Vec<u8>, protocols: &[&[u8]]) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain.into()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if http2 { serve_http2(stream).await } else { serve_http1(stream).await }
        }
    })
    .await
}

async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    while head(&mut stream).await.is_some() {
        let _ = stream.write_all(ok("one").as_bytes()).await;
    }
}

async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) {
    use hyper::service::service_fn;
    let answer = service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(hyper::Response::new(http_body_util::Full::new(bytes::Bytes::from("two"))))
    });
    let io = hyper_util::rt::TokioIo::new(stream);
    let _ = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .serve_connection(io, answer)
        .await;
}

fn self_signed(names: &[&str]) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

fn pinned(certificate: &[u8]) -> (Tls, Fingerprint) {
    let fingerprint = Fingerprint::parse(&tls::Certificate::of(certificate).fingerprint).unwrap();
    (Tls::pinned(BTreeSet::from([fingerprint])).unwrap(), fingerprint)
}

async fn fetch_over(port: u16, tls: Tls) -> Result<Response, Error> {
    let url = format!("https://localhost:{port}/");
    poll_with(Egress::new(Config::default()), grant(&url, tls, Secrets::default()), LIMITS)
        .session
        .fetch(Request::get(""))
        .await
}

#[tokio::test]
async fn certificates_are_judged_as_configured() {
    let right = self_signed(&["localhost"]);
    let der = right.cert.der().to_vec();
    let port = tls_server(der.clone(), right.signing_key.serialize_der(), &[]).await;
    let (pin, fingerprint) = pinned(&der);
    let response = fetch_over(port, pin).await.unwrap();
    let certificate = response.tls.unwrap();
    assert_eq!(certificate.fingerprint, fingerprint.to_hex());
    assert!(certificate.not_after > certificate.not_before && certificate.subject.contains("rcgen"), "{certificate:?}");
    assert!(fetch_over(port, Tls::insecure().unwrap()).await.is_ok());

    let file = std::env::temp_dir().join(format!("polliwog-egress-ca-{}.pem", std::process::id()));
    std::fs::write(&file, right.cert.pem()).unwrap();
    assert!(fetch_over(port, Tls::ca_file(&file).unwrap()).await.is_ok(), "signed by the CA in the file: itself");
    std::fs::write(&file, "nothing").unwrap();
    assert!(Tls::ca_file(&file).unwrap_err().to_string().contains("no certificate"));
    std::fs::remove_file(&file).unwrap();
    assert!(Tls::ca_file(&file).is_err());

    let wrong = Tls::pinned(BTreeSet::from([Fingerprint::parse(&"00".repeat(32)).unwrap()])).unwrap();
    let error = fetch_over(port, wrong).await.unwrap_err();
    assert_eq!(error.code(), "tls_fingerprint_mismatch");
    assert!(error.to_string().contains(&fingerprint.to_string()) && error.to_string().contains("00:00"), "{error}");
    let error = fetch_over(port, Tls::system().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "tls_untrusted");
    assert!(error.to_string().contains(&fingerprint.to_string()), "{error}");
}

/// As the authority that a PEM file holds.
fn in_ca_file(pem: &str, name: &str) -> Tls {
    let file = std::env::temp_dir().join(format!("polliwog-egress-{name}-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let tls = Tls::ca_file(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    tls
}

/// As `openssl req -x509` makes them: the server's own certificate is an authority's.
#[tokio::test]
async fn a_self_signed_authority_is_trusted_for_what_it_is() {
    let key = KeyPair::generate().unwrap();
    let authority = |name: &str, year| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&key).unwrap()
    };
    for (number, (name, year, expected)) in [
        ("localhost", 2090, Ok(())),
        ("elsewhere.example", 2090, Err("tls_name_mismatch")),
        ("localhost", 2020, Err("tls_expired")),
    ]
    .into_iter()
    .enumerate()
    {
        let own = authority(name, year);
        let port = tls_server(own.der().to_vec(), key.serialize_der(), &[]).await;
        let answered = fetch_over(port, in_ca_file(&own.pem(), &format!("own-{number}"))).await;
        assert_eq!(
            answered.map(drop).map_err(|error| error.code().to_owned()),
            expected.map_err(str::to_owned),
            "{name} {year}"
        );
        // Another one of the same key is not the one in the file.
        let another = in_ca_file(&authority("other.example", 2091).pem(), &format!("another-{number}"));
        assert!(fetch_over(port, another).await.is_err(), "{name} {year}");
    }
}

#[tokio::test]
async fn names_and_dates_are_judged_against_a_ca() {
    let other = self_signed(&["elsewhere.example"]);
    let port = tls_server(other.cert.der().to_vec(), other.signing_key.serialize_der(), &[]).await;
    let error = fetch_over(port, in_ca_file(&other.cert.pem(), "name")).await.unwrap_err();
    assert_eq!(error.code(), "tls_name_mismatch");

    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let old = params.self_signed(&key).unwrap();
    let port = tls_server(old.der().to_vec(), key.serialize_der(), &[]).await;
    assert_eq!(fetch_over(port, in_ca_file(&old.pem(), "date")).await.unwrap_err().code(), "tls_expired");
    assert!(fetch_over(port, pinned(old.der()).0).await.is_ok(), "a pin replaces the dates as well");
}

#[tokio::test]
async fn a_pin_takes_certificates_without_names() {
    let key = KeyPair::generate().unwrap();
    let bare = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let port = tls_server(bare.der().to_vec(), key.serialize_der(), &[]).await;
    assert!(fetch_over(port, pinned(bare.der()).0).await.is_ok());
}

#[tokio::test]
async fn http2_is_spoken_where_configured_and_offered() {
    let key = self_signed(&["localhost"]);
    let port = tls_server(key.cert.der().to_vec(), key.signing_key.serialize_der(), &[b"h2", b"http/1.1"]).await;
    let tls = Tls::insecure().unwrap();
    assert_eq!(fetch_over(port, tls.clone()).await.unwrap().body, b"one");
    assert_eq!(fetch_over(port, tls.with_http2()).await.unwrap().body, b"two");
}

#[tokio::test]
async fn a_port_that_speaks_no_tls_says_so() {
    let port = server(|mut stream| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let error = fetch_over(port, Tls::insecure().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "tls_failed", "{error}");
    let values = BTreeMap::from([("t".to_owned(), SecretString::from("hunter2hunter2"))]);
    assert!(Secrets::new(values).is_ok());
}
