//! The page of events: everything that happened, newest first, filtered.

use super::shell::{Live, Place, live, problems};
use crate::event_wire::event_text;
use crate::state::Shared;
use crate::wire::time;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use maud::{Markup, html};
use model::{EventKind, Phase, SequencedEvent, TargetId};
use serde::{Deserialize, Serialize};

/// The number of events of a page.
const ROWS: u32 = 100;

/// The query of the page.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Wanted {
    /// The id of a target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    target: String,
    /// The name of an event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    event: String,
    /// Shows the events before this sequence number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    before: String,
}

impl Wanted {
    fn query(&self) -> String {
        serde_urlencoded::to_string(self).unwrap_or_default()
    }
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Markup {
    let path = format!("/fragments/events?{}", wanted.query());
    let page = Live { title: "Events", place: Some(Place::Events), content: &path, ..Live::default() };
    live(&shared, &headers, &page, &content(&shared, &wanted).await)
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, Query(wanted): Query<Wanted>) -> Markup {
    content(&shared, &wanted).await
}

/// Returns the id of the target with an id or a name, in upper or lower case; the word itself if it is unknown.
fn identified(shared: &Shared, word: &str) -> String {
    let (targets, wanted) = (shared.host.targets(), word.to_lowercase());
    let by_name = || targets.iter().find(|target| target.info.name.to_lowercase() == wanted);
    if is_target(shared, &wanted) {
        wanted
    } else {
        by_name().map_or_else(|| word.to_owned(), |target| target.info.id.to_string())
    }
}

fn is_target(shared: &Shared, id: &str) -> bool {
    TargetId::new(id).is_ok_and(|id| shared.host.target(&id).is_some())
}

async fn content(shared: &Shared, wanted: &Wanted) -> Markup {
    let given = |word: &str| (!word.trim().is_empty()).then(|| word.trim().to_owned());
    let target = given(&wanted.target).map(|word| identified(shared, &word));
    let before = wanted.before.parse().unwrap_or(i64::MAX);
    let found = shared.host.events_before(before, (target.clone(), given(&wanted.event)), ROWS).await;
    html! {
        (problems(shared))
        form #filter.filter method="get" action="/events" role="search" {
            label { "Target " input type="search" name="target" value=(wanted.target) placeholder="id or name"; }
            label { "Event " select name="event" {
                option value="" { "all" }
                // The end of each poll is not stored.
                @for name in EventKind::NAMES.iter().filter(|name| **name != "poll:complete") {
                    option value=(name) selected[wanted.event == **name] { (name) }
                }
            } }
            button { "Apply" }
            @if !wanted.query().is_empty() { " " a href="/events" { "Newest, of all" } }
        }
        @match &found {
            Err(why) => p.problem role="alert" { "The events cannot be read: " (why) },
            Ok(events) if events.is_empty() => p.empty {
                "No event matches."
                @if target.is_some_and(|id| !is_target(shared, &id)) { " There is no target " (wanted.target) "." }
            },
            Ok(events) => {
                ol #events.timeline { @for event in events { (entry(shared, event)) } }
                (older(wanted, events))
            }
        }
    }
}

fn older(wanted: &Wanted, events: &[SequencedEvent]) -> Markup {
    let last = events.last().and_then(|event| event.sequence).filter(|_| events.len() == ROWS as usize);
    html! {
        @if let Some(last) = last {
            p.paging { a rel="next" href={ "/events?" (Wanted { before: last.to_string(), ..wanted.clone() }.query()) } { "older →" } }
        }
    }
}

fn entry(shared: &Shared, event: &SequencedEvent) -> Markup {
    let SequencedEvent { sequence, event } = event;
    let target = event.kind.target();
    let name =
        target.map(|id| shared.host.target(id).map_or_else(|| id.to_string(), |target| target.info.name.clone()));
    html! {
        li id=[sequence.map(|sequence| format!("e-{sequence}"))] {
            time data-local=(event.at.as_millis()) { (time(event.at)) } " "
            span class={ "tag " (class(&event.kind)) } { (event.kind.name()) } " "
            @if let (Some(id), Some(name)) = (target, name) { a href={ "/targets/" (id) } { (name) } " " }
            (event_text(&event.kind))
        }
    }
}

/// The style of an event: what makes something worse, better, or neither.
fn class(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::StatusChange { current, .. } => current.as_str(),
        EventKind::PollError { .. }
        | EventKind::Unreachable { .. }
        | EventKind::CircuitOpen { .. }
        | EventKind::DeadLetter { .. }
        | EventKind::PluginQuarantined { .. }
        | EventKind::PluginRefused { .. }
        | EventKind::FleetDeployment { current: Phase::Failed, .. } => "critical",
        EventKind::DependencyMissing { .. } | EventKind::FleetDeviceStale { .. } => "warning",
        EventKind::FleetDeployment { .. }
        | EventKind::FleetDeviceHeard { .. }
        | EventKind::Reachable { .. }
        | EventKind::CircuitClose { .. }
        | EventKind::Revived { .. } => "ok",
        _ => "pending",
    }
}
