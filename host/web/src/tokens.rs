//! Tokens in the API: listed, made, revoked, and that of the first start replaced.

use crate::auth::Auth;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::time;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use model::{AccessChange, CommandError, Scope, Timestamp, Token};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The maximum number of tokens.
const TOKENS: usize = 1_000;
/// The maximum number of characters of a name.
const NAME: usize = 64;

/// A token without its secret.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenWire {
    name: String,
    scope: &'static str,
    created: String,
    /// Null if it is valid until it is revoked.
    expires: Option<String>,
    /// To the hour; null if it was never used.
    last_used: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct TokensWire {
    tokens: Vec<TokenWire>,
}

/// A token that was made. Its secret is not shown again.
#[derive(Serialize)]
pub(crate) struct MadeWire {
    token: String,
}

#[derive(Serialize)]
pub(crate) struct RevokedWire {
    revoked: String,
}

/// The body of a request for a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Wanted {
    name: String,
    scope: String,
    /// The days until it expires; without, it is valid until it is revoked.
    days: Option<u32>,
}

fn wire(token: Token) -> TokenWire {
    TokenWire {
        name: token.name,
        scope: token.scope.as_str(),
        created: time(token.created),
        expires: token.expires.map(time),
        last_used: token.last_used.map(time),
    }
}

pub(crate) async fn list(State(shared): State<Shared>) -> Json<TokensWire> {
    Json(TokensWire { tokens: shared.auth.tokens().into_iter().map(wire).collect() })
}

/// Makes a token. The response holds its secret, which is not stored.
pub(crate) async fn make(State(shared): State<Shared>, body: Bytes) -> Result<(StatusCode, Json<MadeWire>), ApiError> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|error| {
        let message =
            format!("the body must be {{\"name\": NAME, \"scope\": SCOPE, \"days\": DAYS or absent}}: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad_body", message)
    })?;
    let secret = shared.host.random_id();
    let token = checked(wanted, Auth::hash(&secret), shared.host.now())?;
    if shared.auth.tokens().len() >= TOKENS {
        return Err(CommandError::Conflict(format!("there are {TOKENS} tokens already: revoke one")).into());
    }
    let name = token.name.clone();
    if !shared.auth.grant(token.clone()) {
        return Err(CommandError::Conflict(format!("there is a token {name:?} already: choose another name")).into());
    }
    shared.host.keep_access(AccessChange::Token(token));
    shared.host.access_kept().await?;
    Ok((StatusCode::CREATED, Json(MadeWire { token: secret })))
}

fn checked(wanted: Wanted, hash: [u8; 32], now: Timestamp) -> Result<Token, ApiError> {
    let wrong = |field, message: String| {
        Err(ApiError { field: Some(field), ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message) })
    };
    let name = wanted.name.trim().to_owned();
    let is_visible = |letter: char| !letter.is_control() && !model::is_invisible(letter);
    if name.is_empty() || name.chars().count() > NAME || !name.chars().all(is_visible) || name.contains('/') {
        return wrong("name", format!("the name must have 1 to {NAME} visible characters, without a slash"));
    }
    let Some(scope) = Scope::from_word(&wanted.scope) else {
        let known = Scope::ALL.map(Scope::as_str).join(", ");
        return wrong("scope", format!("the scope must be one of {known}"));
    };
    if wanted.days == Some(0) {
        return wrong("days", "the days must be at least 1".to_owned());
    }
    let expires = wanted.days.map(|days| now.after(Duration::from_secs(u64::from(days) * 86_400)));
    Ok(Token { hash, name, scope, created: now, expires, last_used: None })
}

pub(crate) async fn revoke(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<RevokedWire>, ApiError> {
    let Some(hash) = shared.auth.revoke(&name) else {
        let message = format!("there is no token {name:?}: GET /api/v1/tokens lists all tokens");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    };
    shared.host.keep_access(AccessChange::Revoked(hash));
    shared.host.access_kept().await?;
    Ok(Json(RevokedWire { revoked: name }))
}

/// Replaces the token of the first start.
pub(crate) async fn rotate(State(shared): State<Shared>) -> Result<Json<MadeWire>, ApiError> {
    let token = shared.host.rotate_token()?;
    for ended in shared.auth.replace(Auth::hash(&token)) {
        shared.host.keep_access(AccessChange::SessionEnded(ended));
    }
    shared.host.access_kept().await?;
    Ok(Json(MadeWire { token }))
}
