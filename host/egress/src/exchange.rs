//! One request on the wire and its whole answer, unmasked.

use crate::budget::{Bytes as Budget, Gauges, Held, Slots, Sockets};
use crate::connect::{Destination, Phases, Resolve, Stream, connect, without_os_number};
use crate::patience::Patient;
use crate::pool::{Connection, Key, Pool, Sender};
use crate::tls::Certificate;
use crate::{Error, Method, Timing};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_ENCODING, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

/// Header bytes and headers of one answer.
const HEADER_BYTES: usize = 64 * 1024;
const HEADER_COUNT: usize = 256;
/// Bytes before the head of an answer is complete: the head itself, and informational answers (1xx) before it, of which a
/// server may send any number.
/// What the library reads ahead of a body, some 400 kB, counts as well.
const BEFORE_HEAD: usize = 1 << 20;
/// The first piece of the budget for a body, whatever length it promises; each further one doubles what is held.
const FIRST_HOLD: usize = 64 * 1024;
/// A body that is being read waits no longer than this for more of the budget, because it holds some while it waits.
const GROWING: Duration = Duration::from_secs(2);
/// An HTTP/2 connection proves this often that it is alive, and is given up when it cannot within the second.
const HTTP2_PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// A request with its secrets filled in. Never printed.
pub(crate) struct Plan {
    pub destination: Destination,
    pub method: Method,
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether others that ask for the same may have the same answer.
    pub shared: bool,
    /// Who asks, as far as slots are shared out.
    pub share: Arc<str>,
    /// What the poll that asks may read at a time.
    pub reading: Arc<Reading>,
}

/// Bytes of bodies that one poll reads just now, and how many it may.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub limit: usize,
    pub bytes: AtomicUsize,
}

/// What of one body counts as being read; no more once it is dropped.
struct Counted<'a> {
    reading: &'a Reading,
    bytes: usize,
}

impl Counted<'_> {
    /// Counts one more piece; false when the poll reads too much at a time.
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
    /// Bytes that the request takes on the wire, near enough.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        self.path_and_query.len() + headers + self.body.len()
    }
}

/// A whole answer as it came.
#[derive(Debug)]
pub(crate) struct Raw {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub timing: Timing,
    pub tls: Option<Arc<Certificate>>,
    /// The body's share of the budget, given back with the answer.
    pub held: Option<Held>,
}

impl Raw {
    /// A copy for one more caller, with a share of the budget of its own.
    pub(crate) fn copy(&self, held: Held) -> Self {
        Self {
            status: self.status,
            reason: self.reason.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            timing: self.timing,
            tls: self.tls.clone(),
            held: Some(held),
        }
    }
}

/// What the whole process shares.
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

/// How far a request has come, for whoever gives up on it; and how much of its body may be read.
#[derive(Debug)]
pub(crate) struct Progress {
    phase: Mutex<&'static str>,
    /// Whether it waits for something of ours: a slot, a socket, a part of the budget.
    held_up: AtomicBool,
    /// The largest cap of anybody who waits for the answer.
    pub cap: AtomicUsize,
}

impl Progress {
    pub(crate) fn new(cap: usize) -> Self {
        let held_up = AtomicBool::new(true);
        Self { phase: Mutex::new("waiting for its turn"), held_up, cap: AtomicUsize::new(cap) }
    }

    /// Whether the request waits for this host, and not for the target.
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

    fn enter(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

pub(crate) async fn exchange(common: &Common, pool: &Pool, plan: &Plan, progress: &Progress) -> Result<Raw, Error> {
    let slot = common.slots.acquire(&plan.destination.origin.host, &plan.share, &common.gauges);
    let _slot = progress.held_up(slot).await;
    let start = Instant::now();
    let key = Key::of(&plan.destination, &plan.share);
    while let Some(connection) = pool.take(&key) {
        match attempt(common, pool, plan, progress, (connection, Phases::default(), start)).await {
            // The server closed an idle connection just when it was taken: nothing was answered, so ask again.
            Err(Error::Closed(_)) if plan.method.is_safe() => {}
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
    let (stream, phases) =
        connect(&plan.destination, (&common.own, &*common.resolver), |phase| progress.enter(phase)).await?;
    let connection = open(stream, plan, socket).await?;
    common.gauges.connections.fetch_add(1, Ordering::Relaxed);
    attempt(common, pool, plan, progress, (connection, phases, start)).await
}

async fn attempt(
    common: &Common,
    pool: &Pool,
    plan: &Plan,
    progress: &Progress,
    (mut connection, phases, start): (Connection, Phases, Instant),
) -> Result<Raw, Error> {
    progress.enter("waiting for the answer");
    if let Some(patience) = &connection.patience {
        patience.store(BEFORE_HEAD, Ordering::Relaxed);
    }
    let response = send(&mut connection, plan, &common.user_agent).await?;
    if let Some(patience) = &connection.patience {
        patience.store(usize::MAX, Ordering::Relaxed);
    }
    let first_byte = start.elapsed();
    let encoding = response.headers().get(CONTENT_ENCODING).filter(|value| *value != "identity");
    // An answer without a body (to HEAD, or 304) may well say how its body would be encoded.
    if let Some(encoding) = encoding.filter(|_| !response.body().is_end_stream()) {
        return Err(Error::EncodedBody(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    progress.enter("reading the answer");
    let (parts, incoming) = response.into_parts();
    let (body, held) = read(common, incoming, progress, plan).await?;
    // Where there is no body by the rules, a server may send one all the same, and late: it would be taken for the beginning
    // of the next answer. A server that ignores a request's body parses it as the next request and answers that too.
    let may_stray = plan.method == Method::Head || matches!(parts.status.as_u16(), 204 | 304) || !plan.body.is_empty();
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let raw = Raw {
        status: parts.status.as_u16(),
        reason: reason(&parts),
        headers: headers(&parts.headers),
        body,
        timing: Timing {
            dns_ms: millis(phases.dns),
            connect_ms: millis(phases.connect),
            tls_ms: millis(phases.tls),
            first_byte_ms: millis(first_byte),
            total_ms: millis(start.elapsed()),
        },
        tls: connection.certificate.clone(),
        held: Some(held),
    };
    if !may_stray || matches!(connection.sender, Sender::Http2(_)) {
        pool.put(Key::of(&plan.destination, &plan.share), connection);
    }
    Ok(raw)
}

async fn open(stream: Stream, plan: &Plan, socket: OwnedSemaphorePermit) -> Result<Connection, Error> {
    match stream {
        Stream::Plain(io) => http1(io, (plan, None, socket)).await,
        Stream::Tls { stream, certificate, http2: false } => http1(stream, (plan, certificate, socket)).await,
        Stream::Tls { stream, certificate, http2: true } => {
            Ok(Connection::new(http2(stream, plan).await?, certificate, socket))
        }
    }
}

/// The connection's own task ends with the connection, or when its last sender is dropped.
async fn http1<S>(
    io: TokioIo<S>,
    (plan, certificate, socket): (&Plan, Option<Arc<Certificate>>, OwnedSemaphorePermit),
) -> Result<Connection, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (io, patience) = Patient::new(io.into_inner());
    let handshake =
        http1::Builder::new().max_header_size(HEADER_BYTES).max_headers(HEADER_COUNT).handshake(TokioIo::new(io));
    let (sender, connection) = handshake.await.map_err(|error| translate(&error, plan))?;
    tokio::spawn(connection);
    let mut connection = Connection::new(Sender::Http1(sender), certificate, socket);
    connection.patience = Some(patience);
    Ok(connection)
}

async fn http2<S>(io: TokioIo<S>, plan: &Plan) -> Result<Sender, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (every, within) = HTTP2_PING;
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(every)
        .keep_alive_timeout(within)
        .keep_alive_while_idle(true)
        .max_header_list_size(HEADER_BYTES as u32)
        .handshake(io);
    let (sender, connection) = handshake.await.map_err(|error| translate(&error, plan))?;
    tokio::spawn(connection);
    Ok(Sender::Http2(sender))
}

async fn send(
    connection: &mut Connection,
    plan: &Plan,
    user_agent: &HeaderValue,
) -> Result<hyper::Response<Incoming>, Error> {
    let given = plan.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let authority = given.unwrap_or_else(|| plan.destination.origin.authority());
    let mut request = hyper::Request::new(Full::new(plan.body.clone()));
    *request.method_mut() = plan.method.to_http();
    *request.headers_mut() = plan.headers.clone();
    request.headers_mut().entry(USER_AGENT).or_insert_with(|| user_agent.clone());
    let bad = |why: String| Error::BadRequest(why);
    let result = match &mut connection.sender {
        Sender::Http1(sender) => {
            *request.uri_mut() =
                plan.path_and_query.parse().map_err(|error: hyper::http::uri::InvalidUri| bad(error.to_string()))?;
            let host = HeaderValue::from_str(&authority).map_err(|error| bad(error.to_string()))?;
            request.headers_mut().insert(HOST, host);
            match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            }
        }
        Sender::Http2(sender) => {
            // There it stands in the URI.
            request.headers_mut().remove(HOST);
            let uri = Uri::builder().scheme("https").authority(authority.as_str()).path_and_query(&plan.path_and_query);
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

/// Reads a body within the cap and the budget. What is too long is left on the wire, and the connection with it.
async fn read(
    common: &Common,
    mut incoming: Incoming,
    progress: &Progress,
    plan: &Plan,
) -> Result<(Vec<u8>, Held), Error> {
    let limit = || progress.cap.load(Ordering::Relaxed);
    let mut counted = Counted { reading: &plan.reading, bytes: 0 };
    let promised = incoming.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    if promised.is_some_and(|length| length > limit()) {
        return Err(Error::BodyTooLarge { limit: limit() });
    }
    let expected = promised.unwrap_or(FIRST_HOLD).min(FIRST_HOLD).min(limit());
    let mut held = progress.held_up(common.bytes.hold(expected, &common.gauges)).await;
    let mut body = Vec::with_capacity(expected);
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| translate(&error, plan))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = body.len() + data.len();
        if length > limit() || !counted.add(data.len()) {
            return Err(Error::BodyTooLarge { limit: limit() });
        }
        while length > held.bytes() {
            let more = held.bytes().max(length - held.bytes()).min(limit());
            let grown = timeout(GROWING, common.bytes.grow(&mut held, more, &common.gauges)).await;
            grown.map_err(|_| Error::Overloaded { limit: common.bytes.limit() })?;
        }
        body.extend_from_slice(&data);
    }
    held.shrink(body.len());
    Ok((body, held))
}

/// hyper leaves the phrase out when it is the canonical one.
fn reason(parts: &hyper::http::response::Parts) -> String {
    match parts.extensions.get::<ReasonPhrase>() {
        Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
        None => parts.status.canonical_reason().unwrap_or_default().to_owned(),
    }
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// hyper's error in our words. Whatever ended the connection before the answer was whole is `closed`.
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
    // hyper has no question for this one; its text is "message head is too large".
    if error.is_parse() && error.to_string().contains("too large") {
        return Error::HeadersTooLarge { limit: HEADER_BYTES, count: HEADER_COUNT };
    }
    Error::Protocol { name, why: error.to_string() }
}
