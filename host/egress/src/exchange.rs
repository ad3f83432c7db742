//! Sends one request and reads its whole answer, unmasked.

use crate::body::{Read, pass_over, read};
use crate::broken::broken;
use crate::connect::{self, NotConnected, Phases, connect};
use crate::http1::{self, HEADER_BYTES};
use crate::in_flight::{Common, Plan, Progress, Raw};
use crate::message::only_reads;
use crate::peer::Peer;
use crate::pool::{Connection, Key, Pool, Transport};
use crate::{Error, Method, Timing};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// Interval of the keep-alive pings of an HTTP/2 connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for the answer to a keep-alive ping. Without an answer the connection is closed.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts that all attempts of one request share.
#[derive(Clone, Copy)]
struct Context<'a> {
    common: &'a Common,
    pool: &'a Arc<Pool>,
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
pub(crate) async fn exchange(
    common: &Common,
    pool: &Arc<Pool>,
    plan: &Plan,
    progress: &Progress,
) -> Result<Raw, Error> {
    let slot = common.slots.acquire(&plan.destination.origin.host, &plan.share, &common.gauges);
    let _slot = progress.held_up(slot).await;
    let start = Instant::now();
    let key = Key::of(&plan.destination, &plan.share);
    let context = Context { common, pool, key: &key, plan, progress };
    let _in_flight = pool.enter(&key);
    // The server may close an idle connection while it is taken. Only a safe method can be tried again then.
    while let Some(connection) = only_reads(&plan.method).then(|| pool.take(&key)).flatten() {
        match attempt(context, Ready { connection, phases: Phases::default(), start }).await {
            Err(Error::Closed(_)) => {}
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
    // Boxed, because most requests use an idle connection: the future of each would be larger by a kilobyte.
    let enter = |phase| progress.enter(phase);
    let connected = Box::pin(connect(&plan.destination, &common.own, &*common.resolver, enter)).await;
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
    context.progress.set_status(None);
    context.progress.set_peer(connection.peer.clone());
    let authority = &connection.authority;
    let (raw, transport) = match connection.transport {
        Transport::Http1(stream) => {
            let (mut sender, mut driver) = stream.begin().await.map_err(|error| broken(&error, context.plan))?;
            let apart = driver.apart();
            let request = Sending { sender: Sender::Http1(&mut sender, &apart), authority, phases, start };
            let (raw, rest) = driver.run(answer(context, request)).await?;
            if let Some(rest) = rest.filter(|_| !may_stray(context.plan, raw.status)) {
                let mut passing = Box::pin(pass_over(rest));
                if !driver.continues_to_end(passing.as_mut()) {
                    let (pool, key) = (context.pool.clone(), context.key.clone());
                    // The answer does not wait for it.
                    tokio::spawn(async move {
                        driver.run(passing).await;
                        if let Some(transport) = driver.finish(sender).map(Transport::Http1) {
                            pool.put(&key, Connection { transport, ..connection });
                        }
                    });
                    return Ok(raw);
                }
            }
            (raw, driver.finish(sender).map(Transport::Http1))
        }
        Transport::Http2(mut sender) => {
            let request = Sending { sender: Sender::Http2(&mut sender), authority, phases, start };
            (answer(context, request).await?.0, Some(Transport::Http2(sender)))
        }
    };
    match transport {
        Some(transport) if matches!(transport, Transport::Http2(_)) || !may_stray(context.plan, raw.status) => {
            context.pool.put(context.key, Connection { transport, ..connection });
        }
        _ => {}
    }
    Ok(raw)
}

/// Whether more may arrive behind an answer. If HTTP does not allow a body, a server may still send one late. It would
/// be read as the beginning of the next answer. A server that ignores the body of a request parses that body as the
/// next request and answers it too.
fn may_stray(plan: &Plan, status: u16) -> bool {
    plan.method == Method::HEAD || matches!(status, 204 | 304) || !plan.body.is_empty()
}

/// The sender of a connection.
enum Sender<'a> {
    /// With the parts of the head that the HTTP library cannot represent.
    Http1(&'a mut http1::Sender, &'a http1::Shared),
    Http2(&'a mut http2::SendRequest<Full<Bytes>>),
}

/// A request on a connection.
struct Sending<'a> {
    sender: Sender<'a>,
    authority: &'a HeaderValue,
    phases: Phases,
    start: Instant,
}

/// Sends a request and reads the whole answer. Also returns the body, if it is not asked for.
async fn answer(context: Context<'_>, request: Sending<'_>) -> Result<(Raw, Option<Incoming>), Error> {
    let Context { common, plan, progress, .. } = context;
    let Sending { mut sender, authority, phases, start } = request;
    progress.enter("waiting for the answer");
    let response = send(&mut sender, plan, authority, &common.user_agent).await?;
    let first_byte = start.elapsed();
    let (mut parts, incoming) = response.into_parts();
    progress.set_status(Some(parts.status.as_u16()));
    progress.enter("reading the answer");
    let Read { body, is_complete, held, rest } = read((common, plan, progress), incoming, &mut parts.headers).await?;
    let (mut headers, mut reason) = (headers(&parts.headers), reason(&parts));
    if let Sender::Http1(_, apart) = sender {
        let apart = &mut *apart.lock().unwrap_or_else(PoisonError::into_inner);
        headers.append(&mut apart.headers);
        reason = apart.reason.take().unwrap_or(reason);
    }
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let raw = Raw {
        status: parts.status.as_u16(),
        reason,
        headers,
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
    };
    Ok((raw, rest))
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
    let (sender, connection) = handshake.await.map_err(|error| broken(&error, plan))?;
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
    result.map_err(|error| broken(&error, plan))
}

/// Returns the reason phrase. hyper omits it if it is the canonical phrase of the status.
fn reason(parts: &hyper::http::response::Parts) -> String {
    match parts.extensions.get::<ReasonPhrase>() {
        Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
        None => parts.status.canonical_reason().unwrap_or_default().to_owned(),
    }
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut all = Vec::with_capacity(headers.len());
    all.extend(headers.iter().map(|(name, value)| {
        let value = match str::from_utf8(value.as_bytes()) {
            Ok(text) => text.to_owned(),
            // A URL consists of bytes, which are written in ASCII.
            Err(_) if name == LOCATION => in_ascii(value.as_bytes()),
            Err(_) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        (name.as_str().to_owned(), value)
    }));
    all
}

/// Percent-encodes the bytes that are not ASCII.
fn in_ascii(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte.is_ascii() {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
