//! Routes and their authentication.

use crate::api;
use crate::auth::{Auth, Verdict};
use crate::compression::compressed;
use crate::error::ApiError;
use crate::etag;
use crate::exposition::{Format, render};
use crate::gauges::Gauges;
use crate::host::Host;
use crate::listener::{self, Gate};
use crate::pages;
use crate::proxy;
use crate::reads::Reads;
use crate::recent::{LastHour, measure};
use crate::state::Shared;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use futures_util::{FutureExt, StreamExt, stream};
use metrics::Metrics;
use model::AccessChange;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Listening on an address failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({setting}): {why}")]
pub struct ServerError {
    address: SocketAddr,
    setting: &'static str,
    why: String,
}

/// A bound port. Connections are refused until it is served.
#[derive(Debug)]
pub struct Port {
    socket: TcpSocket,
    address: SocketAddr,
    setting: &'static str,
}

impl Port {
    /// Binds a port; `setting` is the configuration key that sets it.
    ///
    /// # Errors
    /// If another program uses the port, the user lacks the permission, or the machine does not have the address.
    pub fn bind(address: SocketAddr, setting: &'static str) -> Result<Self, ServerError> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Allows binding a port that a previous host has just closed.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| failed(address, setting, &error))?;
        Ok(Self { socket, address, setting })
    }

    fn listen(self) -> Result<TcpListener, ServerError> {
        /// Most connections that wait to be accepted.
        const BACKLOG: u32 = 1024;
        self.socket.listen(BACKLOG).map_err(|error| failed(self.address, self.setting, &error))
    }
}

fn failed(address: SocketAddr, setting: &'static str, error: &std::io::Error) -> ServerError {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program uses this port: end it, or choose another port".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine does not have this address: use one of its addresses, or 127.0.0.1".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "this user may not use this port: choose a port from 1024 on, or give the program CAP_NET_BIND_SERVICE"
                .to_owned()
        }
        _ => error.to_string(),
    };
    ServerError { address, setting, why }
}

/// The parameters that both listeners share.
#[derive(Clone)]
pub struct Listening {
    /// Names of this host that requests may use, besides addresses and local names.
    pub hosts: Vec<String>,
    /// Most concurrent connections of each listener.
    pub connections: usize,
    /// The counters of both listeners.
    pub gauges: Arc<Gauges>,
    /// Ends both listeners when cancelled.
    pub ending: CancellationToken,
}

/// Most concurrent scrapes: each keeps its whole response in memory until the client has read it.
const SCRAPES: usize = 4;
/// Longest time for a client to read a scrape.
const SCRAPED: Duration = Duration::from_secs(30);

/// Serves the pages and the API until the host ends. Returns the bound address, and what answers the operator of the
/// fleet.
pub fn serve(
    port: Port,
    host: Arc<dyn Host>,
    auth: Auth,
    listening: Listening,
) -> Result<(SocketAddr, Reads), ServerError> {
    let (gauges, ending) = (listening.gauges.clone(), listening.ending.clone());
    let hour = Arc::new(LastHour::default());
    tokio::spawn(measure(hour.clone(), host.clone(), ending.clone()));
    let shared = Shared { host, auth, gauges, ending, pictures: Arc::default(), hour, kept: Arc::default() };
    let (guarded, open) = api::routes();
    let reads = Reads::new(guarded.clone(), shared.clone());
    Ok((listen(port, router(guarded, open, shared), listening)?, reads))
}

/// Serves `/metrics` until the host ends, without authentication. Returns the bound address.
pub fn serve_metrics(
    port: Port,
    host: Arc<dyn Host>,
    metrics: Arc<Metrics>,
    listening: Listening,
) -> Result<SocketAddr, ServerError> {
    let scrapes = Arc::new(Semaphore::new(SCRAPES));
    let scrape = async move |headers: HeaderMap| {
        let Ok(Ok(slot)) = timeout(SCRAPED, scrapes.clone().acquire_owned()).await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let format = Format::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
        let text = format.of(render(&metrics, &*host));
        let length = text.len();
        let kind = [(header::CONTENT_TYPE, format.content_type()), (header::CONTENT_LENGTH, &length.to_string())];
        (kind, scraped(text, slot)).into_response()
    };
    let routes =
        Router::new().route("/metrics", get(scrape).layer(compressed())).fallback(async || Redirect::to("/metrics"));
    listen(port, routes, listening)
}

/// A scrape's response body in pieces. Fails if the client has not read it within [`SCRAPED`].
fn scraped(text: String, slot: OwnedSemaphorePermit) -> Body {
    const PIECE: usize = 64 << 10;
    let (text, deadline) = (Bytes::from(text), Instant::now() + SCRAPED);
    let pieces = stream::unfold((text, slot), move |(mut text, slot)| async move {
        if text.is_empty() {
            return None;
        }
        if Instant::now() > deadline {
            return Some((Err(std::io::Error::from(std::io::ErrorKind::TimedOut)), (Bytes::new(), slot)));
        }
        let piece = text.split_to(PIECE.min(text.len()));
        Some((Ok(piece), (text, slot)))
    });
    // The compression layer polls the stream again after its end.
    Body::from_stream(pieces.fuse())
}

fn listen(port: Port, routes: Router, listening: Listening) -> Result<SocketAddr, ServerError> {
    let (address, setting) = (port.address, port.setting);
    let listener = port.listen()?;
    let bound = listener.local_addr().map_err(|error| failed(address, setting, &error))?;
    let Listening { hosts, connections, gauges, ending } = listening;
    let gate = Gate { hosts: hosts.into(), gauges, ending };
    tokio::spawn(listener::serve((listener, connections), routes, gate));
    Ok(bound)
}

/// Combines the pages with the API's routes: those that need a token, and those that do not.
fn router(guarded: Router<Shared>, open: Router<Shared>, shared: Shared) -> Router {
    let guarded = Router::new()
        .merge(pages::routes())
        .merge(guarded)
        .route("/logout", post(pages::log_out))
        .fallback(api::nothing_here)
        .method_not_allowed_fallback(api::not_this_way)
        .layer(from_fn(etag::tagged))
        .layer(map_response(api::in_words))
        .layer(from_fn_with_state(shared.clone(), guard));
    Router::new()
        .merge(open)
        .route("/login", get(pages::login).post(pages::log_in))
        .route("/assets/{file}", get(pages::asset))
        .route("/status/{name}", get(pages::public_status))
        .route("/badge/{file}", get(pages::badge))
        .merge(guarded)
        .layer(from_fn_with_state(shared.gauges.clone(), caught))
        .layer(from_fn(hardened))
        .with_state(shared)
}

async fn guard(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let now = shared.host.now();
    shared.auth.mark(peer.ip(), request.headers_mut());
    let (key, path) = (key_of(request.uri().query()), request.uri().path());
    let verdict = shared.auth.judge((request.method(), path), (request.headers(), key.as_deref()), now);
    if verdict == Verdict::WrongToken && !shared.auth.hold_back(peer.ip(), &shared.gauges).await {
        return ApiError::too_many_guesses().into_response();
    }
    match verdict {
        Verdict::Allowed => {
            if let Some(used) = shared.auth.used(request.headers(), key.as_deref(), now) {
                shared.host.keep_access(AccessChange::Token(used));
            }
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let client = match proxy::user(request.headers()) {
                _ if request.headers().contains_key(header::AUTHORIZATION) => "a program".to_owned(),
                Some(user) => format!("the user {user:?}"),
                None => "a page".to_owned(),
            };
            let response = next.run(request).await;
            if !matches!(method, Method::GET | Method::HEAD) {
                tracing::info!("{method} {path:?} by {client} at {}: {}", peer.ip(), response.status().as_u16());
            }
            response
        }
        Verdict::OutOfScope(scope) => {
            let message =
                format!("a token of scope {} does not allow this: use one with a larger scope", scope.as_str());
            ApiError::new(StatusCode::FORBIDDEN, "out_of_scope", message).into_response()
        }
        Verdict::Forged => {
            ApiError::new(StatusCode::FORBIDDEN, "csrf", "the request lacks the page's X-CSRF-Token header")
                .into_response()
        }
        Verdict::WrongToken if request.uri().path() == "/wall" => pages::refuse_wall(),
        Verdict::NoToken if pages::is_page(request.uri().path()) => pages::ask_to_log_in(request.uri()),
        Verdict::NoToken | Verdict::WrongToken => {
            let message = "a token is required: send it as Authorization: Bearer TOKEN, or log in at /login";
            let mut response = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

/// Returns the key in the address of the page for a wall.
fn key_of(query: Option<&str>) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query?).ok()?;
    pairs.into_iter().find(|(name, _)| name == "key").map(|(_, key)| key)
}

/// Catches a handler's panic, which is a bug of this host: responds with status 500, logs the path and counts the
/// panic.
async fn caught(State(gauges): State<Arc<Gauges>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            gauges.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("the handler of {method} {path:?} panicked: please report this bug");
            let message = "this request failed because of a bug in the host: see its log, and please report it";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
        }
    }
}

/// Adds security headers: no content from other sites, no framing, no content-type sniffing, no referrer.
async fn hardened(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                  form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_handler_panic_returns_500_is_counted_and_the_server_continues() {
        let gauges = Arc::new(Gauges::default());
        let panics = async || -> &'static str { std::panic::resume_unwind(Box::new("a defect")) };
        let routes = Router::new()
            .route("/panics", get(panics))
            .route("/works", get(async || "fine"))
            .layer(from_fn_with_state(gauges.clone(), caught));
        let ending = CancellationToken::new();
        let listening = Listening { hosts: Vec::new(), connections: 4, gauges: gauges.clone(), ending };
        let port = Port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), "server.listen").unwrap();
        let address = listen(port, routes, listening).unwrap();
        let ask = async |path: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = ask("/panics").await;
        assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("\"internal\""), "{answer}");
        assert!(ask("/works").await.ends_with("fine"));
        assert_eq!(gauges.panics.load(Ordering::Relaxed), 1);
    }
}
