//! Silences: listed, made, changed, ended and previewed.

use super::alerts::AlertWire;
use super::query::{body, wrong};
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, times};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{CommandError, NewSilence, SilencePeriod, SilenceState, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The longest silence, in seconds: a forgotten one must end.
const LONGEST: u64 = 366 * 86_400;
/// The maximum number of conditions.
const CONDITIONS: usize = 20;
/// The maximum number of characters of a condition, an author and a comment.
const TEXT: usize = 500;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(preview)).routes(routes!(change, end))
}

/// A silence: the alerts that match it are recorded, and not notified.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Silence)]
struct SilenceWire {
    id: String,
    /// The conditions, by attribute: `status`, `class`, `kind`, `target`, `name`, `dependency` or `label.NAME`.
    r#match: BTreeMap<String, String>,
    active: bool,
    /// Null for a recurring silence.
    start: Option<Time>,
    /// Null for a recurring silence.
    end: Option<Time>,
    /// Days and times of a recurring silence, such as `Sunday 02:00-04:00`.
    every: Option<String>,
    time_zone: Option<String>,
    author: String,
    comment: String,
    /// Whether the configuration's file has it.
    in_file: bool,
}

impl SilenceWire {
    fn of(silence: SilenceState) -> Self {
        let SilenceState { id, conditions, period, is_active, author, comment, is_in_file } = silence;
        let (start, end, every, time_zone) = match period {
            SilencePeriod::Once(start, end) => (Some(start), Some(end), None, None),
            SilencePeriod::Recurring(every, zone) => (None, None, Some(every), Some(zone)),
        };
        let (start, end, r#match) = (times(start), times(end), conditions.into_iter().collect());
        Self { id, r#match, active: is_active, start, end, every, time_zone, author, comment, in_file: is_in_file }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Silences)]
struct SilencesWire {
    /// Silences that are active or to come, recurring ones, and those that ended within the last day.
    silences: Vec<SilenceWire>,
}

/// The definition of a silence.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewSilence)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The conditions, by attribute: `status`, `class`, `kind`, `target`, `name`, `dependency` or `label.NAME`. A
    /// condition begins with `=`, `!=`, `=~` or `!~`; without one of them it is the value itself.
    r#match: BTreeMap<String, String>,
    /// Milliseconds since the Unix epoch; now if it is missing.
    #[schema(minimum = 0, maximum = 8_000_000_000_000_i64)]
    start: Option<i64>,
    /// How long it lasts, in seconds.
    #[schema(minimum = 1, maximum = 31_622_400)]
    seconds: u64,
    #[schema(min_length = 1, max_length = 500)]
    author: String,
    #[schema(max_length = 500)]
    #[serde(default)]
    comment: String,
}

/// The conditions of a silence that does not exist yet.
#[derive(Deserialize, ToSchema)]
#[schema(as = SilencePreview)]
#[serde(deny_unknown_fields)]
struct Conditions {
    /// The conditions, by attribute.
    r#match: BTreeMap<String, String>,
}

/// The silence in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct SilencePath {
    /// The id of a silence.
    id: String,
}

/// Lists silences.
#[utoipa::path(
    get, path = "/api/v1/silences", tag = "silences",
    responses((status = 200, body = SilencesWire, description = "All silences."))
)]
async fn list(State(shared): State<Shared>) -> Json<SilencesWire> {
    Json(SilencesWire { silences: shared.host.silences().into_iter().map(SilenceWire::of).collect() })
}

/// Makes a silence.
#[utoipa::path(
    post, path = "/api/v1/silences", tag = "silences", request_body = Wanted,
    responses((status = 201, body = SilenceWire, description = "It is made."))
)]
async fn create(State(shared): State<Shared>, bytes: Bytes) -> Result<Response, ApiError> {
    let silence = wanted(&shared, &bytes)?;
    let id = shared.host.silence(None, Some(silence)).await?;
    Ok((StatusCode::CREATED, Json(found(&shared, &id)?)).into_response())
}

/// Changes a silence, or makes one again that ended within the last day.
#[utoipa::path(
    put, path = "/api/v1/silences/{id}", tag = "silences", params(SilencePath), request_body = Wanted,
    responses((status = 200, body = SilenceWire, description = "It is changed."))
)]
async fn change(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Result<Json<SilenceWire>, ApiError> {
    let silence = wanted(&shared, &bytes)?;
    if !shared.host.silences().iter().any(|silence| silence.id == id) {
        return Err(missing(&id).into());
    }
    shared.host.silence(Some(id.clone()), Some(silence)).await?;
    Ok(Json(found(&shared, &id)?))
}

/// A silence that is over.
#[derive(Serialize, ToSchema)]
#[schema(as = SilenceEnded)]
struct EndedWire {
    /// The id of the silence.
    ended: String,
}

/// Ends a silence. What is still wrong is then notified.
#[utoipa::path(
    delete, path = "/api/v1/silences/{id}", tag = "silences", params(SilencePath),
    responses((status = 200, body = EndedWire, description = "It is over."))
)]
async fn end(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<EndedWire>, ApiError> {
    shared.host.silence(Some(id.clone()), None).await?;
    Ok(Json(EndedWire { ended: id }))
}

#[derive(Serialize, ToSchema)]
#[schema(as = SilencedAlerts)]
struct SilencedWire<'a> {
    /// The open alerts that match now.
    alerts: Vec<AlertWire<'a>>,
}

/// Shows the open alerts that a silence would hold back now.
#[utoipa::path(
    post, path = "/api/v1/silences/preview", tag = "silences", request_body = Conditions,
    responses((status = 200, body = SilencedWire<'_>, description = "The alerts."))
)]
async fn preview(State(shared): State<Shared>, bytes: Bytes) -> Result<Response, ApiError> {
    let Conditions { r#match } = body(&bytes, "{\"match\": {ATTRIBUTE: CONDITION}}")?;
    let conditions = checked(r#match)?;
    let matching = shared.host.matching(&conditions).map_err(|why| wrong("match", why))?;
    let alerts = matching.iter().map(|record| AlertWire::of(record, 0)).collect();
    Ok(Json(SilencedWire { alerts }).into_response())
}

fn wanted(shared: &Shared, bytes: &[u8]) -> Result<NewSilence, ApiError> {
    let form = "{\"match\": {ATTRIBUTE: CONDITION}, \"seconds\": NUMBER, \"author\": NAME}";
    let Wanted { r#match, start, seconds, author, comment } = body(bytes, form)?;
    let conditions = checked(r#match)?;
    shared.host.matching(&conditions).map_err(|why| wrong("match", why))?;
    if !(1..=LONGEST).contains(&seconds) {
        return Err(wrong("seconds", format!("use 1 to {LONGEST} seconds (366 days)")));
    }
    for (field, text, least) in [("author", &author, 1), ("comment", &comment, 0)] {
        let is_visible = text.chars().all(|letter| !letter.is_control() && !model::is_invisible(letter));
        if text.trim().chars().count() < least || text.chars().count() > TEXT || !is_visible {
            return Err(wrong(field, format!("{field} must have {least} to {TEXT} visible characters")));
        }
    }
    let start = match start {
        None => shared.host.now(),
        Some(start) if (0..=8_000_000_000_000).contains(&start) => Timestamp::from_millis(start),
        Some(_) => return Err(wrong("start", "start must be milliseconds since the epoch, up to the year 2223")),
    };
    Ok(NewSilence { conditions, start, end: start.after(Duration::from_secs(seconds)), author, comment })
}

fn checked(conditions: BTreeMap<String, String>) -> Result<Vec<(String, String)>, ApiError> {
    if conditions.is_empty() {
        return Err(wrong(
            "match",
            "without conditions, everything would be silenced: name the alerts that it matches",
        ));
    }
    let is_long = |text: &String| text.chars().count() > TEXT;
    if conditions.len() > CONDITIONS || conditions.values().any(is_long) {
        return Err(wrong("match", format!("match has at most {CONDITIONS} conditions of {TEXT} characters")));
    }
    Ok(conditions.into_iter().collect())
}

fn missing(id: &str) -> CommandError {
    CommandError::Missing(format!("there is no silence {id:?}: GET /api/v1/silences lists all silences"))
}

fn found(shared: &Shared, id: &str) -> Result<SilenceWire, ApiError> {
    let silence = shared.host.silences().into_iter().find(|silence| silence.id == id);
    silence.map(SilenceWire::of).ok_or_else(|| missing(id).into())
}
