//! The page of one target: its state and why, its past, its dependencies, and the reasons for its schedule.

use super::alerts;
use super::definition::{definition, test_form};
use super::dependants::list;
use super::dependency::{common_name, path_of};
use super::parts::{Command, age, buttons, complaints, reason, state};
use super::polls;
use super::reported::{contact, runs_on, source_link};
use super::shell::{Live, failure, live, problems};
use super::target_settings::settings;
use crate::api::query::named;
use crate::chart;
use crate::condition::Condition;
use crate::dependants::dependants;
use crate::error::ApiError;
use crate::range::{RANGES, is_coarse, length, with_current};
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::timeline::{Availability, Past, Period, State};
use crate::wire::{dependency_id, time};
use axum::extract::{self, Path, Query};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{
    AlertRecord, DependencyState, Explanation, History, LatencySummary, PollChange, PollMeasure, RouteExplanation,
    Scope, Setting, Status, StatusChange, TargetState, Timestamp,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The times over which availability is shown.
const AVAILABILITY: [(&str, u64); 4] = [("24 hours", 1), ("7 days", 7), ("30 days", 30), ("90 days", 90)];
/// The maximum number of dependencies that are listed; those that are worst come first.
const LISTED: usize = 200;
/// The maximum number of entries of the timeline.
const ENTRIES: usize = 60;

/// The query of the page.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    range: Option<String>,
    /// The id of the dependency whose latency is shown.
    latency: Option<String>,
}

/// Everything that the page shows.
struct View {
    target: Arc<TargetState>,
    /// All targets.
    targets: Vec<Arc<TargetState>>,
    /// All alerts.
    alerts: Vec<Arc<AlertRecord>>,
    /// The routes that an alert of the target takes.
    route: Option<RouteExplanation>,
    now: Timestamp,
    range: (&'static str, Duration),
    history: Result<History, String>,
    latencies: BTreeMap<u32, Vec<LatencySummary>>,
    /// The slot of the dependency whose latency is shown.
    charted: Option<u32>,
    explanation: Option<Explanation<Timestamp>>,
    settings: Vec<Setting>,
    is_admin: bool,
    polls: Vec<PollMeasure>,
}

pub(super) async fn page(
    extract::State(shared): extract::State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    match view(&shared, &headers, id, &wanted).await {
        Ok(view) => {
            let info = view.target.info.clone();
            let content = format!("/fragments/targets/{}{}", info.id, query(&view, view.range.0));
            let page =
                Live { title: &info.name, place: None, content: &content, target: Some(&info.id), ..Live::default() };
            live(&shared, &headers, &page, &html! { (problems(&shared)) (content_of(&view)) }).into_response()
        }
        Err(error) => failure(&headers, error.status, &error.message),
    }
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(
    extract::State(shared): extract::State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    match view(&shared, &headers, id, &wanted).await {
        Ok(view) => html! { (problems(&shared)) (content_of(&view)) }.into_response(),
        // The page stays open and says what happened.
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            html! { p.problem role="alert" { (error.message) " any more. " a href="/" { "All targets" } } }
                .into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn view(shared: &Shared, headers: &HeaderMap, id: String, wanted: &Wanted) -> Result<View, ApiError> {
    let range = length(wanted.range.as_deref())?;
    let id = named(id)?;
    let target = shared.host.target(&id).ok_or_else(|| model::CommandError::NoTarget(id.to_string()))?;
    let now = shared.host.now();
    let longest = range.1.max(Duration::from_secs(90 * 86_400));
    let history = shared.host.history(&id, now.before(longest)).await;
    let charted = charted(&target, wanted.latency.as_deref());
    let of = (now.before(range.1), charted);
    let latencies = shared.host.latencies(&id, of, is_coarse(range.1)).await.unwrap_or_default();
    let explanation = shared.host.explain(&id).await.ok();
    let (settings, polls) = (shared.host.settings_of(&id), shared.host.polls(&id));
    let (targets, alerts) = (shared.host.targets(), shared.host.alerts());
    let is_admin = shared.auth.scope(headers, now) == Some(Scope::Admin);
    Ok(View {
        target,
        targets,
        alerts,
        route: shared.host.explain_route(&id, None),
        now,
        range,
        history,
        latencies,
        charted,
        explanation,
        settings,
        is_admin,
        polls,
    })
}

/// Returns the slot of the dependency whose latency is shown: the one with this id, or else the slowest.
fn charted(target: &TargetState, wanted: Option<&str>) -> Option<u32> {
    let named = |dependency: &&DependencyState| {
        wanted.is_some_and(|wanted| dependency_id(&target.info.id, &dependency.record.reported.name) == wanted)
    };
    let latency = |dependency: &&DependencyState| dependency.volatile.latency_ms.unwrap_or(-1.0);
    let all = &target.observed.dependencies;
    let slowest = all.iter().max_by(|left, right| latency(left).total_cmp(&latency(right)));
    all.iter().find(named).or(slowest).map(|dependency| dependency.record.slot)
}

fn content_of(view: &View) -> Markup {
    let View { target, now, .. } = view;
    let span = (now.before(view.range.1), *now);
    let empty = History { since: span.0, ..History::default() };
    let history = view.history.as_ref().unwrap_or(&empty);
    let past = Past::new(target, history, *now);
    let periods = past.of_target();
    html! {
        (overview(view, &periods))
        (alerts::of_target(&view.alerts, &target.info.id, view.route.as_ref()))
        @if let Err(why) = &view.history { p.problem role="alert" { "The past cannot be shown: " (why) } }
        section #past.target {
            h2 { "Availability" }
            (availability(&periods, history, *now))
            (ranges(view))
            (chart::strip(&target.info.name, &periods, span))
            (chart::axis(span))
            (latency(view, span))
        }
        (dependencies(view, &past, span))
        (affected(view))
        (timeline(history))
        (polls::section(&view.polls))
        (schedule(view))
        (settings(target, &view.settings, view.is_admin))
        (test_form(target))
    }
}

/// Returns the query for a range, with the dependency whose latency is shown.
fn query(view: &View, range: &str) -> String {
    let is_charted = |dependency: &&DependencyState| Some(dependency.record.slot) == view.charted;
    let charted = view.target.observed.dependencies.iter().find(is_charted);
    let id = charted.map(|charted| dependency_id(&view.target.info.id, &charted.record.reported.name));
    id.map_or_else(|| format!("?range={range}"), |id| format!("?range={range}&latency={id}"))
}

fn overview(view: &View, periods: &[Period]) -> Markup {
    let (target, info) = (&view.target, &view.target.info);
    let status = TargetStatus::of(target);
    let bad = usize::from(status.is_bad());
    html! {
        section #overview.target data-status=(status.as_str()) {
            p.summary.headline data-worst=(status.as_str()) data-bad=(bad) data-now=(view.now.as_millis()) {
                span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) }
                @if let Some((since, is_least)) = since(target, status, periods) {
                    " for " @if is_least { "at least " } (age(since))
                }
                @if let Some(why) = reason(target, status) { ": " (why) }
            }
            p { small { (info.kind) " · " (info.url) @for (name, value) in &info.labels { " · " (name) "=" (value) } } }
            p.state { (state(target)) " " (buttons(target)) @if target.enabled { " " (pause(target)) } (definition(target)) }
            (complaints(target, 20))
        }
    }
}

/// When the target entered its status, and whether it may have been before the known past; `None` if the past does
/// not say it. A time in which no host ran does not end a status.
fn since(target: &TargetState, status: TargetStatus, periods: &[Period]) -> Option<(Timestamp, bool)> {
    let is_of_it = |period: &&Period| period.state.as_str() == status.as_str();
    if periods.last().is_some_and(|last| is_of_it(&last)) {
        let is_continued = |period: &&Period| is_of_it(period) || period.state == State::NoData;
        let same = periods.iter().rev().take_while(is_continued).filter(is_of_it);
        return same.last().map(|first| (first.from, periods.first().is_some_and(|all| all.from == first.from)));
    }
    // A missing dependency makes a target that is else healthy, or not known, one with a warning.
    let all = target.observed.dependencies.iter().filter_map(|dependency| dependency.record.missing_since);
    all.min().filter(|_| status == TargetStatus::Warning).map(|since| (since, false))
}

fn pause(target: &TargetState) -> Markup {
    let path = format!("/api/v1/targets/{}", target.info.id);
    Command::new("Pause", "PATCH", &path)
        .body(r#"{"enabled":false}"#)
        .title("Do not poll it until it is resumed")
        .button()
}

fn availability(periods: &[Period], history: &History, now: Timestamp) -> Markup {
    html! {
        table.numbers {
            thead { tr { @for (name, _) in AVAILABILITY { th scope="col" { (name) } } } }
            tbody {
                tr {
                    @for (_, days) in AVAILABILITY {
                        @let span = (now.before(Duration::from_secs(days * 86_400)), now);
                        @let found = Availability::of(periods, span);
                        td {
                            @match found.share() {
                                Some(share) => {
                                    strong { (percent(share)) } " "
                                    small { (known(found, span.0 < history.since)) }
                                }
                                None => "no data",
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Describes what a share is made of: the time down, and how much time is known.
fn known(found: Availability, is_cut: bool) -> String {
    let down = chart::duration(found.down.as_secs());
    let down = if found.down.is_zero() { String::new() } else { format!("{down} down, ") };
    let known = chart::duration((found.up + found.down).as_secs());
    let cut = if is_cut { "; older changes were deleted" } else { "" };
    format!("{down}{known} known{cut}")
}

/// Formats a share so that less than everything never looks like everything.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if share < 1.0 && percent > 99.99 { "> 99.99 %".to_owned() } else { format!("{percent:.2} %") }
}

fn ranges(view: &View) -> Markup {
    html! {
        nav.ranges aria-label="time to show" {
            @for (word, _) in RANGES {
                a href=(query(view, word)) aria-current=[(word == view.range.0).then_some("true")] { (word) }
                " "
            }
        }
    }
}

fn latency(view: &View, span: (Timestamp, Timestamp)) -> Markup {
    let dependencies = &view.target.observed.dependencies;
    let charted = dependencies.iter().find(|dependency| Some(dependency.record.slot) == view.charted);
    let Some(dependency) = charted else { return html! {} };
    let points = with_current(&view.latencies, dependency);
    let name = &dependency.record.reported.name;
    html! {
        @match chart::latency(name, &points, span) {
            Some(chart) => { (chart) (chart::axis(span)) }
            None => p.note { "No latency of " (name) " was measured in this time." },
        }
    }
}

fn dependencies(view: &View, past: &Past<'_>, span: (Timestamp, Timestamp)) -> Markup {
    let target = &view.target;
    let mut all: Vec<&DependencyState> = target.observed.dependencies.iter().collect();
    all.sort_by_key(|dependency| Condition::of(target, dependency).urgency());
    html! {
        section #dependencies.target {
            h2 { (all.len()) @if all.len() == 1 { " dependency" } @else { " dependencies" } }
            @if !all.is_empty() {
                div.scroll {
                    table.dependencies {
                        thead { tr {
                            th scope="col" { "Dependency" } th scope="col" { "Status" } th scope="col" { "For" }
                            th scope="col" { "Latency" } th scope="col" { (view.range.0) } th scope="col" { "Details" }
                        } }
                        tbody { @for dependency in all.iter().take(LISTED) { (row(view, past, span, dependency)) } }
                    }
                }
            }
            @if all.len() > LISTED {
                p.note { "and " (all.len() - LISTED) " more, which are not worse; the API lists all: " code { "/api/v1/dependencies?target=" (target.info.id) } }
            }
        }
    }
}

fn row(view: &View, past: &Past<'_>, span: (Timestamp, Timestamp), dependency: &DependencyState) -> Markup {
    let target = &view.target;
    let (record, volatile) = (&*dependency.record, &dependency.volatile);
    let reported = &record.reported;
    let condition = Condition::of(target, dependency);
    let contact = reported.contact.as_ref().map(contact).filter(|contact| !contact.is_empty());
    html! {
        tr data-status=(reported.status.as_str()) {
            th scope="row" {
                a href=(path_of(common_name(dependency))) { (reported.title.as_deref().unwrap_or(&reported.name)) }
                @if reported.title.is_some() { " " small { (reported.name) } }
                (runs_on(reported))
                (source_link(reported))
            }
            td { span class={ "tag " (condition.class()) } { (condition.sign()) " " (condition.word(reported.status)) } }
            td.number { (age(condition.since(target, dependency))) }
            td.number {
                @if let Some(ms) = volatile.latency_ms {
                    a href={ "?range=" (view.range.0) "&latency=" (dependency_id(&target.info.id, &reported.name)) } {
                        (chart::milliseconds(ms))
                    }
                }
            }
            td { (chart::strip(&reported.name, &past.of_dependency(dependency), span)) }
            td {
                @if let Some(message) = &reported.error_message { p.message { (message) } }
                @if let Some(description) = &reported.description { p.note { (description) } }
                @if let Some(impact) = reported.impact.as_ref().filter(|_| reported.status != Status::Ok) {
                    p.note { "impact: " (impact) }
                }
                @if let Some(contact) = contact { p.note { "contact: " (contact) } }
            }
        }
    }
}

/// The targets that depend on this one.
fn affected(view: &View) -> Markup {
    let found = dependants(&view.targets, &[view.target.info.id.as_str()]);
    html! {
        section #affected.target {
            h2 { @if found.is_empty() { "No other target depends on it" } @else { "Depends on it" } }
            (list(&found))
            p { a href={ "/graph?around=" (view.target.info.id) } { "Show it in the graph" } }
        }
    }
}

/// An entry of the timeline.
enum Entry<'a> {
    Status(&'a StatusChange),
    Poll(&'a PollChange),
    Gap(Timestamp),
}

fn timeline(history: &History) -> Markup {
    let statuses = history.statuses.iter().map(|change| (change.at, Entry::Status(change)));
    let polls = history.polls.iter().map(|change| (change.at, Entry::Poll(change)));
    let gaps = history.gaps.iter().map(|(began, ended)| (*began, Entry::Gap(*ended)));
    let mut entries: Vec<(Timestamp, Entry<'_>)> = statuses.chain(polls).chain(gaps).collect();
    entries.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    html! {
        section #timeline.target {
            h2 { "What happened" }
            @if entries.is_empty() { p.note { "No status has changed in the time that is stored." } }
            ol.timeline {
                @for (at, entry) in entries.iter().take(ENTRIES) {
                    li {
                        time data-local=(at.as_millis()) { (time(*at)) } " "
                        @match entry {
                            Entry::Status(change) => {
                                (change.dependency) " "
                                span class={ "tag " (change.previous.as_str()) } { (change.previous.as_str()) } " → "
                                span class={ "tag " (change.current.as_str()) } { (change.current.as_str()) }
                                @if let Some(message) = message_of(history, change) { " " span.message { (message) } }
                            }
                            Entry::Poll(PollChange { failure: Some((category, code, message)), .. }) => {
                                span.tag.unreachable { "polls fail" } " " (code) " (" (category.as_str()) "): " (message)
                            }
                            Entry::Poll(PollChange { failure: None, .. }) => { span.tag.ok { "polls succeed" } },
                            Entry::Gap(ended) => { "no host ran until " time data-local=(ended.as_millis()) { (time(*ended)) } },
                        }
                    }
                }
            }
            @if entries.len() > ENTRIES { p.note { "and " (entries.len() - ENTRIES) " earlier entries" } }
        }
    }
}

/// The error message that came with a change of status.
fn message_of<'a>(history: &'a History, change: &StatusChange) -> Option<&'a str> {
    let is_of = |error: &&model::ErrorChange| error.at == change.at && error.dependency == change.dependency;
    history.errors.iter().find(is_of).and_then(|error| error.message.as_deref())
}

fn schedule(view: &View) -> Markup {
    let Some(explanation) = &view.explanation else { return html! {} };
    html! {
        section #schedule.target {
            h2 { "Why it is polled when it is" }
            p { (explanation.summary) }
            details {
                summary { "The computation" }
                div.scroll { table.settings {
                    tbody {
                        @for term in &explanation.terms {
                            tr { th scope="row" { code { (term.name) } } td { (term.value) } td { (term.meaning) } }
                        }
                    }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};

    #[test]
    fn less_than_everything_never_looks_like_everything() {
        for (share, text) in
            [(1.0, "100.00 %"), (0.999_999_9, "> 99.99 %"), (0.9999, "99.99 %"), (0.5, "50.00 %"), (0.0, "0.00 %")]
        {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn the_time_of_a_status_is_that_of_its_period_or_of_the_missing_dependency() {
        let at = Timestamp::from_millis;
        let periods = |state| vec![Period { from: at(5), to: at(9), state }];
        let mut gone = dependency("a", Status::Ok);
        Arc::make_mut(&mut gone.record).missing_since = Some(at(7));
        let found = with(target("t"), |observed| observed.dependencies = Arc::new(vec![gone]));
        let since_state = |status, state| since(&found, status, &periods(state));
        assert_eq!(since_state(TargetStatus::Critical, State::Critical), Some((at(5), true)), "at least");
        assert_eq!(since_state(TargetStatus::Warning, State::Warning), Some((at(5), true)));
        assert_eq!(since_state(TargetStatus::Warning, State::Unknown), Some((at(7), false)));
        assert_eq!(since_state(TargetStatus::Disabled, State::Ok), None);
        // A restart does not end a status.
        let all = [(1, State::Ok), (2, State::Critical), (3, State::NoData), (4, State::Critical)];
        let all = all.map(|(from, state)| Period { from: at(from), to: at(from + 1), state });
        assert_eq!(since(&found, TargetStatus::Critical, &all), Some((at(2), false)));
    }

    #[test]
    fn availability_names_the_time_that_is_known() {
        let found = |up: u64, down: u64| Availability { up: Duration::from_secs(up), down: Duration::from_secs(down) };
        assert_eq!(known(found(7_200, 0), false), "2 h 0 min known");
        assert_eq!(known(found(60, 5), true), "5 s down, 1 min known; older changes were deleted");
    }

    #[test]
    fn the_slowest_dependency_is_charted_unless_another_is_wanted() {
        let slow = |name: &str, slot: u32, ms: Option<f64>| {
            let mut found = dependency(name, Status::Ok);
            Arc::make_mut(&mut found.record).slot = slot;
            found.volatile.latency_ms = ms;
            found
        };
        let all = vec![slow("a", 3, Some(5.0)), slow("b", 4, Some(9.0)), slow("c", 5, None)];
        let found = with(target("t"), |observed| observed.dependencies = Arc::new(all));
        assert_eq!(charted(&found, None), Some(4));
        assert_eq!(charted(&found, Some(&dependency_id(&found.info.id, "c"))), Some(5));
        assert_eq!(charted(&found, Some("unknown")), Some(4));
        assert_eq!(charted(&target("t"), None), None);
    }
}
