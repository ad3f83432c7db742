//! Accepts connections, within limits.
//!
//! A client may try to exhaust file descriptors, memory or time. So the number of connections, the size of a request's
//! head and the time to send it are limited, and a response that the client does not read is abandoned. A request's
//! `Host` header must name this host, against DNS rebinding: a web page whose name resolves to this host must not read
//! from it.

use crate::error::ApiError;
use crate::gauges::Gauges;
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, http};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longest time for a client to send a request's head, also for the next request of a kept-alive connection.
const HEAD: Duration = Duration::from_secs(10);
/// Longest time for a handler to respond; for a stream, to begin.
const ANSWER: Duration = Duration::from_secs(60);
/// Most bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;
/// Most headers of a request.
const HEADERS: usize = 100;
/// A connection is closed when the client reads nothing of a response for this long.
const UNREAD: Duration = Duration::from_secs(30);
/// Domains for local use: names in them resolve to machines of the site, and cannot be registered publicly.
const LOCAL_DOMAINS: [&str; 7] = ["localhost", "local", "lan", "internal", "home.arpa", "svc", "test"];

/// The parts that both listeners share.
#[derive(Clone)]
pub(crate) struct Gate {
    /// Configured names of this host, besides its addresses and local names.
    pub hosts: Arc<[String]>,
    pub gauges: Arc<Gauges>,
    pub ending: CancellationToken,
}

/// Serves until the host ends.
pub(crate) async fn serve((listener, connections): (TcpListener, usize), routes: Router, gate: Gate) {
    let routes = routes.layer(from_fn_with_state(gate.clone(), admit));
    // A connection is silent until its first request. When all slots are taken, the oldest silent connection is closed.
    let slots = Arc::new(Semaphore::new(connections));
    let mut silent: VecDeque<(Arc<AtomicBool>, AbortHandle)> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = gate.ending.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                silent.retain(|(heard, task)| !heard.load(Ordering::Relaxed) && !task.is_finished());
                if slots.available_permits() == 0 {
                    let Some((_, oldest)) = silent.pop_front() else { continue };
                    oldest.abort();
                    gate.gauges.timed_out.fetch_add(1, Ordering::Relaxed);
                }
                let (slots, heard) = (slots.clone(), Arc::new(AtomicBool::new(false)));
                let marks = heard.clone();
                let mark = move |request: Request, next: Next| {
                    marks.store(true, Ordering::Relaxed);
                    next.run(request)
                };
                let connection = connection(stream, peer, routes.clone().layer(from_fn(mark)), gate.clone());
                let task = tokio::spawn(async move {
                    // A slot is free, or becomes free as soon as the aborted connection is dropped.
                    let _slot = slots.acquire_owned().await;
                    connection.await;
                });
                silent.push_back((heard, task.abort_handle()));
            }
            Err(error) => {
                // Most likely no descriptor is free: wait for one.
                tracing::warn!("cannot accept a connection: {error}");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, routes: Router, gate: Gate) {
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(WriteTimeout { stream, unread: None });
    let service = TowerToHyperService::new(routes.layer(Extension(ConnectInfo(peer))));
    let _open = Open::new(&gate.gauges);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(io, service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = gate.ending.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if ended.is_err_and(|error| error.is_timeout() || timed_out(&error)) {
        gate.gauges.timed_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an open connection until it is dropped.
struct Open<'a>(&'a Gauges);

impl<'a> Open<'a> {
    fn new(gauges: &'a Gauges) -> Self {
        gauges.connections.fetch_add(1, Ordering::Relaxed);
        Self(gauges)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn timed_out(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

/// Refuses a request that names another host, and limits the handler's time to [`ANSWER`].
async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if let Some(foreign) = foreign_host(request.headers(), &gate.hosts) {
        gate.gauges.foreign_hosts.fetch_add(1, Ordering::Relaxed);
        let message = format!("unknown host name {foreign:?}: if it is a name of this host, add it to [server] hosts");
        return ApiError::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", message).into_response();
    }
    match timeout(ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            gate.gauges.timed_out.fetch_add(1, Ordering::Relaxed);
            let message = format!("the request or its answer took longer than {ANSWER:?}");
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
        }
    }
}

/// Returns the `Host` header's value if it does not name this host; `""` if the header is missing.
fn foreign_host<'a>(headers: &'a HeaderMap, hosts: &[String]) -> Option<&'a str> {
    let Some(value) = headers.get(header::HOST) else { return Some("") };
    let Ok(value) = value.to_str() else { return Some("?") };
    let Ok(authority) = value.parse::<http::uri::Authority>() else { return Some(value) };
    let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let is_local = |domain: &&str| host == **domain || host.ends_with(&format!(".{domain}"));
    // A name without a dot is resolved in the site's own domain.
    let ours = host.parse::<IpAddr>().is_ok()
        || !host.contains('.')
        || LOCAL_DOMAINS.iter().any(is_local)
        || hosts.iter().any(|name| name.eq_ignore_ascii_case(&host));
    if ours { None } else { Some(value) }
}

/// A stream whose writes fail with a timeout when the client reads nothing for [`UNREAD`].
struct WriteTimeout {
    stream: TcpStream,
    unread: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    /// Returns a write's result; fails if writes have been pending for too long.
    fn limit_wait<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + UNREAD)));
        ready!(unread.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit_wait(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.limit_wait(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limit_wait(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publicly_registrable_names_that_are_not_configured_are_foreign() {
        let hosts = ["polliwog.example.com".to_owned()];
        for (host, foreign) in [
            ("127.0.0.1:7411", false),
            ("[::1]:7411", false),
            ("localhost", false),
            ("nas:7411", false),
            ("nas.lan", false),
            ("polliwog.monitoring.svc:9091", false),
            ("Polliwog.Example.com:443", false),
            ("polliwog.example.com.", false),
            ("example.com", true),
            ("evil.polliwog.example.com", true),
            ("127.0.0.1.evil.example", true),
            ("notlocal.evil", true),
            ("evil local", true),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            assert_eq!(foreign_host(&headers, &hosts).is_some(), foreign, "{host}");
        }
        assert!(foreign_host(&HeaderMap::new(), &hosts).is_some(), "a request without a Host header is refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_not_read_times_out() {
        use tokio::io::AsyncWriteExt;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut stream = WriteTimeout { stream: accepted.unwrap().0, unread: None };
        let begun = Instant::now();
        let written = stream.write_all(&vec![0; 64 << 20]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= UNREAD && begun.elapsed() < UNREAD * 2);
        drop(client);
    }

    #[tokio::test]
    async fn silent_connections_are_closed_in_favour_of_new_requests() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let routes = Router::new().route("/", axum::routing::get(async || "fine"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gauges: Arc<Gauges> = Arc::default();
        let gate = Gate { hosts: Arc::default(), gauges: gauges.clone(), ending: CancellationToken::new() };
        tokio::spawn(serve((listener, 4), routes, gate));
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("fine"), "{answer}");
        assert!(gauges.timed_out.load(Ordering::Relaxed) >= 16);
    }
}
