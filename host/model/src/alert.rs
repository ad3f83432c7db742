//! Alerts and notifications: things that are wrong, and the messages about them.
//!
//! The words are those of Alertmanager. An alert is identified by its [`Subject`]; an *episode* of it begins when it is
//! first observed and ends when it resolves.

use crate::{InvalidId, Status, TargetId, Timestamp};
use std::sync::Arc;

/// The thing that an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A dependency of a target is unhealthy.
    Dependency {
        /// The target.
        target: TargetId,
        /// The dependency's name.
        dependency: Arc<str>,
    },
    /// A target cannot be polled.
    Target(TargetId),
    /// Anything else: a plugin, the host, a deployment, a device or a channel.
    Other(Class, Arc<str>),
}

/// The class of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A dependency is unhealthy.
    Dependency,
    /// A target cannot be polled.
    Unreachable,
    /// A plugin is refused or in quarantine.
    Plugin,
    /// The host itself has a fault: its database, its network.
    Host,
    /// A deployment of the fleet failed.
    Deployment,
    /// A device of the fleet is not heard.
    Device,
    /// A channel does not deliver.
    Channel,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 7] =
        [Self::Dependency, Self::Unreachable, Self::Plugin, Self::Host, Self::Deployment, Self::Device, Self::Channel];

    /// Returns the name used in configuration, API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dependency => "dependency",
            Self::Unreachable => "unreachable",
            Self::Plugin => "plugin",
            Self::Host => "host",
            Self::Deployment => "deployment",
            Self::Device => "device",
            Self::Channel => "channel",
        }
    }

    /// Returns the class with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

impl Subject {
    /// Creates the subject of a dependency.
    pub fn dependency(target: &TargetId, dependency: impl Into<Arc<str>>) -> Self {
        Self::Dependency { target: target.clone(), dependency: dependency.into() }
    }

    /// Restores a subject from its class, name and dependency. Fails if the name of a target is not a valid id.
    pub fn new(class: Class, name: &str, dependency: &str) -> Result<Self, InvalidId> {
        Ok(match class {
            Class::Dependency => Self::dependency(&TargetId::new(name)?, dependency),
            Class::Unreachable => Self::Target(TargetId::new(name)?),
            class => Self::Other(class, name.into()),
        })
    }

    /// Returns the class.
    pub const fn class(&self) -> Class {
        match self {
            Self::Dependency { .. } => Class::Dependency,
            Self::Target(_) => Class::Unreachable,
            Self::Other(class, _) => *class,
        }
    }

    /// Returns the id of the target, or the name of the plugin, deployment, device or channel.
    pub fn name(&self) -> &str {
        match self {
            Self::Dependency { target, .. } | Self::Target(target) => target.as_str(),
            Self::Other(_, name) => name,
        }
    }

    /// Returns the target; `None` if the alert is not about one.
    pub const fn target(&self) -> Option<&TargetId> {
        match self {
            Self::Dependency { target, .. } | Self::Target(target) => Some(target),
            Self::Other(..) => None,
        }
    }

    /// Returns the dependency's name; `None` if the alert is not about one.
    pub fn dependency_name(&self) -> Option<&str> {
        match self {
            Self::Dependency { dependency, .. } => Some(dependency),
            _ => None,
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dependency { target, dependency } => write!(f, "{target}/{dependency}"),
            Self::Target(target) => write!(f, "{target}"),
            Self::Other(class, name) => write!(f, "{} {name}", class.as_str()),
        }
    }
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertState {
    /// Observed, and not yet in as many reports as confirm it.
    Pending,
    /// Confirmed.
    Firing,
    /// Over.
    Resolved,
}

impl AlertState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Firing, Self::Resolved];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }

    /// Returns the state with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The reason for the end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The subject is healthy again.
    Recovered,
    /// The dependency has a warning, for which no alerts are wanted.
    Eased,
    /// The check of the dependency is skipped on purpose.
    Skipped,
    /// The dependency is no longer reported, and an operator dismissed it.
    Missing,
    /// The dependency was removed from its source on purpose.
    Gone,
    /// The target was removed.
    Removed,
    /// The target was disabled.
    Disabled,
    /// Another device of the fleet polls the target now, and has the alert.
    HandedOver,
}

impl Resolution {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::Recovered,
        Self::Eased,
        Self::Skipped,
        Self::Missing,
        Self::Gone,
        Self::Removed,
        Self::Disabled,
        Self::HandedOver,
    ];

    /// Returns the name used in API and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Eased => "eased",
            Self::Skipped => "skipped",
            Self::Missing => "missing",
            Self::Gone => "gone",
            Self::Removed => "removed",
            Self::Disabled => "disabled",
            Self::HandedOver => "handed_over",
        }
    }

    /// Returns the reason with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolution| resolution.as_str() == word)
    }
}

/// An operator's acknowledgement of an alert. It ends when the alert resolves or gets worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The operator.
    pub by: String,
    /// The time.
    pub at: Timestamp,
    /// The alert's status at that time.
    pub status: Status,
}

/// The kind of a message about an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertEvent {
    /// The alert fires, or got worse.
    Firing,
    /// The alert is over.
    Resolved,
    /// The alert fires and resolves repeatedly. No message follows until it is stable.
    Flapping,
    /// The alert fires still.
    Repeated,
    /// An operator tests the channel.
    Test,
}

impl AlertEvent {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Firing, Self::Resolved, Self::Flapping, Self::Repeated, Self::Test];

    /// Returns the name used in API, messages and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
            Self::Flapping => "flapping",
            Self::Repeated => "repeated",
            Self::Test => "test",
        }
    }

    /// Returns the kind with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

/// The last message about an alert that was queued for a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastNotified {
    /// The channel.
    pub channel: String,
    /// The kind of the message; a repetition is stored as `Firing`.
    pub event: AlertEvent,
    /// The status in the message.
    pub status: Status,
    /// The time.
    pub at: Timestamp,
}

/// The status of a [`LastNotified`] of which it is not known whether it arrived: worse than that is news.
pub const MAYBE: Status = Status::Ok;

/// The last message about an alert for a channel when a later one was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// There was none.
    Nothing,
    /// This one.
    Message(LastNotified),
    /// Not known: an older version stored the later message, or its receiver may have taken it.
    Unknown,
}

/// The properties of a target that routes and messages use. All alerts of a target share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetTraits {
    /// The display name.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// The labels, sorted by name.
    pub labels: Vec<(String, String)>,
    /// The deployment of a fleet of which one device polls the target at a time. An alert of the target has the same
    /// identity on each of them.
    pub shared_by: Option<String>,
}

/// An alert as it is stored and shown.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRecord {
    /// The subject, which identifies the alert.
    pub subject: Subject,
    /// The state.
    pub state: AlertState,
    /// `Critical`; `Warning` where an operator asked for alerts about warnings, or a dependency is missing; `Unknown`.
    pub status: Status,
    /// The time of the first observation of this episode.
    pub since: Timestamp,
    /// The end of the episode and its reason; `None` while it lasts.
    pub ended: Option<(Timestamp, Resolution)>,
    /// The properties of the target; empty if the alert is not about one.
    pub traits: Arc<TargetTraits>,
    /// The title for users.
    pub title: String,
    /// The error message.
    pub message: Option<String>,
    /// The address of the dependency in the user interface of its source.
    pub object_link: Option<String>,
    /// The names of the dependencies of the same report that it runs on, the nearest first.
    pub ancestors: Vec<String>,
    /// The times of the last confirmed changes, oldest first.
    pub changes: Vec<Timestamp>,
    /// The time since which the alert is flapping; `None` if it is not.
    pub flapping: Option<Timestamp>,
    /// The acknowledgement, if an operator acknowledged the alert.
    pub acknowledged: Option<Acknowledgement>,
    /// The alert that explains this one, which is therefore held back; `None` if it is not held back.
    pub suppressed_by: Option<Subject>,
    /// The id of the silence that holds the alert back; `None` if none does.
    pub silenced_by: Option<String>,
    /// The last message for each channel, sorted by channel.
    pub notified: Vec<LastNotified>,
}

/// An alert in a notification.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifiedAlert {
    /// Identifies the alert at a receiver: stable over restarts and repetitions.
    pub fingerprint: String,
    /// The kind of the message.
    pub event: AlertEvent,
    /// The subject.
    pub subject: Subject,
    /// The status; `Ok` if the alert is over.
    pub status: Status,
    /// The display name of the target.
    pub target_name: String,
    /// The kind of the target; empty if the alert is not about a target.
    pub kind: String,
    /// The title for users.
    pub title: String,
    /// One sentence that says what is wrong, or how the alert ended.
    pub summary: String,
    /// The start of the episode.
    pub since: Timestamp,
    /// The end of the episode; `None` while it lasts.
    pub resolved_at: Option<Timestamp>,
    /// The labels of the target.
    pub labels: Vec<(String, String)>,
    /// The address of the page about the alert; `None` if the host's own address is not configured.
    pub link: Option<String>,
    /// The address of the dependency in the user interface of its source.
    pub object_link: Option<String>,
    /// The number of alerts that are held back because this one explains them.
    pub suppresses: u32,
    /// The message about the alert before this one.
    pub before: Before,
}

/// An alert that a notification counts and does not list.
#[derive(Clone, Debug, PartialEq)]
pub struct UnlistedAlert {
    /// As in [`NotifiedAlert`].
    pub fingerprint: String,
    /// As in [`NotifiedAlert`].
    pub event: AlertEvent,
    /// As in [`NotifiedAlert`].
    pub subject: Subject,
    /// As in [`NotifiedAlert`].
    pub before: Before,
}

impl From<NotifiedAlert> for UnlistedAlert {
    fn from(alert: NotifiedAlert) -> Self {
        let NotifiedAlert { fingerprint, event, subject, before, .. } = alert;
        Self { fingerprint, event, subject, before }
    }
}

/// A message about one or more alerts for one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Its number: larger than that of every earlier notification in the database.
    pub number: u64,
    /// The idempotency key: unique, and the same for every attempt.
    pub id: String,
    /// The channel.
    pub channel: String,
    /// The name of the route.
    pub route: String,
    /// The attributes that the alerts have in common, by which they were grouped.
    pub group: Vec<(String, String)>,
    /// The alerts, the worst first.
    pub alerts: Vec<NotifiedAlert>,
    /// The number of alerts that the message counts and does not list.
    pub omitted: u32,
    /// Those alerts. A message that an older version stored has none.
    pub unlisted: Vec<UnlistedAlert>,
    /// The address of the page of alerts; `None` if the host's own address is not configured.
    pub link: Option<String>,
}

impl Notification {
    /// Returns what the channel was notified of before about an alert; `None` if this message is not about it.
    pub fn before_of(&mut self, subject: &Subject) -> Option<&mut Before> {
        let listed = self.alerts.iter_mut().find(|alert| alert.subject == *subject).map(|alert| &mut alert.before);
        let unlisted = self.unlisted.iter_mut().find(|alert| alert.subject == *subject);
        listed.or(unlisted.map(|alert| &mut alert.before))
    }

    /// Forgets what the channel was notified of before: it may have taken this message.
    pub fn forget_before(&mut self) {
        let listed = self.alerts.iter_mut().map(|alert| &mut alert.before);
        let all = listed.chain(self.unlisted.iter_mut().map(|alert| &mut alert.before));
        all.for_each(|before| *before = Before::Unknown);
    }

    /// Returns all alerts that it is about, listed or not.
    pub fn into_subjects(self) -> impl Iterator<Item = Subject> {
        let listed = self.alerts.into_iter().map(|alert| alert.subject);
        listed.chain(self.unlisted.into_iter().map(|alert| alert.subject))
    }
}

/// The device of a fleet that polled the targets of a deployment last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastPoller {
    /// This one: what it knows is at least as new as the record.
    ThisDevice,
    /// Another one: what channels were notified of is in its record.
    Another,
    /// The record cannot be read: channels are notified again.
    Unknown,
}

/// A silence as readers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SilenceState {
    /// The id.
    pub id: String,
    /// The conditions: attributes, and each with its condition as it was written.
    pub conditions: Vec<(String, String)>,
    /// The period.
    pub period: SilencePeriod,
    /// Whether it is active now.
    pub is_active: bool,
    /// The author; the name of the file for a silence in it.
    pub author: String,
    /// The reason.
    pub comment: String,
    /// Whether the configuration's file has it.
    pub is_in_file: bool,
}

/// The period of a silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SilencePeriod {
    /// From a start to an end.
    Once(Timestamp, Timestamp),
    /// Days and times, and the IANA name of their time zone.
    Recurring(String, String),
}

/// The definition of a silence with an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSilence {
    /// The conditions: attributes, and each with its condition.
    pub conditions: Vec<(String, String)>,
    /// The start.
    pub start: Timestamp,
    /// The end.
    pub end: Timestamp,
    /// The author.
    pub author: String,
    /// The reason.
    pub comment: String,
}
