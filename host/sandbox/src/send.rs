//! Sends one notification with a plugin, in a fresh instance and within the limits of a poll.

use crate::call::Usage;
use crate::convert;
use crate::fault::plugin_fault;
use crate::host::State;
use crate::host::v0_1::{notifier, types};
use crate::plugin::RoleExports;
use crate::progress::{Open, Progress};
use crate::run::{Job, Prepared, Sandbox};
use egress::Seen;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use model::{Failure, FailureCategory, Notification, NotifiedAlert, PluginValues, Status, Timestamp};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wasmtime::Store;

/// An attempt to deliver a notification.
pub struct Attempt {
    /// The notification, with the alerts that are not delivered yet.
    pub notification: Notification,
    /// When the notification was made.
    pub created: Timestamp,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// Keeps what becomes of each alert.
    pub progress: Arc<dyn Progress>,
}

impl Attempt {
    /// The first attempt of a notification that is not stored.
    pub fn first(notification: Notification, created: Timestamp, progress: Arc<dyn Progress>) -> Self {
        Self { notification, created, number: 1, progress }
    }
}

/// The result of an attempt to deliver a notification.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The failure, if the receiver did not take the notification.
    pub result: Result<(), Failure>,
    /// The resources that the attempt used.
    pub usage: Usage,
    /// How its requests ended.
    pub seen: Seen,
    /// The values that the plugin stores for the channel, if they changed.
    pub stored: Option<PluginValues>,
}

impl Sandbox {
    /// Makes an attempt to send a notification. The target of the job is the channel. A panic of the host fails only
    /// this attempt.
    pub fn send(&self, job: Job, attempt: Attempt) -> BoxFuture<'_, Sent> {
        let started = Instant::now();
        let failed = move |_| {
            let message = "Polliwog itself failed while it sent this: please report it with the log".to_owned();
            let usage = Usage { wall: started.elapsed(), ..Usage::default() };
            Sent { result: Err(plugin_fault("host_panic", message)), usage, seen: Seen::default(), stored: None }
        };
        AssertUnwindSafe(self.send_from(started, job, attempt)).catch_unwind().unwrap_or_else(failed).boxed()
    }

    async fn send_from(&self, started: Instant, job: Job, attempt: Attempt) -> Sent {
        let deadline = started + job.timeout;
        let Ok(slot) = timeout_at(deadline, self.slot()).await else {
            let usage = Usage { wall: started.elapsed(), ..Usage::default() };
            return Sent { result: Err(no_slot()), usage, seen: Seen::default(), stored: None };
        };
        let exports = match self.exports(&job.plugin).await {
            Ok(exports) => exports,
            Err(fault) => {
                let usage = Usage { wall: started.elapsed(), ..Usage::default() };
                return Sent { result: Err(fault), usage, seen: Seen::default(), stored: None };
            }
        };
        let wire = wire_notification(&attempt);
        let Prepared { mut call, session, wire_target } = self.with_session(job, deadline, slot);
        let fingerprints = attempt.notification.alerts.into_iter().map(|alert| alert.fingerprint);
        call.progress = Some(Open::new(fingerprints, attempt.progress));
        let enter = move |mut store: Store<State>| async move {
            let sent = async {
                let RoleExports::Notifier(notifier) = &exports.role else {
                    return Err(wasmtime::Error::msg("this plugin polls targets and cannot notify"));
                };
                let instance = exports.pre.instantiate_async(&mut store).await?;
                notifier.load(&mut store, &instance)?.call_send(&mut store, &wire_target, &wire).await
            };
            (sent.await, store)
        };
        let called = self.caller.call(call, enter).await;
        let mut usage = called.usage;
        usage.wall = started.elapsed();
        let result = match called.result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(convert::failure(error)),
            Err(failure) => Err(failure),
        };
        // Without resources of this host, the failure says nothing about the receiver.
        let result = result.map_err(|failure| if session.was_starved() { no_slot() } else { failure });
        Sent { result, usage, seen: session.seen(), stored: called.stored }
    }
}

fn no_slot() -> Failure {
    Failure {
        category: FailureCategory::Transient,
        code: "no_slot".to_owned(),
        cause: model::Cause::Other,
        message: "this host had no free slot for it".to_owned(),
        retry_after: Some(Duration::from_secs(5)),
    }
}

/// Texts come from targets, and plugins put them into requests: control characters must not reach a terminal. Lines and
/// tabs are kept.
fn plain(text: &str) -> String {
    let is_odd = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.replace("\r\n", "\n").replace(is_odd, " ")
}

/// A text of one line, which may become the value of a header.
fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

fn wire_labels(labels: &[(String, String)]) -> Vec<types::Label> {
    labels.iter().map(|(name, value)| types::Label { name: line(name), value: line(value) }).collect()
}

fn wire_notification(attempt: &Attempt) -> notifier::Notification {
    let notification = &attempt.notification;
    notifier::Notification {
        id: notification.id.clone(),
        created_at: attempt.created.as_millis(),
        attempt: attempt.number,
        group: wire_labels(&notification.group),
        alerts: notification.alerts.iter().map(wire_alert).collect(),
        omitted: notification.omitted,
        link: notification.link.clone(),
        extra: Vec::new(),
    }
}

fn wire_alert(alert: &NotifiedAlert) -> notifier::Alert {
    notifier::Alert {
        fingerprint: alert.fingerprint.clone(),
        event: alert.event.as_str().to_owned(),
        status: match alert.status {
            Status::Ok => types::Status::Ok,
            Status::Warning => types::Status::Warning,
            Status::Critical => types::Status::Critical,
            Status::Unknown => types::Status::Unknown,
        },
        class: alert.subject.class().as_str().to_owned(),
        target_id: alert.subject.target().map(ToString::to_string),
        target_name: line(&alert.target_name),
        kind: line(&alert.kind),
        dependency: alert.subject.dependency_name().map(line),
        title: line(&alert.title),
        summary: plain(&alert.summary),
        since: alert.since.as_millis(),
        resolved_at: alert.resolved_at.map(Timestamp::as_millis),
        labels: wire_labels(&alert.labels),
        link: alert.link.as_deref().map(line),
        object_link: alert.object_link.as_deref().map(line),
        suppresses: alert.suppresses,
        extra: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{line, plain};

    #[test]
    fn texts_of_targets_have_no_control_characters() {
        let text = "a ${secret.token}\u{1b}[31m\r\nb\tc";
        assert_eq!(plain(text), "a ${secret.token} [31m\nb\tc");
        assert_eq!(line(text), "a ${secret.token} [31m b c");
    }
}
