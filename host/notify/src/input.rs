//! The inputs and actions of the notifier.

use crate::route::Route;
use crate::silence::Silence;
use model::{
    AlertRecord, Before, Class, LastPoller, Moment, Notification, Status, Subject, TargetId, TargetTraits, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The present time on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Measures waits.
    pub moment: Moment,
    /// Dates alerts, and decides which silences are active.
    pub wall: Timestamp,
}

impl Now {
    /// Returns the moment of a time in the past; now if the time is in the future.
    pub(crate) fn moment_of(self, at: Timestamp) -> Moment {
        self.moment.before(self.wall.since(at))
    }
}

/// The configuration of the notifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The routes, in order.
    pub routes: Vec<Route>,
    /// The channels by name.
    pub channels: BTreeMap<String, ChannelTraits>,
    /// The number of reports in a row that confirm an alert.
    pub confirm: u32,
    /// The number of reports in a row that end an alert.
    pub recover: u32,
    /// How long an alert waits for the alert of a target that its own target needs, which would explain it.
    pub parent_wait: Duration,
    /// How long after the start of the process a failure needs one more report, and all alerts of a route are one
    /// group.
    pub startup_grace: Duration,
    /// Distinguishes this installation's fingerprints and notifications from those of others.
    pub installation: String,
    /// The address of this host for links, without a slash at its end; `None` if it is not configured.
    pub address: Option<String>,
    /// The deployments of a fleet that this host stands by for: another device may poll their targets.
    pub standby: BTreeSet<String>,
}

/// The properties of a channel that decide which notifications it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraits {
    /// Whether the receiver groups alerts, and must get each of them.
    pub needs_every_alert: bool,
}

/// The properties of a target that decide its alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// The id.
    pub id: TargetId,
    /// Its properties, which its alerts share.
    pub traits: Arc<TargetTraits>,
    /// The host that the target's polls connect to; `None` if it is unknown.
    pub host: Option<String>,
    /// The number of reports in a row that confirm an alert; `None` for that of the route.
    pub confirm: Option<u32>,
    /// The number of reports in a row that end an alert; `None` for that of the route.
    pub recover: Option<u32>,
    /// The targets, or single dependencies of them, that this target needs.
    pub depends_on: Vec<(TargetId, Option<String>)>,
    /// Whether the target is polled.
    pub is_enabled: bool,
    /// Whether dependencies with a warning alert, too.
    pub alerts_on_warnings: bool,
    /// How long a dependency is unknown, or the report empty, before that alerts; `None` if it never does.
    pub unknown_after: Option<Duration>,
    /// How long a dependency is missing before that alerts; `None` if it never does.
    pub missing_after: Option<Duration>,
    /// Whether nothing of the target worked in its last report, for the time until its next one.
    pub was_down: bool,
}

/// The state of a dependency in the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The dependency is critical or has a warning, which the status says.
    Unhealthy(Status),
    /// The dependency works.
    Healthy,
    /// The check of the dependency was skipped on purpose.
    Skipped,
    /// The last report does not say.
    Unknown,
    /// The dependency is no longer reported, since this time.
    Missing(Timestamp),
    /// The dependency was removed on purpose.
    Gone,
}

/// A dependency that is not healthy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding<'a> {
    /// The dependency's name.
    pub dependency: &'a str,
    /// `Unhealthy`, `Unknown` or `Missing`.
    pub health: Health,
    /// The title for users, if the name is not descriptive.
    pub title: Option<&'a str>,
    /// The error message.
    pub message: Option<&'a str>,
    /// The address of the dependency in the user interface of its source.
    pub link: Option<&'a str>,
}

impl<'a> Finding<'a> {
    /// Returns the title of its alert: the name if it has no other.
    pub(crate) fn shown_title(&self) -> &'a str {
        self.title.unwrap_or(self.dependency)
    }
}

/// Access to the known state of a target after a report.
pub trait Reading {
    /// Returns the dependencies that are critical, have a warning, are unknown or missing.
    fn findings(&self) -> Vec<Finding<'_>>;
    /// Returns why the report has no dependency; `None` if it has one.
    fn empty(&self) -> Option<String>;
    /// Returns the state of a dependency.
    fn health(&self, dependency: &str) -> Health;
    /// Returns the dependencies of the same report that this one runs on, and that can be the cause of its status.
    fn runs_on(&self, dependency: &str) -> &[String];
    /// Returns whether the target does not work: its main dependency is critical or, if it has none, all are.
    fn is_down(&self) -> bool;
}

/// The result of a poll.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// The poll returned a report.
    Report(&'a dyn Reading),
    /// The poll returned a report that says of each dependency what the target's last report said.
    Repeated(&'a dyn Reading),
    /// The poll failed.
    Failed {
        /// Whether it failed in name resolution, connecting, or by a time-out.
        is_network: bool,
        /// The reason, if the target cannot be polled any more; `None` while its breaker is closed.
        unreachable: Option<&'a str>,
    },
}

/// A poll that ended.
#[derive(Clone, Copy)]
pub struct Polled<'a> {
    /// The target.
    pub target: &'a TargetId,
    /// The result.
    pub outcome: Outcome<'a>,
}

/// Something that is wrong and is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The name: of the plugin, deployment, device or channel.
    pub name: String,
    /// The title for users.
    pub title: String,
    /// The reason.
    pub message: Option<String>,
}

/// The alerts of a deployment when this host begins to poll its targets.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenOver {
    /// The deployment.
    pub deployment: String,
    /// The alerts of the last device. Those of targets that this host does not have are over, because these were
    /// removed.
    pub alerts: Vec<AlertRecord>,
    /// The device that polled last.
    pub by: LastPoller,
}

/// An input of the notifier.
pub enum Input<'a> {
    /// The configuration changed.
    Settings(Settings),
    /// The complete list of targets changed.
    Targets(Vec<TargetSpec>),
    /// The complete list of silences changed.
    Silences(Vec<Silence>),
    /// A poll ended.
    Polled(Polled<'a>),
    /// The complete list of what is wrong in one class.
    Troubles(Class, Vec<Trouble>),
    /// An operator acknowledged an alert, or took that back.
    Acknowledge {
        /// The alert.
        subject: Subject,
        /// The operator; `None` to take the acknowledgement back.
        by: Option<String>,
    },
    /// An operator dismissed dependencies that are no longer reported.
    Dismissed(Vec<Subject>),
    /// This host polls the targets of a deployment from now on, of which one device polls at a time.
    TakenOver(TakenOver),
    /// Alerts of messages that are not sent any more.
    NotSent(Vec<Unsent>),
    /// The number of notifications of a channel that are not delivered yet.
    Undelivered(String, usize),
    /// Time passed.
    Tick,
}

/// An alert of a message that is not sent any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The channel.
    pub channel: String,
    /// The alert.
    pub subject: Subject,
    /// The message about the alert before this one; [`Before::Unknown`] if this one may have arrived.
    pub before: Before,
}

/// An action of the notifier.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Store the record of an alert.
    Save(Arc<AlertRecord>),
    /// Delete the record of an alert.
    Forget(Subject),
    /// Store a notification and deliver it.
    Notify(Notification),
    /// Announce that an alert fires.
    Firing(Subject),
    /// Announce that an alert is over.
    Resolved(Subject),
    /// Announce that an alert is suppressed, and the alert that explains it.
    Suppressed(Subject, Subject),
    /// Send nothing more about the alert with this fingerprint: another device has it.
    HandedOver(String),
    /// Do not send what waits about the alert with this fingerprint: it fires, and an operator has seen it.
    Withdraw(String),
}
