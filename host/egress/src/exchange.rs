//! Sends one request and reads its whole answer, unmasked.

use crate::budget::{Bytes as Budget, Gauges, Held, Slots, Sockets};
use crate::connect::{self, Destination, NotConnected, Phases, Resolve, connect, without_os_number};
use crate::http1::{self, BEFORE_HEAD, HEADER_BYTES, HEADER_COUNT};
use crate::message::only_reads;
use crate::peer::Peer;
use crate::pool::{Connection, Key, Pool, Transport};
use crate::reading::Visible;
use crate::{Error, Method, Timing};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

/// Budget share in bytes for the first piece of a body, whatever its content-length. Each further share doubles the
/// total.
const FIRST_HOLD: usize = 64 * 1024;
/// Maximum wait of a partly read body for more of the budget. The wait is short because the body already holds a share.
const GROWING: Duration = Duration::from_secs(2);
/// Interval of the keep-alive pings of an HTTP/2 connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for the answer to a keep-alive ping. Without an answer the connection is closed.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A request with its secrets inserted. It is never printed.
#[derive(Clone)]
pub(crate) struct Plan {
    pub destination: Destination,
    pub method: Method,
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether other callers may share the answer.
    pub shared: bool,
    /// The kind of the target. Request slots and connections are divided by kind.
    pub share: Arc<str>,
    /// The bytes that the poll reads at a time, and their limit.
    pub reading: Arc<Reading>,
    /// The part of the answer to read.
    pub visible: Arc<Visible>,
}

/// The body bytes that one poll is reading now, and their limit.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub limit: usize,
    pub bytes: AtomicUsize,
    /// The bytes that were searched for secrets to find the end of an answer.
    pub compared: AtomicUsize,
}

/// Counts the bytes of one body in [`Reading`]. They no longer count after the drop.
struct Counted<'a> {
    reading: &'a Reading,
    bytes: usize,
}

impl Counted<'_> {
    /// Counts one more piece. Returns `false` if the poll now exceeds its limit.
    fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.reading.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.reading.limit
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.reading.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Plan {
    /// Returns the approximate size of the request on the wire in bytes.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        self.path_and_query.len() + headers + self.body.len()
    }
}

/// A whole unmasked answer.
#[derive(Debug)]
pub(crate) struct Raw {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body was read to its end.
    pub is_complete: bool,
    pub timing: Timing,
    /// The budget share of the body. It is released on drop.
    pub held: Option<Held>,
}

impl Raw {
    /// Returns a copy for another caller, with its own budget share.
    pub(crate) fn copy(&self, held: Held) -> Self {
        Self {
            status: self.status,
            reason: self.reason.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            is_complete: self.is_complete,
            timing: self.timing,
            held: Some(held),
        }
    }
}

/// State that the whole process shares.
#[derive(Debug)]
pub(crate) struct Common {
    pub own: Vec<SocketAddr>,
    pub resolver: Arc<dyn Resolve>,
    pub user_agent: HeaderValue,
    pub slots: Slots,
    pub bytes: Budget,
    pub sockets: Sockets,
    pub gauges: Gauges,
}

/// The progress of a request, for callers that time out, and the limit of its body.
#[derive(Debug)]
pub(crate) struct Progress {
    phase: Mutex<&'static str>,
    /// Whether the request waits for a resource of this host: a slot, a socket or a budget share.
    held_up: AtomicBool,
    /// The largest body cap of all waiting callers, in bytes.
    pub cap: AtomicUsize,
    /// The server of the latest TLS handshake.
    peer: Mutex<Option<Arc<Peer>>>,
}

impl Progress {
    pub(crate) fn new(cap: usize) -> Self {
        let held_up = AtomicBool::new(true);
        Self {
            phase: Mutex::new("waiting for a free slot"),
            held_up,
            cap: AtomicUsize::new(cap),
            peer: Mutex::default(),
        }
    }

    /// Returns whether the request waits for a resource of this host and not for the target.
    pub(crate) fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    async fn held_up<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.held_up.store(true, Ordering::Relaxed);
        let result = waiting.await;
        self.held_up.store(false, Ordering::Relaxed);
        result
    }

    pub(crate) fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server of the TLS session, also of one whose certificate was refused.
    pub(crate) fn peer(&self) -> Option<Arc<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_peer(&self, peer: Option<Arc<Peer>>) {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    fn enter(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

/// The parts that all attempts of one request share.
#[derive(Clone, Copy)]
struct Context<'a> {
    common: &'a Common,
    pool: &'a Pool,
    key: &'a Key,
    plan: &'a Plan,
    progress: &'a Progress,
}

/// A connection ready for a request.
struct Ready {
    connection: Connection,
    /// The durations of connecting. They are zero for a reused connection.
    phases: Phases,
    /// When the request left the queue for slots.
    start: Instant,
}

/// Sends a request on an idle or a new connection and reads its answer.
pub(crate) async fn exchange(common: &Common, pool: &Pool, plan: &Plan, progress: &Progress) -> Result<Raw, Error> {
    let slot = common.slots.acquire(&plan.destination.origin.host, &plan.share, &common.gauges);
    let _slot = progress.held_up(slot).await;
    let start = Instant::now();
    let key = Key::of(&plan.destination, &plan.share);
    let context = Context { common, pool, key: &key, plan, progress };
    let _in_flight = pool.enter(&key);
    while let Some(connection) = pool.take(&key) {
        match attempt(context, Ready { connection, phases: Phases::default(), start }).await {
            // The server may have closed the idle connection when it was taken. The method is safe, so retry.
            Err(Error::Closed(_)) if only_reads(&plan.method) => {}
            result => return result,
        }
    }
    let socket = match common.sockets.try_take() {
        Some(socket) => socket,
        None => {
            pool.make_room();
            progress.held_up(common.sockets.take()).await
        }
    };
    let connected = connect(&plan.destination, &common.own, &*common.resolver, |phase| progress.enter(phase)).await;
    let (stream, phases) = connected.map_err(|NotConnected { error, refused }| {
        progress.set_peer(refused);
        error
    })?;
    let (transport, peer) = open(stream, plan).await?;
    let connection = Connection::new(transport, authority(plan)?, peer, socket);
    common.gauges.connections.fetch_add(1, Ordering::Relaxed);
    attempt(context, Ready { connection, phases, start }).await
}

/// Sends a request on a connection and reads the answer. The connection returns to the pool if it can be reused.
async fn attempt(context: Context<'_>, ready: Ready) -> Result<Raw, Error> {
    let Ready { connection, phases, start } = ready;
    context.progress.set_peer(connection.peer.clone());
    let authority = &connection.authority;
    let (raw, transport) = match connection.transport {
        Transport::Http1(stream) => {
            let (mut sender, mut driver) = stream.begin().await.map_err(|error| translate(&error, context.plan))?;
            let left = driver.left();
            let request = Sending { sender: Sender::Http1(&mut sender, &left), authority, phases, start };
            let raw = driver.run(answer(context, request)).await?;
            (raw, driver.finish(sender).map(Transport::Http1))
        }
        Transport::Http2(mut sender) => {
            let request = Sending { sender: Sender::Http2(&mut sender), authority, phases, start };
            (answer(context, request).await?, Some(Transport::Http2(sender)))
        }
    };
    // If HTTP does not allow a body, a server may still send one late. It would be read as the beginning of the next
    // answer. A server that ignores the body of a request parses that body as the next request and answers it too.
    let Plan { method, body, .. } = context.plan;
    let may_stray = *method == Method::HEAD || matches!(raw.status, 204 | 304) || !body.is_empty();
    match transport {
        Some(transport) if !may_stray || matches!(transport, Transport::Http2(_)) => {
            context.pool.put(context.key, Connection { transport, ..connection });
        }
        _ => {}
    }
    Ok(raw)
}

/// The sender of a connection.
enum Sender<'a> {
    /// The second value is the number of bytes that may be read before the head of the answer is complete.
    Http1(&'a mut http1::Sender, &'a AtomicUsize),
    Http2(&'a mut http2::SendRequest<Full<Bytes>>),
}

/// A request on a connection.
struct Sending<'a> {
    sender: Sender<'a>,
    authority: &'a HeaderValue,
    phases: Phases,
    start: Instant,
}

/// Sends a request and reads the whole answer.
async fn answer(context: Context<'_>, request: Sending<'_>) -> Result<Raw, Error> {
    let Context { common, plan, progress, .. } = context;
    let Sending { mut sender, authority, phases, start } = request;
    progress.enter("waiting for the answer");
    let response = send(&mut sender, plan, authority, &common.user_agent).await?;
    if let Sender::Http1(_, left) = sender {
        left.store(usize::MAX, Ordering::Relaxed);
    }
    let first_byte = start.elapsed();
    let encoding = response.headers().get(CONTENT_ENCODING).filter(|value| *value != "identity");
    // An answer without a body (to HEAD, or with status 304) may state the encoding that its body would have.
    if let Some(encoding) = encoding.filter(|_| !plan.visible.is_nothing() && !response.body().is_end_stream()) {
        return Err(Error::EncodedBody(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    progress.enter("reading the answer");
    let (parts, incoming) = response.into_parts();
    let Read { body, is_complete, held } = read(common, incoming, progress, plan).await?;
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    Ok(Raw {
        status: parts.status.as_u16(),
        reason: reason(&parts),
        headers: headers(&parts.headers),
        body,
        is_complete,
        timing: Timing {
            dns_ms: millis(phases.dns),
            connect_ms: millis(phases.connect),
            tls_ms: millis(phases.tls),
            first_byte_ms: millis(first_byte),
            total_ms: millis(start.elapsed()),
        },
        held,
    })
}

/// Prepares a new connection for requests.
async fn open(stream: connect::Stream, plan: &Plan) -> Result<(Transport, Option<Arc<Peer>>), Error> {
    Ok(match stream {
        connect::Stream::Plain(stream) => (Transport::Http1(http1::Stream::plain(stream)), None),
        connect::Stream::Tls { stream, peer, http2: false } => {
            (Transport::Http1(http1::Stream::tls(stream)), Some(peer))
        }
        connect::Stream::Tls { stream, peer, http2: true } => {
            (Transport::Http2(open_http2(stream, plan).await?), Some(peer))
        }
    })
}

/// Returns the `Host` header of the origin of a request.
fn authority(plan: &Plan) -> Result<HeaderValue, Error> {
    HeaderValue::try_from(plan.destination.origin.authority()).map_err(|error| Error::BadRequest(error.to_string()))
}

/// Starts HTTP/2 on a stream. The task of the connection ends with the connection, or when the last sender is dropped.
async fn open_http2(stream: Box<TlsStream<TcpStream>>, plan: &Plan) -> Result<http2::SendRequest<Full<Bytes>>, Error> {
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .max_header_list_size(HEADER_BYTES as u32)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| translate(&error, plan))?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn send(
    sender: &mut Sender<'_>,
    plan: &Plan,
    authority: &HeaderValue,
    user_agent: &HeaderValue,
) -> Result<hyper::Response<Incoming>, Error> {
    let host = plan.headers.get(HOST).unwrap_or(authority);
    let mut request = hyper::Request::new(Full::new(plan.body.clone()));
    *request.method_mut() = plan.method.clone();
    *request.headers_mut() = plan.headers.clone();
    request.headers_mut().entry(USER_AGENT).or_insert_with(|| user_agent.clone());
    // RFC 9110, section 8.6. Servers refuse such a request without it (status 411).
    if plan.body.is_empty() && matches!(plan.method, Method::POST | Method::PUT | Method::PATCH) {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let bad = |why: String| Error::BadRequest(why);
    let result = match sender {
        Sender::Http1(sender, _) => {
            *request.uri_mut() =
                plan.path_and_query.parse().map_err(|error: hyper::http::uri::InvalidUri| bad(error.to_string()))?;
            request.headers_mut().insert(HOST, host.clone());
            sender.send_request(request).await
        }
        Sender::Http2(sender) => {
            // In HTTP/2 the host is part of the URI.
            request.headers_mut().remove(HOST);
            let uri = Uri::builder().scheme("https").authority(host.as_bytes()).path_and_query(&plan.path_and_query);
            *request.uri_mut() = uri.build().map_err(|error| bad(error.to_string()))?;
            *request.version_mut() = Version::HTTP_2;
            match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            }
        }
    };
    result.map_err(|error| translate(&error, plan))
}

/// The part of a body that was read.
struct Read {
    body: Vec<u8>,
    is_complete: bool,
    held: Option<Held>,
}

/// Reads a body within the cap and the budget. If the body is too long, or the rest is not asked for, the rest is not
/// read and the connection is closed.
async fn read(common: &Common, mut incoming: Incoming, progress: &Progress, plan: &Plan) -> Result<Read, Error> {
    let visible = &*plan.visible;
    if visible.is_nothing() {
        return Ok(Read { body: Vec::new(), is_complete: incoming.is_end_stream(), held: None });
    }
    let unseen = if visible.is_whole() { 0 } else { visible.margin() };
    let limit = || progress.cap.load(Ordering::Relaxed).saturating_add(unseen);
    let mut counted = Counted { reading: &plan.reading, bytes: 0 };
    let mut searched = 0;
    let promised = incoming.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    if visible.is_whole() && promised.is_some_and(|length| length > limit()) {
        return Err(Error::BodyTooLarge { limit: limit() });
    }
    let expected = promised.unwrap_or(FIRST_HOLD).min(FIRST_HOLD).min(limit());
    let mut held = progress.held_up(common.bytes.hold(expected, &common.gauges)).await;
    let mut body = Vec::with_capacity(expected);
    let mut is_complete = true;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| translate(&error, plan))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = body.len() + data.len();
        if (visible.is_whole() && length > limit()) || !counted.add(data.len()) {
            return Err(Error::BodyTooLarge { limit: limit() });
        }
        while length > held.bytes() {
            let more = held.bytes().max(length - held.bytes()).min(limit().max(length));
            let grown = timeout(GROWING, common.bytes.grow(&mut held, more, &common.gauges)).await;
            grown.map_err(|_| Error::Overloaded { limit: common.bytes.limit() })?;
        }
        body.extend_from_slice(&data);
        if visible.suffices(&body, &mut searched, &plan.reading.compared).await? {
            is_complete = incoming.is_end_stream();
            break;
        }
        if length > limit() {
            return Err(Error::BodyTooLarge { limit: limit() });
        }
    }
    held.shrink(body.len());
    Ok(Read { body, is_complete, held: Some(held) })
}

/// Returns the reason phrase. hyper omits it if it is the canonical phrase of the status.
fn reason(parts: &hyper::http::response::Parts) -> String {
    match parts.extensions.get::<ReasonPhrase>() {
        Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
        None => parts.status.canonical_reason().unwrap_or_default().to_owned(),
    }
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut all = Vec::with_capacity(headers.len());
    all.extend(headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))));
    all
}

/// Converts an error of hyper. Every end of the connection before the end of the answer is `closed`.
fn translate(error: &hyper::Error, plan: &Plan) -> Error {
    let name = plan.destination.origin.authority();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::FileTooLarge => Error::HeadersTooLarge { limit: BEFORE_HEAD, count: HEADER_COUNT },
                std::io::ErrorKind::ConnectionReset
                | std::io::ErrorKind::BrokenPipe
                | std::io::ErrorKind::UnexpectedEof
                | std::io::ErrorKind::ConnectionAborted => Error::Closed(name),
                _ => Error::Protocol { name, why: without_os_number(io) },
            };
        }
        source = cause.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() || error.is_body_write_aborted() {
        return Error::Closed(name);
    }
    // hyper has no method to detect this error. Its text is "message head is too large".
    if error.is_parse() && error.to_string().contains("too large") {
        return Error::HeadersTooLarge { limit: HEADER_BYTES, count: HEADER_COUNT };
    }
    Error::Protocol { name, why: error.to_string() }
}
