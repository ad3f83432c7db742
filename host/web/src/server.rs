//! Routes, and who may take them.

use crate::api;
use crate::auth::{Auth, Verdict};
use crate::error::ApiError;
use crate::exposition::{Format, render};
use crate::gauges::Gauges;
use crate::host::Host;
use crate::listener::{self, Gate};
use crate::page;
use crate::state::Shared;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{delete, get, post};
use futures_util::{FutureExt, StreamExt, stream};
use metrics::Metrics;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({setting}): {why}")]
pub struct ServerError {
    address: SocketAddr,
    setting: &'static str,
    why: String,
}

/// A port that is this host's from now on; until it is served, whoever connects is refused.
#[derive(Debug)]
pub struct Port {
    socket: TcpSocket,
    address: SocketAddr,
    setting: &'static str,
}

impl Port {
    /// Takes a port; `setting` is the key of the configuration that names it.
    ///
    /// # Errors
    /// When another program has it, or this user may not, or this machine has no such address.
    pub fn bind(address: SocketAddr, setting: &'static str) -> Result<Self, ServerError> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A port that a host before this one has just left may be taken at once.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| failed(address, setting, &error))?;
        Ok(Self { socket, address, setting })
    }

    fn listen(self) -> Result<TcpListener, ServerError> {
        /// Connections that may wait to be accepted.
        const BACKLOG: u32 = 1024;
        self.socket.listen(BACKLOG).map_err(|error| failed(self.address, self.setting, &error))
    }
}

fn failed(address: SocketAddr, setting: &'static str, error: &std::io::Error) -> ServerError {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program listens there: end it, or choose another port".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: use one of its own, or 127.0.0.1".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "this user may not use that port: choose one from 1024 on, or give the program CAP_NET_BIND_SERVICE"
                .to_owned()
        }
        _ => error.to_string(),
    };
    ServerError { address, setting, why }
}

/// What both listeners have in common.
#[derive(Clone)]
pub struct Listening {
    /// Names by which this host may be asked, beside addresses and names of its own site.
    pub hosts: Vec<String>,
    /// Connections of one listener at a time.
    pub connections: usize,
    /// What happens to the listeners.
    pub gauges: Arc<Gauges>,
    /// When it is cancelled, they end.
    pub ending: CancellationToken,
}

/// Scrapes that are answered at a time: each holds its whole answer until that is read.
const SCRAPES: usize = 4;
/// A scrape must be read within this.
const SCRAPED: Duration = Duration::from_secs(30);

/// Serves pages and API until the host ends; returns the address it listens on.
pub fn serve(port: Port, host: Arc<dyn Host>, auth: Auth, listening: Listening) -> Result<SocketAddr, ServerError> {
    let (gauges, ending) = (listening.gauges.clone(), listening.ending.clone());
    let shared = Shared { host, auth, gauges, ending };
    listen(port, router(shared), listening)
}

/// Serves `/metrics` until the host ends, without a token.
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

/// A scrape's answer, piece by piece, which ends when it is read too slowly.
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
    // Whoever compresses it asks once more after its end.
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

/// What is long is sent compressed to those that ask for it. Pages are not: a token of theirs stands beside what others wrote,
/// and the length would tell of it.
fn compressed() -> CompressionLayer {
    CompressionLayer::new().gzip(true)
}

fn router(shared: Shared) -> Router {
    let guarded = Router::new()
        .route("/", get(page::index))
        .route("/settings", get(page::settings))
        .route("/fragments/targets", get(page::targets).layer(compressed()))
        .route("/api/monitoring/scheduler/health", get(api::scheduler_health))
        .route("/api/v1/targets", get(api::targets).layer(compressed()))
        .route("/api/v1/scheduler/stats", get(api::scheduler_stats))
        .route("/api/v1/targets/{id}", get(api::target).patch(api::patch_target).delete(api::delete_target))
        .route("/api/v1/targets/{id}/explain", get(api::explain))
        .route("/api/v1/targets/{id}/poll", post(api::poll_now))
        .route("/api/v1/targets/{id}/dismiss", post(api::dismiss))
        .route("/api/v1/dependencies", get(api::dependencies).layer(compressed()))
        .route("/api/v1/dead-letters", get(api::dead_letters))
        .route("/api/v1/dead-letters/retry", post(api::retry_all))
        .route("/api/v1/dead-letters/{id}", delete(api::drop_dead_letter))
        .route("/api/v1/dead-letters/{id}/retry", post(api::retry))
        .route("/api/v1/breakers", get(api::breakers))
        .route("/api/v1/breakers/{id}/reset", post(api::reset_breaker))
        .route("/api/v1/settings", get(api::settings))
        .route("/api/v1/settings/{key}", get(api::setting).put(api::put_setting).delete(api::unset))
        .route("/api/v1/plugins", get(api::plugins))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/tokens/rotate", post(api::rotate_token))
        .route("/logout", post(page::log_out))
        .fallback(api::nothing_here)
        .method_not_allowed_fallback(api::not_this_way)
        .layer(map_response(api::in_words))
        .layer(from_fn_with_state(shared.clone(), guard));
    Router::new()
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
        .route("/login", get(page::login).post(page::log_in))
        .route("/assets/{file}", get(page::asset))
        .merge(guarded)
        .layer(from_fn_with_state(shared.gauges.clone(), caught))
        .layer(from_fn(hardened))
        .with_state(shared)
}

async fn guard(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let verdict = shared.auth.judge(request.method(), request.headers(), shared.host.now());
    if verdict == Verdict::WrongToken && !shared.auth.hold_back(peer.ip(), &shared.gauges).await {
        return ApiError::too_many_guesses().into_response();
    }
    match verdict {
        Verdict::Allowed => {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let by = if request.headers().contains_key(header::AUTHORIZATION) { "a program" } else { "a page" };
            let response = next.run(request).await;
            if !matches!(method, Method::GET | Method::HEAD) {
                tracing::info!("{method} {path:?} by {by} at {}: {}", peer.ip(), response.status().as_u16());
            }
            response
        }
        Verdict::Forged => {
            ApiError::new(StatusCode::FORBIDDEN, "csrf", "the request lacks the page's X-CSRF-Token").into_response()
        }
        Verdict::NoToken if ["/", "/settings"].contains(&request.uri().path()) => {
            Redirect::to("/login").into_response()
        }
        Verdict::NoToken | Verdict::WrongToken => {
            let message = "a token is needed: send it as Authorization: Bearer TOKEN, or log in at /login";
            let mut response = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

/// A handler that panics is a defect of ours: the caller is told so, the log has the place, and the number of them shows in
/// the metrics.
async fn caught(State(gauges): State<Arc<Gauges>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            gauges.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("answering {method} {path:?} ended in a panic: please report it");
            let message = "the host failed to answer this: see its log, and please report it";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
        }
    }
}

/// Nothing from elsewhere is loaded, nothing is framed, nothing is guessed, nothing is told to other sites.
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
    async fn a_handler_that_panics_is_answered_counted_and_survived() {
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
