//! Aliases of dependencies.

use super::commands::DeletedWire;
use super::query::{PageQuery, Queried, body, page, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use model::TargetSource;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum number of characters of a name.
const NAME: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(put, delete))
}

/// An alias: dependencies with this name are the dependency with the canonical name.
#[derive(Serialize, ToSchema)]
#[schema(as = Alias)]
struct AliasWire {
    name: String,
    canonical: String,
    #[schema(schema_with = words::target_source)]
    source: &'static str,
}

/// A page of aliases, in the order of their names.
#[derive(Serialize, ToSchema)]
#[schema(as = Aliases)]
struct AliasesWire {
    /// The number of aliases on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    aliases: Vec<AliasWire>,
}

/// The alias in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct AliasPath {
    /// The name: 1 to 200 visible characters.
    name: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NewAlias)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The canonical name: 1 to 200 visible characters.
    #[schema(min_length = 1, max_length = 200)]
    canonical: String,
}

/// Lists the aliases.
#[utoipa::path(
    get, path = "/api/v1/aliases", tag = "aliases", params(PageQuery),
    responses((status = 200, body = AliasesWire, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<PageQuery>) -> Result<Json<AliasesWire>, ApiError> {
    let PageQuery { limit, cursor } = queried(query)?;
    let name = |alias: &(String, String, TargetSource)| alias.0.clone();
    let found = page(shared.host.aliases(), name, (name, cursor), limit)?;
    let wire = |(name, canonical, source): (String, String, TargetSource)| AliasWire {
        name,
        canonical,
        source: source.as_str(),
    };
    let aliases = found.entries.into_iter().map(wire).collect();
    Ok(Json(AliasesWire { total: found.total, next: found.next, aliases }))
}

/// Makes or changes an alias.
#[utoipa::path(
    put, path = "/api/v1/aliases/{name}", tag = "aliases", params(AliasPath), request_body = Wanted,
    responses((status = 200, body = AliasWire, description = "The alias."))
)]
async fn put(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    bytes: Bytes,
) -> Result<Json<AliasWire>, ApiError> {
    let Wanted { canonical } = body(&bytes, "{\"canonical\": NAME}")?;
    for (field, text) in [("name", &name), ("canonical", &canonical)] {
        let is_visible = text.chars().all(|letter| !letter.is_control() && !model::is_invisible(letter));
        if text.trim().is_empty() || text.chars().count() > NAME || !is_visible {
            return Err(wrong(field, format!("{field} must have 1 to {NAME} visible characters")));
        }
    }
    shared.host.alias(name.clone(), Some(canonical.clone())).await?;
    Ok(Json(AliasWire { name, canonical, source: TargetSource::Api.as_str() }))
}

/// Deletes an alias.
#[utoipa::path(
    delete, path = "/api/v1/aliases/{name}", tag = "aliases", params(AliasPath),
    responses((status = 200, body = DeletedWire, description = "It is deleted."))
)]
async fn delete(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<DeletedWire>, ApiError> {
    shared.host.alias(name.clone(), None).await?;
    Ok(Json(DeletedWire { deleted: name }))
}
