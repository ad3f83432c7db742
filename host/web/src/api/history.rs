//! The past of a target: states, changes, availability and latencies, as JSON or CSV.

use super::query::{Queried, TargetPath, named, queried, wrong};
use super::words;
use crate::compression::compressed;
use crate::error::ApiError;
use crate::range::{is_coarse, length, with_current};
use crate::state::Shared;
use crate::timeline::{Availability, Past, Period};
use crate::wire::{Time, dependency_id, time};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{CommandError, ErrorChange, History, LatencySummary, PollChange, StatusChange, TargetState, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(history).layer(compressed())).routes(routes!(latency).layer(compressed()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// The time until now; the default is `24h`.
    #[param(schema_with = words::range)]
    range: Option<String>,
    /// The default is `json`.
    #[param(schema_with = words::format)]
    format: Option<String>,
    /// The name of a dependency; without, all of them.
    dependency: Option<String>,
}

/// A valid request: the target, the time, and whether the answer is CSV.
struct Asked {
    target: Arc<TargetState>,
    span: (Timestamp, Timestamp),
    is_csv: bool,
    dependency: Option<String>,
}

fn asked(shared: &Shared, id: String, query: Queried<HistoryQuery>) -> Result<Asked, ApiError> {
    let query = queried(query)?;
    let (_, length) = length(query.range.as_deref())?;
    let is_csv = match query.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(wrong("format", "the format must be json or csv")),
    };
    let id = named(id)?;
    let target = shared.host.target(&id).ok_or_else(|| CommandError::NoTarget(id.to_string()))?;
    let now = shared.host.now();
    let known = |wanted: &String| target.observed.dependencies.iter().any(|d| d.record.reported.name == *wanted);
    if let Some(wanted) = query.dependency.as_ref().filter(|wanted| !known(wanted)) {
        let message = format!("target {id} has no dependency {wanted:?}");
        return Err(ApiError {
            field: Some("dependency"),
            ..ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
        });
    }
    Ok(Asked { target, span: (now.before(length), now), is_csv, dependency: query.dependency })
}

/// The error of a read that failed.
pub(super) fn unreadable(why: String) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unreadable", why)
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Period)]
struct PeriodWire {
    from: Time,
    to: Time,
    #[schema(schema_with = words::past_state)]
    state: &'static str,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Availability)]
struct AvailabilityWire {
    /// From 0 to 1; null if nothing is known.
    share: Option<f64>,
    up_seconds: f64,
    down_seconds: f64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DependencyHistory)]
struct DependencyWire<'a> {
    id: String,
    name: &'a str,
    availability: AvailabilityWire,
    periods: Vec<PeriodWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Transition)]
struct TransitionWire<'a> {
    at: Time,
    dependency: &'a str,
    #[schema(schema_with = words::status)]
    previous: &'static str,
    #[schema(schema_with = words::status)]
    current: &'static str,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PollChange)]
struct PollWire<'a> {
    at: Time,
    /// Null if polls succeed again.
    #[schema(schema_with = words::category_or_null)]
    category: Option<&'static str>,
    code: Option<&'a str>,
    message: Option<&'a str>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ErrorChange)]
struct ErrorWire<'a> {
    at: Time,
    dependency: &'a str,
    error: Option<&'a str>,
    message: Option<&'a str>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = History)]
struct HistoryWire<'a> {
    target: &'a str,
    from: Time,
    to: Time,
    /// Changes before this time were deleted or are too many.
    complete_since: Time,
    availability: AvailabilityWire,
    periods: Vec<PeriodWire>,
    dependencies: Vec<DependencyWire<'a>>,
    transitions: Vec<TransitionWire<'a>>,
    polls: Vec<PollWire<'a>>,
    errors: Vec<ErrorWire<'a>>,
}

fn periods(periods: &[Period]) -> Vec<PeriodWire> {
    let wire = |period: &Period| PeriodWire {
        from: Time::new(period.from),
        to: Time::new(period.to),
        state: period.state.as_str(),
    };
    periods.iter().map(wire).collect()
}

fn availability(found: Availability) -> AvailabilityWire {
    let (up_seconds, down_seconds) = (found.up.as_secs_f64(), found.down.as_secs_f64());
    AvailabilityWire { share: found.share(), up_seconds, down_seconds }
}

/// Returns the states, changes and errors of a target, and its availability. The CSV contains the transitions.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}/history", tag = "history", params(TargetPath, HistoryQuery),
    responses((status = 200, description = "The past.", content((HistoryWire<'_> = "application/json"), (String = "text/csv"))))
)]
async fn history(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Queried<HistoryQuery>,
) -> Result<Response, ApiError> {
    let Asked { target, span, is_csv, dependency } = asked(&shared, id, query)?;
    let history = shared.host.history(&target.info.id, span.0).await.map_err(unreadable)?;
    let is_wanted = |name: &str| dependency.as_deref().is_none_or(|wanted| wanted == name);
    if is_csv {
        return Ok(csv(&transitions(&history, is_wanted)));
    }
    let past = Past::new(&target, &history, span.1);
    let of_target = past.of_target();
    let dependencies = target.observed.dependencies.iter().filter(|d| is_wanted(&d.record.reported.name));
    let wire = HistoryWire {
        target: target.info.id.as_str(),
        from: Time::new(span.0),
        to: Time::new(span.1),
        complete_since: Time::new(history.since),
        availability: availability(Availability::of(&of_target, span)),
        periods: periods(&of_target),
        dependencies: (dependencies)
            .map(|dependency| {
                let of_dependency = past.of_dependency(dependency);
                let name = &dependency.record.reported.name;
                DependencyWire {
                    id: dependency_id(&target.info.id, name),
                    name,
                    availability: availability(Availability::of(&of_dependency, span)),
                    periods: periods(&of_dependency),
                }
            })
            .collect(),
        transitions: history.statuses.iter().filter(|change| is_wanted(&change.dependency)).map(transition).collect(),
        polls: history.polls.iter().filter(|change| change.at >= span.0).map(poll).collect(),
        errors: history.errors.iter().filter(|change| is_wanted(&change.dependency)).map(error).collect(),
    };
    Ok(Json(wire).into_response())
}

fn slot(target: &TargetState, name: &str) -> Option<u32> {
    let found = target.observed.dependencies.iter().find(|dependency| dependency.record.reported.name == name);
    found.map(|dependency| dependency.record.slot)
}

fn transition(change: &StatusChange) -> TransitionWire<'_> {
    let (previous, current) = (change.previous.as_str(), change.current.as_str());
    TransitionWire { at: Time::new(change.at), dependency: &change.dependency, previous, current }
}

fn poll(change: &PollChange) -> PollWire<'_> {
    let failure = change.failure.as_ref();
    PollWire {
        at: Time::new(change.at),
        category: failure.map(|(category, ..)| category.as_str()),
        code: failure.map(|(_, code, _)| code.as_str()),
        message: failure.map(|(.., message)| message.as_str()),
    }
}

fn error(change: &ErrorChange) -> ErrorWire<'_> {
    let (error, message) = (change.error.as_deref(), change.message.as_deref());
    ErrorWire { at: Time::new(change.at), dependency: &change.dependency, error, message }
}

fn transitions(history: &History, is_wanted: impl Fn(&str) -> bool) -> String {
    let mut text = "at,dependency,previous,current\n".to_owned();
    for change in history.statuses.iter().filter(|change| is_wanted(&change.dependency)) {
        let (previous, current) = (change.previous.as_str(), change.current.as_str());
        let _ = writeln!(text, "{},{},{previous},{current}", time(change.at), field(&change.dependency));
    }
    text
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LatencyPoint)]
struct PointWire {
    start: Time,
    min_ms: f32,
    mean_ms: f32,
    p95_ms: f32,
    max_ms: f32,
    count: u32,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Latencies)]
struct LatenciesWire<'a> {
    id: String,
    name: &'a str,
    points: Vec<PointWire>,
}

/// Returns the latencies of a target's dependencies: one point for five minutes, for an hour in ranges of more than 7
/// days, and for a day before the last 90 days.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}/latency", tag = "history", params(TargetPath, HistoryQuery),
    responses((status = 200, description = "The latencies.", content((Vec<LatenciesWire<'_>> = "application/json"), (String = "text/csv"))))
)]
async fn latency(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Queried<HistoryQuery>,
) -> Result<Response, ApiError> {
    let Asked { target, span, is_csv, dependency } = asked(&shared, id, query)?;
    let slot = dependency.as_ref().and_then(|name| slot(&target, name));
    let coarse = is_coarse(Duration::from_millis((span.1.as_millis() - span.0.as_millis()).unsigned_abs()));
    let stored = shared.host.latencies(&target.info.id, (span.0, slot), coarse).await.map_err(unreadable)?;
    let wanted = (target.observed.dependencies.iter())
        .filter(|d| dependency.as_deref().is_none_or(|wanted| wanted == d.record.reported.name));
    let points = wanted.map(|dependency| (dependency.record.reported.name.as_str(), with_current(&stored, dependency)));
    if is_csv {
        let mut text = "start,dependency,min_ms,mean_ms,p95_ms,max_ms,count\n".to_owned();
        for (name, points) in points {
            for point in points {
                let LatencySummary { start, min, mean, p95, max, count } = point;
                let _ = writeln!(text, "{},{},{min},{mean},{p95},{max},{count}", time(start), field(name));
            }
        }
        return Ok(csv(&text));
    }
    let wire = |LatencySummary { start, min, mean, p95, max, count }: LatencySummary| PointWire {
        start: Time::new(start),
        min_ms: min,
        mean_ms: mean,
        p95_ms: p95,
        max_ms: max,
        count,
    };
    let latencies: Vec<_> = points
        .map(|(name, points)| LatenciesWire {
            id: dependency_id(&target.info.id, name),
            name,
            points: points.into_iter().map(wire).collect(),
        })
        .collect();
    Ok(Json(latencies).into_response())
}

fn csv(text: &str) -> Response {
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text.to_owned()).into_response()
}

/// Quotes a field of a CSV line. A spreadsheet would run text that begins with one of these signs as a formula.
fn field(text: &str) -> String {
    let quoted = text.replace('"', "\"\"");
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if is_formula { format!("\"'{quoted}\"") } else { format!("\"{quoted}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted_and_never_formulas() {
        for (text, expected) in [("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("=1+1", "\"'=1+1\""), ("a=1", "\"a=1\"")]
        {
            assert_eq!(field(text), expected);
        }
    }
}
