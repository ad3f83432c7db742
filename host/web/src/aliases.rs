//! Aliases of dependencies in the API.

use crate::error::ApiError;
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// The maximum number of characters of a name.
const NAME: usize = 200;

/// An alias: dependencies with this name are the dependency with the canonical name.
#[derive(Serialize)]
pub(crate) struct AliasWire {
    name: String,
    canonical: String,
    /// `file` or `api`.
    source: &'static str,
}

#[derive(Serialize)]
pub(crate) struct AliasesWire {
    aliases: Vec<AliasWire>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    canonical: String,
}

#[derive(Serialize)]
pub(crate) struct DeletedWire {
    deleted: String,
}

pub(crate) async fn list(State(shared): State<Shared>) -> Json<AliasesWire> {
    let wire = |(name, canonical, source): (String, String, model::TargetSource)| AliasWire {
        name,
        canonical,
        source: source.as_str(),
    };
    Json(AliasesWire { aliases: shared.host.aliases().into_iter().map(wire).collect() })
}

pub(crate) async fn put(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<AliasWire>, ApiError> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body must be {{\"canonical\": NAME}}: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad_body", message)
    })?;
    let canonical = wanted.canonical;
    for (field, text) in [("name", &name), ("canonical", &canonical)] {
        let is_visible = text.chars().all(|letter| !letter.is_control() && !model::is_invisible(letter));
        if text.trim().is_empty() || text.chars().count() > NAME || !is_visible {
            let message = format!("{field} must have 1 to {NAME} visible characters");
            return Err(ApiError {
                field: Some(field),
                ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
            });
        }
    }
    shared.host.alias(name.clone(), Some(canonical.clone())).await?;
    Ok(Json(AliasWire { name, canonical, source: "api" }))
}

pub(crate) async fn delete(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<DeletedWire>, ApiError> {
    shared.host.alias(name.clone(), None).await?;
    Ok(Json(DeletedWire { deleted: name }))
}
