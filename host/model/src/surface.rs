//! Types that pages, API, metrics and command line share, besides [`TargetState`](crate::TargetState).

use crate::{Counters, FailureCategory, Kind, Place, TargetId, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// An operator's command for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Poll the target now, regardless of its state.
    PollNow,
    /// Remove the target from the dead letters and poll it now.
    Retry,
    /// Close the breaker, reset the failures and poll the target now.
    ResetBreaker,
    /// Enable the target.
    Enable,
    /// Disable the target.
    Disable,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// No target has this id.
    NoTarget(String),
    /// The current state does not allow the command; one sentence.
    Conflict(String),
    /// The command names something that does not exist; one sentence.
    Missing(String),
    /// The input is not valid; one sentence.
    Invalid(String),
    /// The configuration file defines the target, so only the file can change it; one sentence.
    InFile(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(id) => write!(f, "there is no target {id:?}"),
            Self::Conflict(why) | Self::Missing(why) | Self::Invalid(why) | Self::InFile(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CommandError {}

/// A change of a target that is not in the file. Definitions are JSON with the keys of a `[[target]]`.
#[derive(Clone, Debug)]
pub enum Definition {
    /// A target that does not exist yet.
    New(String),
    /// Another definition of a target.
    Changed(String),
    /// The target is deleted.
    Deleted,
}

/// One term of the computation of a due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The name of the term: `min_interval`, `staleness`, ...
    pub name: &'static str,
    /// The value with its unit.
    pub value: String,
    /// The meaning in words.
    pub meaning: String,
}

/// The explanation of a target's due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<T> {
    /// The target.
    pub target: TargetId,
    /// The place of the target.
    pub place: Place,
    /// The due time; `None` if the target is not polled, or is being polled now.
    pub due: Option<T>,
    /// The explanation in one sentence.
    pub summary: String,
    /// The terms, in the order of the computation.
    pub terms: Vec<Term>,
}

/// A public page of chosen targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage {
    /// The last part of its address.
    pub name: String,
    /// The heading.
    pub title: String,
    /// The targets, in the order of the page.
    pub targets: Vec<TargetId>,
}

/// The source of a setting's value. Later variants take precedence over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The default value.
    Default,
    /// The configuration file.
    File,
    /// The definition of a target that was made through the API.
    Api,
    /// A deployment that the operator of the fleet assigned.
    Assignment,
    /// A setting that was changed at run time.
    Setting,
    /// A setting of a target that no longer exists.
    Orphan,
    /// The environment variable with this name.
    Environment(String),
}

impl SettingSource {
    /// Returns the name used in API and user interface.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Api => "api",
            Self::Assignment => "assignment",
            Self::Setting | Self::Orphan => "setting",
            Self::Environment(_) => "environment",
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Orphan => f.write_str("setting, of a target that is gone"),
            source => f.write_str(source.as_str()),
        }
    }
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `scheduler.cadence`, `target.ID.interval`, ...
    pub key: String,
    /// The value in the form in which it is written; `None` if the setting has none.
    pub value: Option<String>,
    /// The source of the value.
    pub source: SettingSource,
}

/// A plugin, or a file that was refused.
#[derive(Clone, Debug)]
pub struct PluginState {
    /// `built-in`, or the file.
    pub source: String,
    /// The plugin, or the reason for the refusal.
    pub served: Result<ServedPlugin, String>,
}

/// The description of a kind, for people who define a target.
#[derive(Clone, Debug)]
pub struct KindDescription {
    /// The kind.
    pub kind: Kind,
    /// The display name.
    pub title: String,
    /// One sentence.
    pub summary: String,
    /// The JSON Schema of the settings, as text.
    pub settings_schema: String,
    /// The secrets that a target can have.
    pub secrets: Vec<SecretDescription>,
}

/// A secret that a target of a kind can have.
#[derive(Clone, Debug)]
pub struct SecretDescription {
    /// The name.
    pub name: String,
    /// The purpose.
    pub description: String,
    /// Whether polls fail without it.
    pub required: bool,
}

/// A plugin that serves its kind.
#[derive(Clone, Debug)]
pub struct ServedPlugin {
    /// The kind.
    pub kind: Kind,
    /// Whether it sends notifications instead of polling targets.
    pub is_notifier: bool,
    /// The plugin's version.
    pub version: String,
    /// The SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// The time of the next probe; `None` if the plugin is not in quarantine.
    pub quarantined_until: Option<Timestamp>,
    /// The usage of the polls of its kind since the start of the host.
    pub usage: PluginUsage,
}

/// The usage of the polls of a kind since the start of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginUsage {
    /// Polls that ran.
    pub polls: u64,
    /// Polls that ended in a plugin fault.
    pub faults: u64,
    /// Plugin faults by failure code.
    pub faults_by_reason: BTreeMap<String, u64>,
    /// CPU time.
    pub cpu: Duration,
    /// Wall-clock time, including waiting.
    pub wall: Duration,
    /// The largest memory of one poll, in bytes.
    pub peak_memory: u64,
    /// Requests made.
    pub requests: u64,
    /// Bytes of response bodies received.
    pub bytes: u64,
    /// Log lines written.
    pub log_lines: u64,
    /// Polls that used a secret, by the name of the secret.
    pub secrets: BTreeMap<String, u64>,
}

/// The state of the scheduler and the driver's loop at the end of the last iteration of the loop.
#[derive(Clone, Debug, Default)]
pub struct SchedulerState {
    /// Whether the cadence is adaptive.
    pub adaptive: bool,
    /// Counters since the start of the host.
    pub counters: Counters,
    /// Polls in flight, by kind.
    pub in_flight: BTreeMap<Kind, usize>,
    /// Kinds whose plugin is in quarantine, with the time of the next probe.
    pub quarantined: BTreeMap<Kind, Timestamp>,
    /// The target that is due next, and its due time.
    pub next: Option<(TargetId, Timestamp)>,
    /// When a poll was last started.
    pub last_start: Option<Timestamp>,
    /// The mean duration of a poll.
    pub mean_poll: Duration,
    /// A target counts as overdue this long after its due time.
    pub overdue_after: Duration,
    /// Measurements of the driver's loop.
    pub turns: LoopState,
}

/// Measurements of the driver's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopState {
    /// The number of iterations.
    pub turns: u64,
    /// Time spent in iterations, without waiting.
    pub busy: Duration,
    /// The longest iteration.
    pub longest: Duration,
    /// Messages handled since the start.
    pub handled: u64,
    /// Messages handled in the last iteration.
    pub messages: usize,
    /// The maximum number of messages handled in one iteration.
    pub most_messages: usize,
    /// The capacity of the message channel.
    pub capacity: usize,
    /// The waiting time of the oldest message of the last iteration.
    pub oldest: Duration,
    /// The longest waiting time of any message.
    pub oldest_ever: Duration,
}

/// The durations of the phases of a poll's requests, in milliseconds, as sums. Reused connections skip the first three.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phases {
    /// The look-up of names.
    pub dns: f32,
    /// Connecting.
    pub connect: f32,
    /// The TLS handshake.
    pub tls: f32,
    /// Waiting for the first byte of the answer.
    pub wait: f32,
    /// Reading the rest of the answer.
    pub read: f32,
}

/// The duration, cost and result of a poll.
#[derive(Clone, Copy, Debug)]
pub struct PollMeasure {
    /// The end of the poll.
    pub at: Timestamp,
    /// The duration of the poll.
    pub wall: Duration,
    /// The processor time of the plugin.
    pub cpu: Duration,
    /// The number of requests.
    pub requests: u32,
    /// The number of bytes of response bodies.
    pub bytes: u64,
    /// The time spent on its requests.
    pub phases: Phases,
    /// The category of the failure; `None` if the poll returned a report.
    pub failure: Option<FailureCategory>,
}
