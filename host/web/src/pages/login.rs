//! Logging in and out.

use super::shell::document;
use crate::auth::Auth;
use crate::state::Shared;
use axum::Form;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{Markup, html};
use model::AccessChange;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
pub(crate) struct Token {
    token: Option<String>,
    /// The path and query of the page to show then.
    next: Option<String>,
}

/// Sends a browser without a session to the log-in, which then returns to the page.
pub(crate) fn ask_to_log_in(page: &Uri) -> Response {
    let wanted = page.path_and_query().map(ToString::to_string).filter(|wanted| wanted != "/");
    let query = wanted.and_then(|wanted| serde_urlencoded::to_string([("next", wanted)]).ok());
    Redirect::to(&query.map_or_else(|| "/login".to_owned(), |query| format!("/login?{query}"))).into_response()
}

/// The page to show after the log-in: one of this host, never another address.
fn page_after(next: Option<&str>) -> &str {
    let is_own = |next: &&str| next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    let is_shown = |next: &&str| super::is_page(next.split('?').next().unwrap_or_default());
    next.filter(is_own).filter(is_shown).unwrap_or("/")
}

/// Logs in with the token of the link that the first start prints; without a token, shows the log-in form.
pub(crate) async fn login(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(query): Query<Token>,
) -> Response {
    match query.token {
        Some(token) => admit(&shared, (peer, &headers), (&token, query.next.as_deref())).await,
        None => form(None, query.next.as_deref()).into_response(),
    }
}

pub(crate) async fn log_in(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<Token>,
) -> Response {
    let token = form.token.as_deref().unwrap_or_default().trim();
    admit(&shared, (peer, &headers), (token, form.next.as_deref())).await
}

async fn admit(
    shared: &Shared,
    (peer, headers): (SocketAddr, &HeaderMap),
    (token, next): (&str, Option<&str>),
) -> Response {
    let now = shared.host.now();
    let Some(session) = shared.auth.log_in((token, &shared.host.random_id()), is_secure(headers), now) else {
        if !shared.auth.hold_back(peer.ip(), &shared.gauges).await {
            let problem = "Too many wrong tokens from this address. Wait a moment.";
            return (StatusCode::TOO_MANY_REQUESTS, form(Some(problem), next)).into_response();
        }
        return (StatusCode::UNAUTHORIZED, form(Some("This token is wrong."), next)).into_response();
    };
    if let Some(ended) = session.ended {
        shared.host.keep_access(AccessChange::SessionEnded(ended));
    }
    shared.host.keep_access(AccessChange::Session(session.kept));
    ([(header::SET_COOKIE, session.cookie)], Redirect::to(page_after(next))).into_response()
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

fn form(problem: Option<&str>, next: Option<&str>) -> Markup {
    document(
        "Polliwog",
        None,
        &html! {
            main.login {
                h1 { "Polliwog" }
                p { "Paste a token. The first start printed one with a link; " code { "POLLIWOG_ADMIN_TOKEN" } " sets another one." }
                @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                form method="post" action="/login" {
                    @if let Some(next) = next { input type="hidden" name="next" value=(next); }
                    label { "Token " input type="password" name="token" autocomplete="current-password" autofocus required; }
                    button { "Log in" }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_in_returns_only_to_pages_of_this_host() {
        for (next, expected) in [
            (Some("/targets/shop?range=7d"), "/targets/shop?range=7d"),
            (Some("/graph"), "/graph"),
            (Some("//evil.example/targets/"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("https://evil.example/"), "/"),
            (Some("/logout"), "/"),
            (None, "/"),
        ] {
            assert_eq!(page_after(next), expected, "{next:?}");
        }
        let asked = ask_to_log_in(&"/targets/shop?range=7d".parse().unwrap());
        assert_eq!(asked.headers()[header::LOCATION], "/login?next=%2Ftargets%2Fshop%3Frange%3D7d");
        assert_eq!(ask_to_log_in(&"/".parse().unwrap()).headers()[header::LOCATION], "/login");
    }
}
