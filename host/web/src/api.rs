//! The JSON API: a file for each resource, with its routes and the types of its bodies.
//!
//! `GET /api/v1/openapi.json` describes it. The description is generated from the handlers and types, and a copy is in
//! `docs/openapi.json`, which a test compares.

mod alerts;
mod aliases;
mod breakers;
mod channels;
mod commands;
mod dead_letters;
mod definitions;
mod dependencies;
mod events;
mod fleet;
mod health;
mod history;
mod openapi;
mod plugins;
mod polls;
mod pulse;
pub(crate) mod query;
mod replay;
mod scheduler;
mod settings;
mod silences;
mod target_tests;
mod target_wire;
mod targets;
mod tokens;
mod words;

use crate::error::ApiError;
use crate::pages::failure;
use crate::state::Shared;
pub(crate) use alerts::explained;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
pub use plugins::PluginWire;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

fn parts() -> (Router<Shared>, Router<Shared>, OpenApi) {
    let (guarded, mut description) = OpenApiRouter::with_openapi(openapi::start())
        .merge(targets::routes())
        .merge(target_tests::routes())
        .merge(definitions::routes())
        .merge(history::routes())
        .merge(dependencies::routes())
        .merge(alerts::routes())
        .merge(silences::routes())
        .merge(channels::routes())
        .merge(aliases::routes())
        .merge(dead_letters::routes())
        .merge(breakers::routes())
        .merge(settings::routes())
        .merge(plugins::routes())
        .merge(polls::routes())
        .merge(scheduler::routes())
        .merge(replay::routes())
        .merge(pulse::routes())
        .merge(events::routes())
        .merge(tokens::routes())
        .merge(fleet::routes())
        .split_for_parts();
    let (open, health) = health::routes().split_for_parts();
    description.merge(health);
    (guarded, open, openapi::complete(description))
}

/// The routes that need a token, and those of the process's health, which do not.
pub(crate) fn routes() -> (Router<Shared>, Router<Shared>) {
    let (guarded, open, description) = parts();
    (openapi::serve(guarded, &description), open)
}

pub(crate) async fn not_this_way() -> ApiError {
    let message = "this path does not support this method: use GET to read; POST, PUT, PATCH and DELETE to change";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

pub(crate) async fn nothing_here(headers: HeaderMap, path: Uri) -> Response {
    let message = match path.path().strip_suffix('/') {
        Some(_) => "this path does not exist: remove the slash at its end",
        None => "this path does not exist: the pages start at /, the API at /api/v1/targets",
    };
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepted.contains("text/html") && !path.path().starts_with("/api/") {
        return failure(&headers, StatusCode::NOT_FOUND, message);
    }
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).into_response()
}

/// Replaces axum's plain-text response for a body that is too long with the API's JSON.
pub(crate) async fn in_words(response: Response) -> Response {
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let message =
            "the request's body is longer than the limit, which is 64 MiB for a plugin file and 2 MiB for all others";
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_response();
    }
    response
}

#[cfg(test)]
mod tests {
    use super::parts;
    use std::path::Path;

    #[test]
    fn the_description_in_the_documentation_is_this_one() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let expected = format!("{}\n", parts().2.to_pretty_json().unwrap());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == expected, "{} is out of date: UPDATE=1 cargo test -p web description", file.display());
    }
}
