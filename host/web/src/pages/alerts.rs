//! The page of alerts: those that are open, and the last that are over.

use super::parts::{Command, age};
use super::shell::{Live, Place, live, problems};
use crate::api::explained;
use crate::chart::duration;
use crate::state::Shared;
use crate::wire::alert_id;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{
    AlertRecord, AlertState, Resolution, RouteExplanation, RouteStep, SilencePeriod, SilenceState, Subject, TargetId,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of open alerts on the page.
const OPEN: usize = 500;
/// The number of alerts on the page that are over.
const OVER: usize = 50;

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let page = Live { title: "Alerts", place: Some(Place::Alerts), content: "/fragments/alerts", ..Live::default() };
    live(&shared, &headers, &page, &content(&shared)).into_response()
}

pub(super) async fn fragment(State(shared): State<Shared>) -> Markup {
    content(&shared)
}

fn content(shared: &Shared) -> Markup {
    let alerts = shared.host.alerts();
    let explained = explained(&alerts);
    let mut open: Vec<&AlertRecord> = of_state(&alerts, true).collect();
    // Alerts that nothing holds back come first, then the worst, then the oldest.
    open.sort_by_key(|alert| {
        let is_held = alert.suppressed_by.is_some() || alert.silenced_by.is_some();
        (is_held, alert.state != AlertState::Firing, Reverse(alert.status), alert.since)
    });
    let mut over: Vec<&AlertRecord> = of_state(&alerts, false).collect();
    over.sort_by_key(|alert| Reverse(alert.ended.map(|(at, _)| at)));
    let (firing, held) = open
        .iter()
        .filter(|alert| alert.state == AlertState::Firing)
        .fold((0, 0), |(all, held), alert| (all + 1, held + usize::from(alert.suppressed_by.is_some())));
    html! {
        (problems(shared))
        @if open.is_empty() { p { "Nothing is wrong." } } @else {
            p {
                (firing) (if firing == 1 { " alert fires" } else { " alerts fire" })
                @if held > 0 { ", " (held) " of them explained by another" }
                @if open.len() > firing { ", " (open.len() - firing) " not confirmed yet" }
                "."
            }
            (table(&open[..open.len().min(OPEN)], &explained))
            @if open.len() > OPEN { p.note { "The first " (OPEN) " of " (open.len()) "." } }
        }
        (silences(shared))
        @if !over.is_empty() {
            h2 { "Over" }
            (ended(&over[..over.len().min(OVER)]))
        }
        (notified(shared))
    }
}

/// A line about where alerts are sent.
fn notified(shared: &Shared) -> Markup {
    let channels = shared.host.channels();
    let troubled: Vec<&str> =
        channels.iter().filter(|channel| channel.problem.is_some()).map(|channel| channel.name.as_str()).collect();
    html! {
        p.note {
            @if channels.is_empty() || shared.host.routes().is_empty() {
                "Alerts are shown here and sent nowhere: no "
                a href="/channels" { "channel" } " with a route is configured."
            } @else if troubled.is_empty() {
                "What was sent where: " a href="/channels" { "channels" } "."
            } @else {
                "Does not deliver: " a href="/channels" { (troubled.join(", ")) } "."
            }
        }
    }
}

fn of_state(alerts: &[Arc<AlertRecord>], is_open: bool) -> impl Iterator<Item = &AlertRecord> {
    alerts.iter().map(AsRef::as_ref).filter(move |alert| (alert.state != AlertState::Resolved) == is_open)
}

fn table(alerts: &[&AlertRecord], explained: &BTreeMap<Subject, usize>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="alerts" { table.numbers {
            thead { tr {
                th scope="col" { "Alert" } th scope="col" { "State" } th scope="col" { "Since" } th scope="col" { "Why" }
                th scope="col" { "Explains" } th scope="col" { "Held back" } th scope="col" { "Actions" }
            } }
            tbody { @for alert in alerts { tr {
                th scope="row" { (name(alert)) }
                td { (state(alert)) }
                td { (age(alert.since)) " ago" }
                td { (alert.message.as_deref().unwrap_or_default()) }
                td.number { @if let Some(count) = explained.get(&alert.subject) { (count) } }
                td { (held_back(alert)) }
                td { (button(alert)) }
            } } }
        } }
    }
}

fn silences(shared: &Shared) -> Markup {
    let now = shared.host.now();
    let is_over = |silence: &SilenceState| matches!(silence.period, SilencePeriod::Once(_, end) if end <= now);
    let mut all: Vec<SilenceState> = shared.host.silences().into_iter().filter(|silence| !is_over(silence)).collect();
    all.sort_by_key(|silence| !silence.is_active);
    html! {
        @if !all.is_empty() {
            h2 { "Silences" }
            (active(&all))
            div.scroll tabindex="0" role="region" aria-label="silences" { table.numbers {
                thead { tr {
                    th scope="col" { "Alerts" } th scope="col" { "State" } th scope="col" { "When" } th scope="col" { "By" }
                    th scope="col" { "Comment" } th scope="col" { "Actions" }
                } }
                tbody { @for silence in &all { (row_of(silence)) } }
            } }
        }
    }
}

fn row_of(silence: &SilenceState) -> Markup {
    html! { tr {
        th scope="row" {
            @for (attribute, text) in &silence.conditions { (attribute) (text) " " }
        }
        td { @if silence.is_active { "active" } @else { "to come" } }
        td {
            @match &silence.period {
                SilencePeriod::Once(_, end) if silence.is_active => { "ends in " (age(*end)) }
                SilencePeriod::Once(start, _) => { "begins in " (age(*start)) }
                SilencePeriod::Recurring(every, zone) => { (every) " in " (zone) }
            }
        }
        td { (silence.author) }
        td { (silence.comment) }
        td {
            @if !silence.is_in_file {
                (Command::new("End", "DELETE", &format!("/api/v1/silences/{}", silence.id)).title("Notify of these alerts again").button())
            }
        }
    } }
}

/// A sentence about the silences that are active, so that none is forgotten.
fn active(silences: &[SilenceState]) -> Markup {
    let active: Vec<&SilenceState> = silences.iter().filter(|silence| silence.is_active).collect();
    let start = |silence: &&SilenceState| match silence.period {
        SilencePeriod::Once(start, _) => Some(start),
        SilencePeriod::Recurring(..) => None,
    };
    let oldest = active.iter().filter_map(start).min();
    html! {
        @if !active.is_empty() {
            p {
                (active.len()) (if active.len() == 1 { " is active" } else { " are active" })
                @if let Some(oldest) = oldest { "; the oldest began " (age(oldest)) " ago" }
                "."
            }
        }
    }
}

/// The alerts of one target, and where they are notified, for its page.
pub(super) fn of_target(alerts: &[Arc<AlertRecord>], target: &TargetId, route: Option<&RouteExplanation>) -> Markup {
    let of_target = |alert: &&AlertRecord| alert.subject.target() == Some(target);
    let open: Vec<&AlertRecord> = of_state(alerts, true).filter(of_target).collect();
    html! {
        @if !open.is_empty() {
            h2 { "Alerts" }
            (table(&open[..open.len().min(OPEN)], &explained(alerts)))
        }
        @if let Some(route) = route.filter(|route| !route.routes.is_empty()) { (taken(route)) }
    }
}

/// A sentence about the routes that a critical alert of a target takes.
fn taken(route: &RouteExplanation) -> Markup {
    let taken: Vec<&RouteStep> = route.routes.iter().filter(|step| step.applies).collect();
    html! {
        p.note {
            @if taken.is_empty() {
                "No route matches a critical alert of this target: it is notified nowhere."
            } @else {
                "A critical alert of this target is notified on "
                @for (place, step) in taken.iter().enumerate() {
                    @if place > 0 { ", and on " }
                    a href="/channels" { (step.channels.join(", ")) } " (route " (step.name) ")"
                }
                @if !route.silenced_by.is_empty() {
                    "; held back now by silence " (route.silenced_by.join(", "))
                }
                "."
            }
        }
    }
}

fn name(alert: &AlertRecord) -> Markup {
    html! {
        (alert.title)
        @match &alert.subject {
            Subject::Dependency { target, .. } => { " of " a href={ "/targets/" (target) } { (alert.traits.name) } }
            Subject::Target(target) => { " " a href={ "/targets/" (target) } { "cannot be polled" } }
            Subject::Other(..) => {}
        }
    }
}

fn state(alert: &AlertRecord) -> Markup {
    let word = alert.status.as_str();
    html! {
        span class={ "tag " (word) } { (word) }
        @match (alert.state, &alert.flapping, &alert.acknowledged) {
            (AlertState::Pending, ..) => " not confirmed yet",
            (_, Some(_), _) => " flapping",
            (_, None, Some(held)) => { " acknowledged by " (held.by) }
            (_, None, None) => {}
        }
    }
}

fn held_back(alert: &AlertRecord) -> Markup {
    html! {
        @if let Some(by) = &alert.suppressed_by { "explained by " (by) }
        @if let Some(silence) = &alert.silenced_by { " silenced by " (silence) }
    }
}

fn button(alert: &AlertRecord) -> Markup {
    let path = format!("/api/v1/alerts/{}/acknowledgement", alert_id(&alert.subject));
    html! {
        @match (alert.state, &alert.acknowledged) {
            (AlertState::Firing, None) => {
                (silence_button(alert)) " "
                (Command::new("Acknowledge", "PUT", &path).body(r#"{"by":"a user of the page"}"#)
                    .title("Do not repeat it until it is over or gets worse").button())
            }
            (AlertState::Firing, Some(_)) => (Command::new("Take back", "DELETE", &path).title("Repeat it again").button()),
            _ => {}
        }
    }
}

/// Silences the target of an alert for two hours.
fn silence_button(alert: &AlertRecord) -> Markup {
    let Some(target) = alert.subject.target().filter(|_| alert.silenced_by.is_none()) else { return html! {} };
    let body = format!(
        r#"{{"match":{{"target":"{target}"}},"seconds":7200,"author":"a user of the page","comment":"from the page of alerts"}}"#
    );
    let title = format!("Hold back all alerts of {target} for two hours");
    Command::new("Silence 2 h", "POST", "/api/v1/silences").body(&body).title(&title).button()
}

fn ended(alerts: &[&AlertRecord]) -> Markup {
    let why = |resolution| match resolution {
        Resolution::Recovered => "recovered",
        Resolution::Eased => "only a warning",
        Resolution::Skipped => "its check is skipped",
        Resolution::Missing => "no longer reported",
        Resolution::Gone => "removed from its source",
        Resolution::Removed => "removed",
        Resolution::Disabled => "target disabled",
        Resolution::HandedOver => "polled by another device",
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label="alerts that are over" { table.numbers {
            thead { tr { th scope="col" { "Alert" } th scope="col" { "Ended" } th scope="col" { "Lasted" } th scope="col" { "How" } } }
            tbody { @for (alert, (at, resolution)) in alerts.iter().filter_map(|alert| Some((alert, alert.ended?))) { tr {
                th scope="row" { (name(alert)) }
                td { (age(at)) " ago" }
                td { (duration(at.since(alert.since).as_secs())) }
                td { (why(resolution)) }
            } } }
        } }
    }
}
