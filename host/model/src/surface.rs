//! What the surfaces (pages, API, metrics, command line) show and do, beside [`TargetState`](crate::TargetState).

use crate::{Counters, FailureCategory, Kind, Place, TargetId, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What an operator wants done with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Poll it now, whatever state it is in.
    PollNow,
    /// Take it out of the dead letters and poll it now.
    Retry,
    /// Close its breaker, forget its failures and poll it now.
    ResetBreaker,
    /// Poll it from now on.
    Enable,
    /// Do not poll it any more.
    Disable,
}

/// A command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// There is no target with this id.
    NoTarget(String),
    /// It cannot be done in the present state; one sentence.
    Conflict(String),
    /// There is no such setting; one sentence.
    NoSetting(String),
    /// The input is not valid; one sentence.
    Invalid(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(id) => write!(f, "there is no target {id:?}"),
            Self::Conflict(why) | Self::NoSetting(why) | Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CommandError {}

/// One term of the computation of a due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its name: `min_interval`, `staleness`, ...
    pub name: &'static str,
    /// Its value with its unit.
    pub value: String,
    /// Its meaning, for a person.
    pub meaning: String,
}

/// Why a target is polled next at its due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<T> {
    /// The target.
    pub target: TargetId,
    /// Where it is.
    pub place: Place,
    /// When it is due; `None` while it is not polled at all, or is being polled.
    pub due: Option<T>,
    /// One sentence.
    pub summary: String,
    /// The terms, in the order of the computation.
    pub terms: Vec<Term>,
}

/// The origin of a setting's value. The later ones win over the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// No one set it.
    Default,
    /// The configuration file.
    File,
    /// A setting changed while the host ran.
    Setting,
    /// A setting of a target that no longer exists.
    Orphan,
    /// The environment variable with this name.
    Environment(String),
}

impl SettingSource {
    /// The word used on every surface.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
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
    /// Its value as it is written; `None` if it has none.
    pub value: Option<String>,
    /// The origin of the value.
    pub source: SettingSource,
}

/// A plugin, or a file that was refused.
#[derive(Clone, Debug)]
pub struct PluginState {
    /// `built-in`, or the file.
    pub source: String,
    /// The plugin, or why the file was refused.
    pub served: Result<ServedPlugin, String>,
}

/// A plugin that serves its kind.
#[derive(Clone, Debug)]
pub struct ServedPlugin {
    /// The kind.
    pub kind: Kind,
    /// The plugin's version.
    pub version: String,
    /// The SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// When it is probed next, if it is in quarantine.
    pub quarantined_until: Option<Timestamp>,
    /// What the polls of its kind have used since the host started.
    pub usage: PluginUsage,
}

/// What the polls of a kind have used since the host started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginUsage {
    /// Polls that were run.
    pub polls: u64,
    /// Polls that ended in a fault of the plugin.
    pub faults: u64,
    /// The same by the failure's code.
    pub faults_by_reason: BTreeMap<String, u64>,
    /// CPU time.
    pub cpu: Duration,
    /// Wall-clock time, waiting included.
    pub wall: Duration,
    /// The largest memory of one poll, in bytes.
    pub peak_memory: u64,
    /// Requests made.
    pub requests: u64,
    /// Bytes of response bodies received.
    pub bytes: u64,
    /// Log lines written.
    pub log_lines: u64,
    /// Polls that used a secret, by its name.
    pub secrets: BTreeMap<String, u64>,
}

/// The scheduler and the driver's loop, as of the end of the loop's last turn.
#[derive(Clone, Debug, Default)]
pub struct SchedulerState {
    /// Whether the cadence is adaptive.
    pub adaptive: bool,
    /// How often things happened since the start.
    pub counters: Counters,
    /// Polls in flight, by kind.
    pub in_flight: BTreeMap<Kind, usize>,
    /// Kinds whose plugin is in quarantine, with the time of the next probe.
    pub quarantined: BTreeMap<Kind, Timestamp>,
    /// The target that is due next, and when.
    pub next: Option<(TargetId, Timestamp)>,
    /// When a poll was last started.
    pub last_start: Option<Timestamp>,
    /// How long a poll took on average.
    pub mean_poll: Duration,
    /// A target later than this beyond its due time is overdue.
    pub overdue_after: Duration,
    /// The loop.
    pub turns: LoopState,
}

/// Measurements of the driver's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopState {
    /// Turns so far.
    pub turns: u64,
    /// Time spent in them, waiting excluded.
    pub busy: Duration,
    /// The longest turn.
    pub longest: Duration,
    /// Messages handled in the last turn.
    pub messages: usize,
    /// The most messages handled in one turn.
    pub most_messages: usize,
    /// How many messages the channel holds.
    pub capacity: usize,
    /// How long the oldest message of the last turn had waited.
    pub oldest: Duration,
    /// The longest that a message has waited.
    pub oldest_ever: Duration,
}

/// How a poll went, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct PollMeasure {
    /// How long it took.
    pub wall: Duration,
    /// The category of its failure; `None` if there is a report.
    pub failure: Option<FailureCategory>,
}
