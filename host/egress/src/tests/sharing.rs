//! Resources that polls share: request slots, body bytes and coalesced requests.

use super::*;

#[tokio::test]
async fn one_kind_cannot_occupy_all_slots_of_a_host() {
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
        _ = hanging => panic!("the honest request waited for the hanging ones"),
        () = one_more => {}
    }
    // A poll that waits for other polls of its kind is starved.
    let behind = poll("greedy");
    let mut taken = std::pin::pin!(futures_util::future::join_all((0..3).map(|number| greedy.fetch(hang(number)))));
    tokio::select! {
        biased;
        _ = &mut taken => panic!("the hanging requests ended"),
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
    // Fewer requests than slots, more requests than slots, and more than `MAX_OWN_WAITING`.
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
        assert!(!poll.was_starved(), "the server answers none of {count} requests");
    }
}

#[tokio::test]
async fn endless_large_bodies_do_not_block_small_ones() {
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

/// Starts a server that counts requests and waits for a permit of `gate` before each answer. Returns its port.
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

/// Waits until a condition holds, at most 10 s.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn identical_requests_are_sent_once_and_masked_for_each_caller() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let egress = Egress::new(Config::default());
    let knows =
        poll_with(egress.clone(), grant(&url, Tls::system().unwrap(), secrets(&[("t", "hunter2hunter2")])), LIMITS);
    let ignorant = poll_with(egress.clone(), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let hasty = Request { timeout: Some(Duration::from_millis(20)), ..Request::get("") };
    let other = Request { headers: vec![("accept".to_owned(), "x".to_owned())], ..Request::get("") };
    // The server answers after the impatient caller has timed out.
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
    assert_eq!(c.unwrap_err().code(), "timeout", "each caller keeps its own deadline");
    assert!(d.is_ok(), "a request with different headers is a different request");
    assert_eq!(egress.gauges().coalesced.load(Ordering::Relaxed), 2);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn requests_that_read_no_body_are_sent_once() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let poll = poll(&url);
    let reading = |reading: BodyReading| poll.session.fetch(Request { reading, ..Request::get("") });
    let open = async {
        until("all are on their way", || count.load(Ordering::SeqCst) == 4).await;
        gate.add_permits(4);
    };
    let (a, b, whole, first, again, ()) = tokio::join!(
        reading(BodyReading::None),
        reading(BodyReading::None),
        reading(BodyReading::Whole),
        reading(BodyReading::First(6)),
        reading(BodyReading::First(6)),
        open,
    );
    for (answer, expected) in [(a, ""), (b, ""), (whole, "shared hunter2hunter2"), (first, "shared"), (again, "shared")]
    {
        let answer = answer.unwrap();
        assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (200, expected));
    }
    assert_eq!(poll.egress.gauges().coalesced.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_shared_request_ends_when_the_last_caller_leaves() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let config = Config { max_requests_per_host: 1, ..Config::default() };
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let brief = |path: &str| Request { timeout: Some(Duration::from_millis(30)), ..Request::get(path) };
    assert_eq!(code(&poll, brief("/a")).await, "timeout");
    // This request gets an answer only if the slot is free again.
    gate.add_permits(2);
    let again = Request { timeout: Some(Duration::from_secs(10)), ..Request::get("/b") };
    assert!(poll.session.fetch(again).await.is_ok());
}

#[tokio::test]
async fn concurrent_requests_per_host_are_limited() {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let url = format!("http://127.0.0.1:{}/", held(count.clone(), gate.clone()).await);
    let config = Config { max_requests_per_host: 2, ..Config::default() };
    let poll = poll_with(Egress::new(config), grant(&url, Tls::system().unwrap(), Secrets::default()), LIMITS);
    let requests = (0..6).map(|n| poll.session.fetch(Request::get(format!("/{n}"))));
    let watch = async {
        for done in 0..3 {
            until("two requests at a time", || count.load(Ordering::SeqCst) == 2 * (done + 1)).await;
            assert_eq!(count.load(Ordering::SeqCst), 2 * (done + 1));
            gate.add_permits(2);
        }
    };
    let (results, ()) = tokio::join!(futures_util::future::join_all(requests), watch);
    assert!(results.into_iter().all(|result| result.is_ok()));
    assert_eq!(poll.egress.gauges().waited_for_slot.load(Ordering::Relaxed), 4);
}
