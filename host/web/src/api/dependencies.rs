//! Dependencies of all targets.

use super::query::{Queried, page, queried, wrong};
use super::words;
use crate::compression::compressed;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, dependency_id, times};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use model::{DependencyState, Status, TargetId, TargetState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list).layer(compressed()))
}

/// The choice of dependencies.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DependenciesQuery {
    /// The id of a target.
    target: Option<String>,
    /// The last reported status.
    #[param(schema_with = words::status)]
    status: Option<String>,
    /// The maximum number of entries; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,62}:[0-9]{1,9}$")]
    cursor: Option<String>,
}

/// A dependency, as its target reported it last.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Dependency)]
struct DependencyWire<'a> {
    /// The first 16 hex digits of the SHA-256 of target id, NUL and name.
    id: String,
    target: &'a str,
    name: &'a str,
    canonical_name: Option<&'a str>,
    title: Option<&'a str>,
    kind: &'a str,
    /// Of a stale or missing dependency, its last known status.
    #[schema(schema_with = words::status)]
    status: &'static str,
    /// Null if it is unknown, stale or missing.
    healthy: Option<bool>,
    stale: bool,
    missing: bool,
    skipped: bool,
    /// Whether the status has another cause than what the dependency runs on.
    independent: bool,
    code: Option<i32>,
    latency_ms: Option<f64>,
    description: Option<&'a str>,
    impact: Option<&'a str>,
    #[schema(value_type = serde_json::Value)]
    error: Option<Box<RawValue>>,
    error_message: Option<&'a str>,
    #[schema(value_type = serde_json::Value)]
    contact: Option<Box<RawValue>>,
    #[schema(value_type = serde_json::Value)]
    check_details: Option<Box<RawValue>>,
    /// The first of `runsOn`.
    parent: Option<&'a str>,
    /// The names of the dependencies of the same target that this one runs on.
    runs_on: &'a [String],
    /// Its address in the user interface of its source.
    link: Option<&'a str>,
    /// How long after `checkedAt` the status is current; null as long as polls succeed.
    valid_for_ms: Option<u64>,
    checked_at: Time,
    last_status_change: Option<Time>,
    stale_since: Option<Time>,
    missing_since: Option<Time>,
}

impl<'a> DependencyWire<'a> {
    fn new(target: &'a TargetState, dependency: &'a DependencyState) -> Self {
        let (record, volatile) = (&*dependency.record, &dependency.volatile);
        let reported = &record.reported;
        let raw = |json: &Option<model::Json>| {
            json.as_ref().and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok())
        };
        // The last status of a stale or missing dependency may be out of date.
        let stale = target.is_stale_in(dependency);
        let is_current = !stale && record.missing_since.is_none();
        Self {
            id: dependency_id(&target.info.id, &reported.name),
            target: target.info.id.as_str(),
            name: &reported.name,
            canonical_name: record.canonical.as_deref(),
            title: reported.title.as_deref(),
            kind: &reported.kind,
            status: reported.status.as_str(),
            healthy: reported.status.healthy().filter(|_| is_current),
            stale,
            missing: record.missing_since.is_some(),
            skipped: reported.skipped,
            independent: reported.independent,
            code: reported.code,
            latency_ms: volatile.latency_ms,
            description: reported.description.as_deref(),
            impact: reported.impact.as_deref(),
            error: raw(&reported.error),
            error_message: reported.error_message.as_deref(),
            contact: raw(&reported.contact),
            check_details: raw(&reported.check_details),
            parent: reported.runs_on.first().map(String::as_str),
            runs_on: &reported.runs_on,
            link: reported.link.as_deref(),
            valid_for_ms: reported.valid_for.map(|valid| valid.as_millis() as u64),
            checked_at: Time::new(volatile.checked_at),
            last_status_change: times(record.last_status_change),
            stale_since: times(target.observed.stale_since),
            missing_since: times(record.missing_since),
        }
    }
}

/// A page of dependencies, in the order of their targets' ids. Serialized directly: converting to a value would parse
/// the plugins' JSON again.
#[derive(Serialize, ToSchema)]
#[schema(as = Dependencies)]
struct DependenciesWire<'a> {
    /// The number of matching dependencies on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    dependencies: Vec<DependencyWire<'a>>,
}

/// The place of a dependency in the list: its target, and its number there.
type Key = (String, u32);

/// Lists dependencies.
#[utoipa::path(
    get, path = "/api/v1/dependencies", tag = "dependencies", params(DependenciesQuery),
    responses((status = 200, body = DependenciesWire<'_>, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<DependenciesQuery>) -> Result<Response, ApiError> {
    let query = queried(query)?;
    let word = query.status.as_deref();
    let status = word.map(|word| {
        Status::from_word(word).ok_or_else(|| {
            let known = Status::ALL.map(Status::as_str).join(", ");
            wrong("status", format!("the status of a dependency must be one of {known}"))
        })
    });
    let (status, after) = (status.transpose()?, query.cursor.as_deref().map(key).transpose()?);
    let targets = match query.target.as_deref() {
        Some(id) => TargetId::new(id).ok().and_then(|id| shared.host.target(&id)).into_iter().collect(),
        None => shared.host.targets(),
    };
    let mut all = Vec::new();
    for target in &targets {
        let is_wanted = |found: &&DependencyState| status.is_none_or(|status| found.record.reported.status == status);
        let mut found: Vec<_> = target.observed.dependencies.iter().filter(is_wanted).collect();
        found.sort_by_key(|dependency| dependency.record.slot);
        all.extend(found.into_iter().map(|dependency| (target, dependency)));
    }
    type Entry<'a> = (&'a Arc<TargetState>, &'a DependencyState);
    let place = |entry: &Entry<'_>| (entry.0.info.id.to_string(), entry.1.record.slot);
    let cursor = |entry: &Entry<'_>| format!("{}:{}", entry.0.info.id, entry.1.record.slot);
    let found = page(all, place, (cursor, after), query.limit)?;
    let dependencies = found.entries.iter().map(|(target, dependency)| DependencyWire::new(target, dependency));
    let wire = DependenciesWire { total: found.total, next: found.next, dependencies: dependencies.collect() };
    Ok(Json(wire).into_response())
}

fn key(cursor: &str) -> Result<Key, ApiError> {
    let parts = cursor.split_once(':').and_then(|(target, slot)| Some((target.to_owned(), slot.parse().ok()?)));
    parts.ok_or_else(|| wrong("cursor", "the cursor must be the `next` of a page"))
}
