//! Routes, and who may take them.

use crate::api::{self, ApiError};
use crate::auth::{Auth, Verdict};
use crate::events::Announcer;
use crate::host::Host;
use crate::metrics::{Format, Metrics};
use crate::page;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{delete, get, post};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}")]
pub struct ServerError {
    address: SocketAddr,
    why: String,
}

/// What every request is answered from.
#[derive(Clone)]
pub(crate) struct Shared {
    pub host: Arc<dyn Host>,
    pub announcer: Announcer,
    pub auth: Auth,
    pub ending: CancellationToken,
}

/// Serves pages and API until `ending`; gives the address it listens on.
pub async fn serve(
    address: SocketAddr,
    host: Arc<dyn Host>,
    (announcer, auth): (Announcer, Auth),
    ending: CancellationToken,
) -> Result<SocketAddr, ServerError> {
    let shared = Shared { host, announcer, auth, ending: ending.clone() };
    listen(address, router(shared), ending).await
}

/// Serves `/metrics` until `ending`, to whoever asks.
pub async fn serve_metrics(
    address: SocketAddr,
    host: Arc<dyn Host>,
    metrics: Arc<Metrics>,
    ending: CancellationToken,
) -> Result<SocketAddr, ServerError> {
    let scrape = async move |headers: HeaderMap| {
        let format = Format::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
        let text = metrics.render(&host.overview().await, host.now());
        ([(header::CONTENT_TYPE, format.content_type())], format.of(text))
    };
    let routes = Router::new().route("/metrics", get(scrape)).fallback(async || Redirect::to("/metrics"));
    listen(address, routes, ending).await
}

async fn listen(address: SocketAddr, routes: Router, ending: CancellationToken) -> Result<SocketAddr, ServerError> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program listens there: end it, or choose another port".to_owned(),
            _ => error.to_string(),
        };
        ServerError { address, why }
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let serving = axum::serve(listener, routes).with_graceful_shutdown(ending.cancelled_owned());
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!("the listener on {bound} ended: {error}");
        }
    });
    Ok(bound)
}

fn router(shared: Shared) -> Router {
    let guarded = Router::new()
        .route("/", get(page::index))
        .route("/settings", get(page::settings))
        .route("/fragments/targets", get(page::targets))
        .route("/api/monitoring/scheduler/health", get(api::scheduler_health))
        .route("/api/v1/targets", get(api::targets))
        .route("/api/v1/scheduler/stats", get(api::scheduler_stats))
        .route("/api/v1/targets/{id}", get(api::target).patch(api::patch_target).delete(api::delete_target))
        .route("/api/v1/targets/{id}/explain", get(api::explain))
        .route("/api/v1/targets/{id}/poll", post(api::poll_now))
        .route("/api/v1/dependencies", get(api::dependencies))
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
        .fallback(api::nothing_here)
        .method_not_allowed_fallback(api::not_this_way)
        .layer(from_fn_with_state(shared.clone(), guard));
    Router::new()
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
        .route("/login", get(page::login).post(page::log_in))
        .route("/assets/{file}", get(page::asset))
        .merge(guarded)
        .layer(from_fn(hardened))
        .with_state(shared)
}

async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    match shared.auth.judge(request.method(), request.headers()) {
        Verdict::Allowed => next.run(request).await,
        Verdict::Forged => {
            ApiError::new(StatusCode::FORBIDDEN, "csrf", "the request lacks the page's X-CSRF-Token").into_response()
        }
        Verdict::NoToken if ["/", "/settings"].contains(&request.uri().path()) => {
            Redirect::to("/login").into_response()
        }
        Verdict::NoToken => {
            let message = "a token is needed: send it as Authorization: Bearer TOKEN, or log in at /login";
            let mut response = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
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
