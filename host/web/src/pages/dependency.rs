//! The page of one dependency over all targets that report it: who sees it how, and what changed when.

use super::dependants::list;
use super::parts::{age, encoded};
use super::reported::{source_link, values};
use super::shell::{Live, failure, live, problems};
use crate::chart;
use crate::condition::Condition;
use crate::dependants::{Dependant, dependants};
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::timeline::Past;
use crate::wire::time;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{DependencyState, History, StatusChange, TargetState, Timestamp};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// The time that the strips show.
const LENGTH: Duration = Duration::from_secs(86_400);
/// The maximum number of listed targets.
const TARGETS: usize = 100;
/// The maximum number of listed changes.
const CHANGES: usize = 100;

pub(super) async fn page(State(shared): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    let is_known = |dependency: &DependencyState| {
        dependency.record.reported.name == name || dependency.record.canonical.as_ref() == Some(&name)
    };
    let targets = shared.host.targets();
    if !targets.iter().flat_map(|target| &*target.observed.dependencies).any(is_known) {
        let message = format!("no target reports a dependency {name:?}");
        return failure(&headers, StatusCode::NOT_FOUND, &message);
    }
    let path = format!("/fragments{}", path_of(&name));
    let page = Live { title: &name, place: None, content: &path, ..Live::default() };
    live(&shared, &headers, &page, &content(&shared, &name).await).into_response()
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, Path(name): Path<String>) -> Markup {
    content(&shared, &name).await
}

/// The path of the page of a dependency with a canonical or reported name.
pub(super) fn path_of(name: &str) -> String {
    format!("/dependencies/{}", encoded(name))
}

/// The canonical name of a dependency, or its reported one.
pub(super) fn common_name(dependency: &DependencyState) -> &str {
    dependency.record.canonical.as_deref().unwrap_or(&dependency.record.reported.name)
}

/// A target's view of the dependency.
struct Seen<'a> {
    target: &'a Arc<TargetState>,
    dependency: &'a DependencyState,
    condition: Condition,
}

async fn content(shared: &Shared, name: &str) -> Markup {
    let (all, now) = (shared.host.targets(), shared.host.now());
    let pairs = || {
        let targets = all.iter().with_pauses();
        targets.flat_map(|target| target.observed.dependencies.iter().map(move |dependency| (target, dependency)))
    };
    // A reported name leads to the dependency that it is an alias of.
    let alias = pairs().find(|(_, dependency)| dependency.record.reported.name == name);
    let canonical = alias.map_or(name, |(_, dependency)| common_name(dependency));
    let mut seen: Vec<Seen<'_>> = pairs()
        .filter(|(_, dependency)| [name, canonical].contains(&common_name(dependency)))
        .map(|(target, dependency)| Seen { target, dependency, condition: Condition::of(target, dependency) })
        .collect();
    seen.sort_by_key(|seen| (seen.condition.urgency(), &seen.target.info.name));
    let shown: Vec<&Seen<'_>> = seen.iter().take(TARGETS).collect();
    let wanted = shown.iter().map(|seen| (seen.target.info.id.clone(), None)).collect();
    let span = (now.before(LENGTH), now);
    let read = shared.host.recent(wanted, span.0).await;
    let empty = Vec::new();
    let pasts: Vec<&History> = read.as_ref().unwrap_or(&empty).iter().map(|(history, _)| history).collect();
    let bad = seen.iter().filter(|seen| seen.condition == Condition::Critical).count();
    html! {
        (problems(shared))
        section #seen.target data-worst=(if bad > 0 { "critical" } else { "ok" }) data-bad=(bad) data-now=(now.as_millis()) {
            h2 {
                @match seen.len() {
                    0 => "No target reports this dependency.",
                    1 => "One target reports it",
                    count => { (count) " targets report it" @if bad > 0 { ", " (bad) " of them as critical" } }
                }
            }
            @if let Err(why) = &read { p.problem role="alert" { "The past cannot be shown: " (why) } }
            @if !seen.is_empty() {
                p { a href={ "/graph?around=" (path_of(name).trim_start_matches("/dependencies/")) } { "Show it in the graph" } }
                div.scroll { table.dependencies {
                    thead { tr {
                        th scope="col" { "Target" } th scope="col" { "Status" } th scope="col" { "For" } th scope="col" { "Latency" }
                        th scope="col" { "24 hours" } th scope="col" { "Details" }
                    } }
                    tbody { @for (at, seen) in shown.iter().enumerate() { (row(seen, pasts.get(at).copied(), span)) } }
                } }
            }
            @if seen.len() > TARGETS { p.note { "and " (seen.len() - TARGETS) " more, which do not see it worse" } }
        }
        (affected(&all, &[name, canonical]))
        (changes(&shown, &pasts))
    }
}

/// The targets that depend on it through other targets.
fn affected(all: &[Arc<TargetState>], names: &[&str]) -> Markup {
    let indirect: Vec<Dependant<'_>> =
        dependants(all, names).into_iter().filter(|dependant| dependant.through.is_some()).collect();
    if indirect.is_empty() {
        return html! {};
    }
    html! { section #affected.target { h2 { "Depends on it through other targets" } (list(&indirect)) } }
}

fn row(seen: &Seen<'_>, past: Option<&History>, span: (Timestamp, Timestamp)) -> Markup {
    let Seen { target, dependency, condition } = seen;
    let (record, volatile) = (&dependency.record, &dependency.volatile);
    let reported = &record.reported;
    html! {
        tr {
            th scope="row" {
                a href={ "/targets/" (target.info.id) } { (target.info.name) }
                @if record.canonical.is_some() { small.note { "as " (reported.name) } }
            }
            td { span class={ "tag " (condition.class()) } { (condition.sign()) " " (condition.word(reported.status)) } }
            td.number { (age(condition.since(target, dependency))) }
            td.number { @if let Some(ms) = volatile.latency_ms { (chart::milliseconds(ms)) } }
            td {
                @if let Some(past) = past {
                    (chart::strip(&target.info.name, &Past::new(target, past, span.1).of_dependency(dependency), span))
                }
            }
            td {
                @if let Some(message) = &reported.error_message { p.message { (message) } }
                @else if let Some(description) = &reported.description { p.note { (description) } }
                (values(target, &reported.name))
                (source_link(reported))
            }
        }
    }
}

/// The changes of all targets side by side, newest first.
fn changes(shown: &[&Seen<'_>], pasts: &[&History]) -> Markup {
    let mut all: Vec<(&TargetState, &StatusChange)> = (shown.iter().zip(pasts))
        .flat_map(|(seen, past)| past.statuses.iter().map(move |change| (seen, change)))
        .filter(|(seen, change)| change.dependency == seen.dependency.record.reported.name)
        .map(|(seen, change)| (&**seen.target, change))
        .collect();
    all.sort_by_key(|(_, change)| Reverse(change.at));
    html! {
        section #changes.target {
            h2 { "Changes in the last 24 hours" }
            @if all.is_empty() { p.note { "Its status did not change." } }
            ol.timeline {
                @for (target, change) in all.iter().take(CHANGES) {
                    li {
                        time data-local=(change.at.as_millis()) { (time(change.at)) } " " (target.info.name) " "
                        span class={ "tag " (change.previous.as_str()) } { (change.previous.as_str()) } " → "
                        span class={ "tag " (change.current.as_str()) } { (change.current.as_str()) }
                    }
                }
            }
            @if all.len() > CHANGES { p.note { "and " (all.len() - CHANGES) " earlier changes" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(path_of("PostgreSQL main/a?b+c"), "/dependencies/PostgreSQL%20main%2Fa%3Fb%2Bc");
    }
}
