//! Logging in and out.

use super::shell::document;
use crate::auth::Auth;
use crate::state::Shared;
use axum::Form;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{Markup, html};
use model::AccessChange;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
pub(crate) struct Token {
    token: Option<String>,
}

/// Logs in with the token of the link that the first start prints; without a token, shows the log-in form.
pub(crate) async fn login(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(query): Query<Token>,
) -> Response {
    match query.token {
        Some(token) => admit(&shared, (peer, &headers), &token).await,
        None => form(None).into_response(),
    }
}

pub(crate) async fn log_in(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<Token>,
) -> Response {
    admit(&shared, (peer, &headers), form.token.as_deref().unwrap_or_default().trim()).await
}

async fn admit(shared: &Shared, (peer, headers): (SocketAddr, &HeaderMap), token: &str) -> Response {
    let now = shared.host.now();
    let Some(session) = shared.auth.log_in((token, &shared.host.random_id()), is_secure(headers), now) else {
        if !shared.auth.hold_back(peer.ip(), &shared.gauges).await {
            let problem = "Too many wrong tokens from this address. Wait a moment.";
            return (StatusCode::TOO_MANY_REQUESTS, form(Some(problem))).into_response();
        }
        return (StatusCode::UNAUTHORIZED, form(Some("This token is wrong."))).into_response();
    };
    if let Some(ended) = session.ended {
        shared.host.keep_access(AccessChange::SessionEnded(ended));
    }
    shared.host.keep_access(AccessChange::Session(session.kept));
    ([(header::SET_COOKIE, session.cookie)], Redirect::to("/")).into_response()
}

/// Whether the page was requested over TLS. A TLS proxy sets this header. A client that sets it without TLS only loses
/// its cookie.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
}

pub(crate) async fn log_out(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(ended) = shared.auth.log_out(&headers) {
        shared.host.keep_access(AccessChange::SessionEnded(ended));
    }
    let [plain, secure] = Auth::forgotten();
    let cookies = AppendHeaders([(header::SET_COOKIE, plain), (header::SET_COOKIE, secure)]);
    (StatusCode::NO_CONTENT, cookies).into_response()
}

fn form(problem: Option<&str>) -> Markup {
    document(
        "Polliwog",
        None,
        &html! {
            main.login {
                h1 { "Polliwog" }
                p { "Paste a token. The first start printed one with a link; " code { "POLLIWOG_ADMIN_TOKEN" } " sets another one." }
                @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                form method="post" action="/login" {
                    label { "Token " input type="password" name="token" autocomplete="current-password" autofocus required; }
                    button { "Log in" }
                }
            }
        },
    )
}
