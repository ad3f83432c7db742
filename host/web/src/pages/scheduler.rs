//! The page of the scheduler: what waits, what is held back and why, the cadence, breakers and dead letters.

use super::parts::{Command, age};
use super::shell::{Live, Place, live, problems};
use crate::chart::{self, milliseconds};
use crate::pauses::WithPauses as _;
use crate::recent::Sample;
use crate::state::Shared;
use crate::status::has_unusual_breaker;
use crate::totals::Totals;
use axum::extract::State;
use axum::http::HeaderMap;
use maud::{Markup, html};
use model::{Cadence, Place as TargetPlace, SchedulerState, SettingSource, TargetState, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of rows of a table.
const ROWS: usize = 100;

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    let page =
        Live { title: "Scheduler", place: Some(Place::Scheduler), content: "/fragments/scheduler", ..Live::default() };
    live(&shared, &headers, &page, &content(&shared))
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>) -> Markup {
    content(&shared)
}

fn content(shared: &Shared) -> Markup {
    let (all, state, now) = (shared.host.targets(), shared.host.scheduler(), shared.host.now());
    html! {
        (problems(shared))
        (numbers(shared, &all, &state))
        (last_hour(shared))
        (cadence(shared, &all))
        section.target {
            h2 { "What would it have seen?" }
            p { "The recorded changes can be replayed under other cadences and intervals, with the cost and the delay of each: "
                @for word in ["24h", "7d", "30d"] { a href={ "/scheduler/replay?range=" (word) } { (word) } " " } }
        }
        (late(&all, &state, now))
        (dead_letters(&all))
        (breakers(&all))
    }
}

/// The last hour as lines.
fn last_hour(shared: &Shared) -> Markup {
    const HOUR: Duration = Duration::from_secs(3_600);
    let samples = shared.hour.samples();
    let span = (shared.host.now().before(HOUR), shared.host.now());
    let line = |title: &str, value: fn(&Sample) -> f64| {
        let points: Vec<(Timestamp, f64)> = samples.iter().map(|sample| (sample.at, value(sample))).collect();
        chart::line(title, &points, span)
    };
    html! {
        section #hour.target {
            h2 { "The last hour" }
            @if samples.is_empty() { p.note { "The first measurement comes within a minute after the start of the host." } } @else {
                div.lines {
                    (line("Polls started a second", |sample| sample.started))
                    (line("Polls failed a second", |sample| sample.failed))
                    (line("Polls held back a second", |sample| sample.held))
                    (line("Polls in flight", |sample| sample.in_flight))
                    (line("Overdue targets", |sample| sample.overdue))
                }
            }
        }
    }
}

fn numbers(shared: &Shared, all: &[Arc<TargetState>], state: &SchedulerState) -> Markup {
    let now = shared.host.now();
    let totals = Totals::of(all, now, state.overdue_after);
    let (counters, in_flight) = (&state.counters, state.in_flight.values().sum::<usize>());
    let held = [
        ("too many polls were in flight (max_in_flight)", counters.held_in_flight),
        ("too many polls began in a second (rate_per_second)", counters.held_by_rate),
        ("too many polls of the same host were in flight (max_per_host)", counters.held_by_hosts),
        ("the database had not stored earlier results", counters.skipped_unwritten),
        ("no instance slot for a plugin became free", counters.skipped_no_slot),
    ];
    html! {
        section #now.target {
            h2 { "Now" }
            dl.numbers data-now=(now.as_millis()) {
                div { dt { "waiting" } dd { (totals.depth) } }
                div { dt { "due within 12 s" } dd { (totals.due_soon) } }
                div { dt { "in flight" } dd { (in_flight) } }
                div { dt { "overdue" } dd.bad[totals.overdue > 0] { (totals.overdue) } }
                div { dt { "mean poll" } dd { (milliseconds(state.mean_poll.as_secs_f64() * 1000.0)) } }
                div { dt { "longest turn of the loop" } dd { (milliseconds(state.turns.longest.as_secs_f64() * 1000.0)) } }
                div { dt { "last poll began" } dd { @match state.last_start { Some(at) => { (age(at)) " ago" } None => "never" } } }
            }
            @if let Some((id, at)) = &state.next {
                p { "Next: " a href={ "/targets/" (id) } { (id) } " in " (age(*at)) }
            }
            @for (kind, until) in &state.quarantined {
                p.problem { "The plugin of kind " (kind) " is in quarantine; the next probe is in " (age(*until)) }
            }
        }
        section #counters.target {
            h2 { "Since the host started" }
            dl.numbers {
                div { dt { "polls started" } dd { (counters.started) } }
                div { dt { "with a report" } dd { (counters.succeeded) } }
                div { dt { "failed" } dd { (counters.failed) } }
                div { dt { "host started" } dd { (age(shared.host.started())) " ago" } }
            }
            h3 { "Held back" }
            @if held.iter().all(|(_, count)| *count == 0) { p.note { "No poll was ever held back." } }
            ul { @for (why, count) in held.iter().filter(|(_, count)| *count > 0) { li { (count) " polls: " (why) } } }
        }
    }
}

/// The rule of a cadence in a few words.
pub(super) fn meaning(cadence: Cadence) -> &'static str {
    match cadence {
        Cadence::Adaptive => "more often while a target changes or fails, less often while it is quiet",
        Cadence::Pulse => "Pulse's formula",
        Cadence::Fixed => "always the base interval",
    }
}

fn cadence(shared: &Shared, all: &[Arc<TargetState>]) -> Markup {
    let Some(setting) = shared.host.setting("scheduler.cadence") else { return html! {} };
    let locked = matches!(setting.source, SettingSource::Environment(_));
    html! {
        section #cadence.target {
            h2 { "Cadence" }
            ul.plain {
                @for cadence in Cadence::ALL {
                    @let is_set = setting.value.as_deref() == Some(cadence.as_str());
                    @let count = all.iter().with_pauses().filter(|target| target.cadence == cadence).count();
                    li {
                        strong { (cadence.as_str()) } ": " (meaning(cadence)) "; " (count) " targets "
                        @if is_set { span.tag.ok { "✓ in use" } } @else if !locked {
                            (Command::new("Switch", "PUT", "/api/v1/settings/scheduler.cadence")
                                .body(&format!("{{\"value\":\"{}\"}}", cadence.as_str())).button())
                        }
                    }
                }
            }
            p.note {
                "Set by: " (setting.source) ". The setting of a target overrides it. "
                @if setting.source == SettingSource::Setting {
                    (Command::new("Unset", "DELETE", "/api/v1/settings/scheduler.cadence").button())
                }
            }
        }
    }
}

/// Targets that should have been polled already.
fn late(all: &[Arc<TargetState>], state: &SchedulerState, now: Timestamp) -> Markup {
    let is_late = |target: &&Arc<TargetState>| {
        target.place.waits() && now.since(target.schedule.due) > state.overdue_after
            || matches!(target.place, TargetPlace::Ready | TargetPlace::WaitingForHost)
    };
    let mut late: Vec<&Arc<TargetState>> = all.iter().with_pauses().filter(is_late).collect();
    late.sort_by_key(|target| target.schedule.due);
    let why = |target: &TargetState| match target.place {
        TargetPlace::WaitingForHost => "waits for a slot of its host",
        TargetPlace::Ready => "held back by a limit of the scheduler",
        _ => "overdue",
    };
    html! {
        section #late.target {
            h2 { "Due and not polled: " (late.len()) }
            @if !late.is_empty() {
                table.numbers {
                    thead { tr { th scope="col" { "Target" } th scope="col" { "Due for" } th scope="col" { "Why" } } }
                    tbody {
                        @for target in late.iter().take(ROWS) {
                            tr { th scope="row" { (name(target)) } td.number { (age(target.schedule.due)) } td { (why(target)) } }
                        }
                    }
                }
                (more(late.len()))
            }
        }
    }
}

fn dead_letters(all: &[Arc<TargetState>]) -> Markup {
    let dead: Vec<_> = (all.iter().with_pauses())
        .filter_map(|target| Some((target, target.schedule.dead.as_ref().filter(|_| target.enabled)?)))
        .collect();
    html! {
        section #dead-letters.target {
            h2 { "Dead letters: " (dead.len()) }
            p.note { "A target that failed too often, or in a way that a retry does not mend. It is polled rarely until it answers (scheduler.dead_letter_interval)." }
            @if dead.len() > 1 { p { (Command::new("Retry all", "POST", "/api/v1/dead-letters/retry").button()) } }
            @if !dead.is_empty() {
                div.scroll { table.numbers {
                    thead { tr {
                        th scope="col" { "Target" } th scope="col" { "Reason" } th scope="col" { "For" } th scope="col" { "Retries" }
                        th scope="col" { "Last error" } th scope="col" { "Commands" }
                    } }
                    tbody {
                        @for (target, letter) in dead.iter().take(ROWS) {
                            @let path = format!("/api/v1/dead-letters/{}", target.info.id);
                            tr {
                                th scope="row" { (name(target)) }
                                td { (letter.reason.as_str().replace('_', " ")) }
                                td.number { (age(letter.since)) } td.number { (letter.retries) }
                                td { @if let Some(error) = &target.observed.failure { (error.message) } }
                                td {
                                    (Command::new("Retry", "POST", &format!("{path}/retry")).button()) " "
                                    (Command::new("Drop", "DELETE", &path).title("Disable the target until it is enabled again").button())
                                }
                            }
                        }
                    }
                } }
                (more(dead.len()))
            }
        }
    }
}

fn breakers(all: &[Arc<TargetState>]) -> Markup {
    let unusual: Vec<_> = all.iter().with_pauses().filter(|target| has_unusual_breaker(target)).collect();
    html! {
        section #breakers.target {
            h2 { "Breakers that are open or count failures: " (unusual.len()) }
            @if !unusual.is_empty() {
                div.scroll { table.numbers {
                    thead { tr {
                        th scope="col" { "Target" } th scope="col" { "State" } th scope="col" { "Failures" }
                        th scope="col" { "Next probe" } th scope="col" { "Commands" }
                    } }
                    tbody {
                        @for target in unusual.iter().take(ROWS) {
                            tr {
                                th scope="row" { (name(target)) }
                                td { (target.breaker_state().as_str().replace('_', "-")) }
                                td.number { (target.schedule.failures) }
                                td.number { @if let Some(at) = target.retry_at() { "in " (age(at)) } }
                                td { (Command::new("Reset", "POST", &format!("/api/v1/breakers/{}/reset", target.info.id)).button()) }
                            }
                        }
                    }
                } }
                (more(unusual.len()))
            }
        }
    }
}

fn name(target: &TargetState) -> Markup {
    html! { a href={ "/targets/" (target.info.id) } { (target.info.name) } }
}

fn more(count: usize) -> Markup {
    html! { @if count > ROWS { p.note { "and " (count - ROWS) " more" } } }
}
