//! The page of a replay: what other cadences and intervals would have cost and detected.

use super::shell::{Place, banner, document, problems};
use crate::auth::Auth;
use crate::error::ApiError;
use crate::range::{RANGES, length};
use crate::state::Shared;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{Replay, ReplayRow};
use serde::Deserialize;
use std::time::Duration;

/// A comparison of fewer changes says little.
const ENOUGH: usize = 50;

/// The query of the page.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    range: Option<String>,
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Response {
    let csrf = Auth::csrf_of(&headers).unwrap_or_default();
    let range = wanted.range.as_deref().or(Some("7d"));
    let (status, shown) = match replayed(&shared, range).await {
        Ok(content) => (axum::http::StatusCode::OK, content),
        Err(error) => (error.status, html! { p.problem role="alert" { (error.message) } }),
    };
    let body = html! {
        (banner("What would it have seen?", Some(Place::Scheduler), shared.host.fleet().is_some()))
        main #content tabindex="-1" {
            (problems(&shared))
            p { "The changes that this host recorded, polled again in simulation: what each cadence would have cost, and how late it \
                would have detected them." }
            p.ranges { @for (word, _) in RANGES {
                a href={ "/scheduler/replay?range=" (word) } aria-current=[(range == Some(word)).then_some("page")] { (word) } " "
            } }
            (shown)
        }
    };
    (status, document("What would it have seen? – Polliwog", Some(&csrf), &body)).into_response()
}

async fn replayed(shared: &Shared, range: Option<&str>) -> Result<Markup, ApiError> {
    let (_, length) = length(range)?;
    let replay = shared.host.replay(length).await?;
    let Replay { targets, of, changes, span, .. } = &replay;
    Ok(html! {
        section #replay.target {
            h2 { (changes) " recorded changes of " (targets) " targets in " (seconds(*span)) }
            @if *span < length { p.note { "More than " (seconds(*span)) " would take too long at these intervals." } }
            @if targets < of {
                p.note { (targets) " of " (of) " targets were replayed, and stand for all of them: first those that changed. A shorter time covers more." }
            }
            div.scroll tabindex="0" role="region" aria-label="cadences" { table.dependencies {
                thead { tr {
                    th scope="col" { "Cadence" } th scope="col" { "Polls" } th scope="col" { "Processor" }
                    th scope="col" { "Mean delay" } th scope="col" { "Likely range" } th scope="col" { "95 % within" } th scope="col" { "Missed" }
                } }
                tbody { @for row in &replay.rows { (line(&replay, row)) } }
            } }
            @if *changes < ENOUGH {
                p.note { "So few changes say little: the ranges are wide, and chance decides. Choose a longer time." }
            }
            p.note {
                "A change is known from the poll that detected it. Its true time is drawn from the interval before, the same for every \
                 cadence. What came and went between two polls was never recorded: a shorter interval would have detected more than \
                 this table shows. The likely range holds the mean with a probability of 90 %."
            }
        }
    })
}

fn line(replay: &Replay, row: &ReplayRow) -> Markup {
    let targets = replay.of.max(1) as f64;
    let days = replay.span.as_secs_f64() / 86_400.0;
    let cost = replay.cpu.map(|cpu| cpu.as_secs_f64() * row.polls as f64 / days);
    let interval = replay.span.as_secs_f64() * targets / row.polls.max(1) as f64;
    html! {
        tr {
            th scope="row" { (row.name) @if row.current { " " span.tag.ok { "✓ in use" } } }
            td { (row.polls) span.note { " one in " (seconds(Duration::from_secs_f64(interval))) } }
            td { @match cost { Some(cost) => { (format!("{cost:.1} s a day")) } None => "–" } }
            td { (seconds(row.mean)) }
            td { (seconds(row.likely.0)) " to " (seconds(row.likely.1)) }
            td { (seconds(row.p95)) }
            td { (format!("{:.1} %", row.missed * 100.0)) }
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        seconds => format!("{:.0} days", seconds / 86_400.0),
    }
}
