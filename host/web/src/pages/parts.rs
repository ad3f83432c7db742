//! Parts that several pages share: ages, states, commands, reasons.

use crate::status::TargetStatus;
use crate::wire::time;
use maud::{Markup, html};
use model::{BreakerState, DependencyState, Place, Status, TargetState, Timestamp};

/// A command that a button sends to the API.
pub(super) struct Command<'a> {
    label: &'a str,
    method: &'static str,
    path: &'a str,
    body: Option<&'a str>,
    title: Option<&'a str>,
    question: Option<&'a str>,
}

impl<'a> Command<'a> {
    pub(super) fn new(label: &'a str, method: &'static str, path: &'a str) -> Self {
        Self { label, method, path, body: None, title: None, question: None }
    }

    /// Sends this JSON.
    pub(super) fn body(self, body: &'a str) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Explains the command.
    pub(super) fn title(self, title: &'a str) -> Self {
        Self { title: Some(title), ..self }
    }

    /// Asks before it is sent.
    pub(super) fn question(self, question: &'a str) -> Self {
        Self { question: Some(question), ..self }
    }

    pub(super) fn button(&self) -> Markup {
        html! {
            button.command type="button" data-method=(self.method) data-path=(self.path) data-body=[self.body] title=[self.title] data-confirm=[self.question] {
                (self.label)
            }
        }
    }
}

/// A text as a part of a path.
pub(crate) fn encoded(text: &str) -> String {
    // The query encodes a space as a plus, a path as %20.
    let encoded = serde_urlencoded::to_string([("", text)]).unwrap_or_default();
    encoded.trim_start_matches('=').replace('+', "%20")
}

/// The commands for a target.
pub(super) fn buttons(target: &TargetState) -> Markup {
    let path = format!("/api/v1/targets/{}", target.info.id);
    let is_missing = |dependency: &DependencyState| dependency.record.missing_since.is_some();
    html! {
        @if target.enabled {
            (Command::new("Poll now", "POST", &format!("{path}/poll")).button())
        } @else {
            (Command::new("Resume", "PATCH", &path).body(r#"{"enabled":true}"#).title("Poll it again").button())
        }
        @if target.observed.dependencies.iter().any(is_missing) {
            " " (Command::new("Dismiss missing", "POST", &format!("{path}/dismiss")).title("Forget the missing dependencies").button())
        }
    }
}

/// The failure of the last poll, and at most `most` warnings.
pub(super) fn complaints(target: &TargetState, most: usize) -> Markup {
    let observed = &target.observed;
    html! {
        @if let Some(error) = &observed.failure {
            p.problem { strong { (error.code) } ": " (error.message) }
        }
        @for warning in observed.warnings.iter().take(most) { p.note { "⚠ " (warning) } }
        @if observed.warnings.len() > most { p.note { "and " (observed.warnings.len() - most) " more warnings" } }
    }
}

/// A target's state as text.
pub(super) fn state(target: &TargetState) -> Markup {
    let (schedule, kind) = (&target.schedule, &target.info.kind);
    let is_fresh = schedule.failures == 0 && target.observed.stale_since.is_none();
    html! {
        @match (schedule.last_success, target.place) {
            (_, Place::Disabled) => "paused until it is resumed",
            (_, Place::NoPlugin) => {
                "no plugin serves kind " (kind) ": copy its .wasm into the plugin directory"
            }
            (_, Place::Quarantined) => {
                "the plugin of kind " (kind) " is in quarantine: it is probed every 5 min and when its file changes"
            }
            (Some(at), _) if is_fresh => { "polled " (age(at)) " ago" }
            (None, _) if is_fresh => "not polled yet",
            (Some(at), _) => { "last success " (age(at)) " ago" }
            (None, _) => "never polled successfully",
        }
        @match schedule.failures {
            0 => {}
            1 => ", 1 failure",
            failures => { ", " (failures) " failures in a row" }
        }
        @match (&schedule.dead, target.breaker_state()) {
            (Some(dead), _) => { ", dead letter (" (dead.reason.as_str().replace('_', " ")) ")" }
            (None, BreakerState::Closed) => {}
            (None, state) => { ", breaker " (state.as_str().replace('_', "-")) }
        }
        @if let Some(at) = target.next_run() { ", next poll in " (age(at)) }
    }
}

/// The time between now and `at`. A script computes and updates it; without a script, the page shows the time itself.
pub(super) fn age(at: Timestamp) -> Markup {
    html! { time data-at=(at.as_millis()) { (time(at)) } }
}

/// The reason for a status: the failure of the poll, or the worst dependency.
pub(super) fn reason(target: &TargetState, status: TargetStatus) -> Option<String> {
    let wanted = match status {
        TargetStatus::Unreachable => {
            return target.observed.failure.as_ref().map(|failure| failure.message.clone());
        }
        TargetStatus::Critical => Status::Critical,
        TargetStatus::Warning => Status::Warning,
        TargetStatus::Unknown => Status::Unknown,
        _ => return None,
    };
    let named = |dependency: &DependencyState| {
        let reported = &dependency.record.reported;
        reported.title.clone().unwrap_or_else(|| reported.name.clone())
    };
    let present = || target.observed.dependencies.iter().filter(|d| d.record.missing_since.is_none());
    let mut of_status = present().filter(|dependency| dependency.record.reported.status == wanted);
    if let Some(first) = of_status.next() {
        let more = of_status.count();
        let message = first.record.reported.error_message.as_deref();
        let reason = message.map(|message| format!(": {message}")).unwrap_or_default();
        let others = if more > 0 { format!(", and {more} more") } else { String::new() };
        return Some(format!("{}{reason}{others}", named(first)));
    }
    if status == TargetStatus::Unknown
        && let Some(why) = target.observed.nothing_checked()
    {
        return Some(why);
    }
    let missing = target.observed.dependencies.iter().find(|d| d.record.missing_since.is_some());
    missing.map(|dependency| format!("{} is missing", named(dependency)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use std::sync::Arc;

    #[test]
    fn a_status_has_a_reason() {
        let mut critical = dependency("db", Status::Critical);
        Arc::make_mut(&mut critical.record).reported.error_message = Some("it does not answer".to_owned());
        let mut gone = dependency("old", Status::Ok);
        Arc::make_mut(&mut gone.record).missing_since = Some(Timestamp::from_millis(1));
        let of = |dependencies: Vec<DependencyState>, status: TargetStatus| {
            reason(&with(target("t"), |observed| observed.dependencies = Arc::new(dependencies.clone())), status)
        };
        let two = vec![critical.clone(), dependency("web", Status::Critical), gone.clone()];
        assert_eq!(of(two, TargetStatus::Critical).as_deref(), Some("db: it does not answer, and 1 more"));
        assert_eq!(of(vec![gone], TargetStatus::Warning).as_deref(), Some("old is missing"));
        assert_eq!(of(vec![critical], TargetStatus::Ok), None);
    }
}
