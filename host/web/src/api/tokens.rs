//! Tokens: listed, made, revoked, and that of the first start replaced.

use super::query::{body, wrong};
use super::words;
use crate::auth::Auth;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, times};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use model::{AccessChange, CommandError, Scope, Timestamp, Token};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum number of tokens.
const TOKENS: usize = 1_000;
/// The maximum number of days of a token: a century.
const DAYS: f64 = 36_500.0;
/// The maximum number of characters of a name.
const NAME: usize = 64;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list, make)).routes(routes!(rotate)).routes(routes!(revoke))
}

/// A token without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
struct TokenWire {
    name: String,
    #[schema(schema_with = words::scope)]
    scope: &'static str,
    created: Time,
    /// Null if it is valid until it is revoked.
    expires: Option<Time>,
    /// To the hour; null if it was never used.
    last_used: Option<Time>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
struct TokensWire {
    tokens: Vec<TokenWire>,
}

/// A token that was made. Its secret is not shown again.
#[derive(Serialize, ToSchema)]
#[schema(as = NewSecret)]
struct MadeWire {
    token: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Revoked)]
struct RevokedWire {
    /// The name of the token.
    revoked: String,
}

/// The body of a request for a token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = NewToken)]
struct Wanted {
    /// 1 to 64 visible characters without a slash.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    #[schema(schema_with = words::scope)]
    scope: String,
    /// The days until it expires; without, it is valid until it is revoked.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 36_500)]
    days: Option<f64>,
}

/// The token in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct TokenPath {
    /// The name of a token.
    name: String,
}

fn wire(token: Token) -> TokenWire {
    TokenWire {
        name: token.name,
        scope: token.scope.as_str(),
        created: Time::new(token.created),
        expires: times(token.expires),
        last_used: times(token.last_used),
    }
}

/// Lists the tokens.
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens",
    responses((status = 200, body = TokensWire, description = "All of them."))
)]
async fn list(State(shared): State<Shared>) -> Json<TokensWire> {
    Json(TokensWire { tokens: shared.auth.tokens().into_iter().map(wire).collect() })
}

/// Makes a token. The response holds its secret, which is not stored.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", request_body = Wanted,
    responses((status = 201, body = MadeWire, description = "The token."))
)]
async fn make(State(shared): State<Shared>, bytes: Bytes) -> Result<(StatusCode, Json<MadeWire>), ApiError> {
    let wanted: Wanted = body(&bytes, "{\"name\": NAME, \"scope\": SCOPE, \"days\": DAYS or absent}")?;
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
    let name = wanted.name.trim().to_owned();
    let is_visible = |letter: char| !letter.is_control() && !model::is_invisible(letter);
    if name.is_empty() || name.chars().count() > NAME || !name.chars().all(is_visible) || name.contains('/') {
        return Err(wrong("name", format!("the name must have 1 to {NAME} visible characters, without a slash")));
    }
    let Some(scope) = Scope::from_word(&wanted.scope) else {
        let known = Scope::ALL.map(Scope::as_str).join(", ");
        return Err(wrong("scope", format!("the scope must be one of {known}")));
    };
    // JSON does not distinguish 30 from 30.0.
    if wanted.days.is_some_and(|days| days.fract() != 0.0 || !(1.0..=DAYS).contains(&days)) {
        return Err(wrong("days", format!("the days must be a whole number from 1 to {DAYS}")));
    }
    let expires = wanted.days.map(|days| now.after(Duration::from_secs_f64(days * 86_400.0)));
    Ok(Token { hash, name, scope, created: now, expires, last_used: None })
}

/// Revokes a token: programs, browsers and screens with it are shut out at once.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{name}", tag = "tokens", params(TokenPath),
    responses((status = 200, body = RevokedWire, description = "It is revoked."))
)]
async fn revoke(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<RevokedWire>, ApiError> {
    let Some(hash) = shared.auth.revoke(&name) else {
        let message = format!("there is no token {name:?}: GET /api/v1/tokens lists all tokens");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    };
    shared.host.keep_access(AccessChange::Revoked(hash));
    shared.host.access_kept().await?;
    Ok(Json(RevokedWire { revoked: name }))
}

/// Replaces the token of the first start. The response holds its secret, which is not stored.
#[utoipa::path(
    post, path = "/api/v1/tokens/rotate", tag = "tokens",
    responses((status = 200, body = MadeWire, description = "The new token."))
)]
async fn rotate(State(shared): State<Shared>) -> Result<Json<MadeWire>, ApiError> {
    let token = shared.host.rotate_token()?;
    for ended in shared.auth.replace(Auth::hash(&token)) {
        shared.host.keep_access(AccessChange::SessionEnded(ended));
    }
    shared.host.access_kept().await?;
    Ok(Json(MadeWire { token }))
}
