//! What this room needs of the host, and what it is shown.

use crate::auth::TokenHash;
use futures_util::future::BoxFuture;
use model::{FailureCategory, Kind, Sample, Status, TargetId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Stored events with their places in the sequence; nothing when some of those asked for are gone.
pub type StoredEvents = Option<Vec<(i64, model::Event)>>;

/// Reads and commands. Reads answer from what is committed.
pub trait Host: Send + Sync + 'static {
    /// Everything that pages and lists show.
    fn overview(&self) -> BoxFuture<'_, Overview>;
    /// Whether this process works; if not, why, and then it should be started again.
    fn health(&self) -> Result<(), String>;
    /// Whether polls run and results are stored; if not, why.
    fn readiness(&self) -> Result<(), String>;
    /// Does something with a target.
    fn ask(&self, target: &TargetId, wish: Wish) -> BoxFuture<'_, Result<(), CommandError>>;
    /// Forgets a missing dependency of a target, or all of them; how many that were.
    fn dismiss(&self, target: &TargetId, dependency: Option<String>) -> BoxFuture<'_, Result<usize, CommandError>>;
    /// Why a target is polled next when it is.
    fn explain(&self, target: &TargetId) -> BoxFuture<'_, Result<ExplanationView, CommandError>>;
    /// Every setting with its value and where that comes from.
    fn settings(&self) -> SettingsView;
    /// Changes settings; a value of nothing unsets. All of them, or none.
    fn set(&self, changes: Vec<(String, Option<String>)>) -> BoxFuture<'_, Result<(), CommandError>>;
    /// The plugins that serve, and those that were refused.
    fn plugins(&self) -> BoxFuture<'_, Vec<PluginView>>;
    /// Stored events after a place in the sequence.
    fn events_after(&self, sequence: i64, limit: u32) -> BoxFuture<'_, Result<StoredEvents, String>>;
    /// Keeps a session of pages until its end, over a restart too; without an end it is over.
    fn keep_session(&self, hash: TokenHash, until: Option<Timestamp>);
    /// Makes another admin token and returns it; the one before is not right any more.
    fn rotate_token(&self) -> Result<String, CommandError>;
    /// Unpredictable text, for a session's id.
    fn random_id(&self) -> String;
    /// A target's name.
    fn target_name(&self, target: &TargetId) -> Option<String>;
    /// The time.
    fn now(&self) -> Timestamp;
}

/// A command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such target.
    #[error("there is no target {0:?}")]
    NoTarget(String),
    /// It cannot be done in the state things are in.
    #[error("{0}")]
    Conflict(String),
    /// There is no such setting.
    #[error("{0}")]
    NoSetting(String),
    /// What was sent makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// What can be done with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Poll it now, whatever state it is in.
    Poll,
    /// Take it out of the dead letters and poll it now.
    Retry,
    /// Close its breaker, forget its failures and poll it now.
    ResetBreaker,
}

/// Why a target is polled next when it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplanationView {
    /// Where it is: `queued`, `in_flight`, ...
    pub place: &'static str,
    /// When it is polled next; nothing while it is not, or while it is being polled.
    pub next_run: Option<Timestamp>,
    /// One sentence.
    pub summary: String,
    /// Each term of the computation: its name, its value, what it means.
    pub terms: Vec<(&'static str, String, String)>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingView {
    /// `scheduler.cadence`, `target.ID.interval`, ...
    pub key: String,
    /// Its value as it is written; nothing where nobody set one.
    pub value: Option<String>,
    /// `default`, `file`, `setting` or `environment`.
    pub source: &'static str,
    /// The same for a person, with the variable's name.
    pub from: String,
}

/// Every setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsView {
    /// The configuration's file.
    pub file: String,
    /// What is wrong with the file as it is now; the host goes on with what it was before.
    pub problems: Vec<String>,
    /// Those of the scheduler, then those of each target.
    pub settings: Vec<SettingView>,
}

/// RedFlag's numbers, and why polls were held back.
#[derive(Clone, Debug, Default)]
pub struct SchedulerView {
    /// Polls started.
    pub started: u64,
    /// Polls that brought a report.
    pub succeeded: u64,
    /// Polls that brought none.
    pub failed: u64,
    /// Polls left out because results waited for the database.
    pub skipped_unwritten: u64,
    /// Polls held back or left out, by reason.
    pub held: Vec<(&'static str, u64)>,
    /// Whoever is due next, of which kind, when, and at which interval.
    pub next: Option<(TargetId, Kind, Timestamp, Option<Duration>)>,
    /// When a poll was last started.
    pub last_start: Option<Timestamp>,
    /// How long a poll took on average.
    pub mean_poll: Duration,
}

/// The host at one moment.
#[derive(Clone, Debug)]
pub struct Overview {
    /// When.
    pub at: Timestamp,
    /// Whether the cadence is adaptive.
    pub adaptive: bool,
    /// Targets that wait for their due time, a host or a cap.
    pub depth: usize,
    /// Those of them that are due within 12 seconds.
    pub due_soon: usize,
    /// The depth by kind.
    pub depth_by_kind: BTreeMap<Kind, usize>,
    /// Polls in flight, by kind.
    pub in_flight: BTreeMap<Kind, usize>,
    /// The scheduler's own numbers.
    pub scheduler: SchedulerView,
    /// Every target, by id.
    pub targets: Vec<TargetView>,
    /// The plugins that serve, and the files that were refused.
    pub plugins: Vec<PluginView>,
    /// The process.
    pub process: ProcessView,
}

/// Numbers of the process.
#[derive(Clone, Debug, Default)]
pub struct ProcessView {
    /// When it started; `None` while the scheduling thread does not answer.
    pub started: Option<Timestamp>,
    /// How many problems keep the configuration, or a setting, from being active.
    pub problems: usize,
    /// Counters and gauges: name, help, whether it only goes up, value.
    pub numbers: Vec<(&'static str, &'static str, bool, f64)>,
}

/// One target.
#[derive(Clone, Debug)]
pub struct TargetView {
    /// Its id.
    pub id: TargetId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its URL.
    pub url: String,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// Whether it is polled at all.
    pub enabled: bool,
    /// Where it is: `queued`, `in_flight`, ...
    pub place: &'static str,
    /// Its cadence.
    pub cadence: &'static str,
    /// Its interval as computed last.
    pub interval: Option<Duration>,
    /// When it is polled next; nothing while it is not.
    pub next_run: Option<Timestamp>,
    /// Its last success.
    pub last_success: Option<Timestamp>,
    /// When it was last polled.
    pub last_polled: Option<Timestamp>,
    /// Why its last poll failed.
    pub last_error: Option<PollErrorView>,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it cannot be polled: the scheduler says from which failure on.
    pub unreachable: bool,
    /// When the first of them was.
    pub first_failure: Option<Timestamp>,
    /// Staleness, 0 to 1.
    pub staleness: f64,
    /// Since when what is known is stale.
    pub stale_since: Option<Timestamp>,
    /// Its breaker.
    pub breaker: BreakerView,
    /// Whether it is a dead letter.
    pub dead: Option<DeadView>,
    /// What the plugin could not read.
    pub warnings: Vec<String>,
    /// What is known.
    pub dependencies: Vec<DependencyView>,
    /// What its plugin reported as numbers; empty while it fails.
    pub samples: Arc<Vec<Sample>>,
}

/// Why a poll failed.
#[derive(Clone, Debug)]
pub struct PollErrorView {
    /// When.
    pub at: Timestamp,
    /// Whose failure.
    pub category: FailureCategory,
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

/// A breaker.
#[derive(Clone, Debug)]
pub struct BreakerView {
    /// `closed`, `open` or `half_open`.
    pub state: &'static str,
    /// When it came into its state.
    pub since: Option<Timestamp>,
    /// When the next probe runs.
    pub retry_at: Option<Timestamp>,
}

/// A dead letter.
#[derive(Clone, Debug)]
pub struct DeadView {
    /// `permanent_failure` or `max_retry_attempts`.
    pub reason: &'static str,
    /// When it became one.
    pub since: Timestamp,
    /// The last failed look.
    pub last_attempt: Timestamp,
    /// How many times it was sent there.
    pub retries: u32,
}

/// One dependency.
#[derive(Clone, Debug)]
pub struct DependencyView {
    /// Its name.
    pub name: String,
    /// The name that several targets' dependencies share.
    pub canonical: Option<String>,
    /// What a person reads where the name is not enough.
    pub title: Option<String>,
    /// What kind of thing it is.
    pub kind: String,
    /// How it was, when it was last reported.
    pub status: Status,
    /// Whether its check was left out on purpose.
    pub skipped: bool,
    /// The source's code.
    pub code: Option<i32>,
    /// Milliseconds.
    pub latency_ms: Option<f64>,
    /// What it is.
    pub description: Option<String>,
    /// What happens when it fails.
    pub impact: Option<String>,
    /// JSON.
    pub error: Option<model::Json>,
    /// For people.
    pub error_message: Option<String>,
    /// JSON.
    pub contact: Option<model::Json>,
    /// JSON.
    pub check_details: Option<model::Json>,
    /// What it runs on.
    pub parent: Option<String>,
    /// When it was looked at.
    pub checked_at: Timestamp,
    /// When its status last changed.
    pub last_status_change: Option<Timestamp>,
    /// Since when it is no longer reported.
    pub missing_since: Option<Timestamp>,
}

/// A plugin, or a file that was refused.
#[derive(Clone, Debug)]
pub struct PluginView {
    /// The kind it serves; nothing when it was refused.
    pub kind: Option<Kind>,
    /// Its version.
    pub version: Option<String>,
    /// Where it came from: `built-in` or a file.
    pub source: String,
    /// Why it was refused.
    pub refusal: Option<String>,
    /// The SHA-256 of what serves, in hexadecimal.
    pub digest: Option<String>,
    /// When it is tried again, where too many of its polls ended in faults of its own.
    pub quarantined_until: Option<Timestamp>,
    /// What its kind's polls have used since the host started.
    pub usage: PluginUsage,
}

/// What a kind's polls have used since the host started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginUsage {
    /// Polls that were run.
    pub polls: u64,
    /// Those of them that ended in the plugin's own fault.
    pub faults: u64,
    /// The same by reason: the failure's code.
    pub faults_by_reason: BTreeMap<String, u64>,
    /// CPU time.
    pub cpu: Duration,
    /// Wall clock, waiting included.
    pub wall: Duration,
    /// Bytes of memory of the poll that had most.
    pub peak_memory: u64,
    /// Requests made.
    pub requests: u64,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Log lines written.
    pub log_lines: u64,
    /// Polls that used a secret, by its name.
    pub secrets: BTreeMap<String, u64>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A target that was not polled yet.
    pub(crate) fn target(id: &str) -> TargetView {
        TargetView {
            id: TargetId::new(id).unwrap(),
            name: id.to_owned(),
            kind: Kind::new("http").unwrap(),
            url: format!("http://{id}/"),
            labels: Vec::new(),
            enabled: true,
            place: "queued",
            cadence: "adaptive",
            interval: None,
            next_run: None,
            last_success: None,
            last_polled: None,
            last_error: None,
            failures: 0,
            unreachable: false,
            first_failure: None,
            staleness: 1.0,
            stale_since: None,
            breaker: BreakerView { state: "closed", since: None, retry_at: None },
            dead: None,
            warnings: Vec::new(),
            dependencies: Vec::new(),
            samples: Arc::default(),
        }
    }

    /// A dependency of which only that is known.
    pub(crate) fn dependency(name: &str, status: Status) -> DependencyView {
        DependencyView {
            name: name.to_owned(),
            canonical: None,
            title: None,
            kind: "other".to_owned(),
            status,
            skipped: false,
            code: None,
            latency_ms: None,
            description: None,
            impact: None,
            error: None,
            error_message: None,
            contact: None,
            check_details: None,
            parent: None,
            checked_at: Timestamp::from_millis(0),
            last_status_change: None,
            missing_since: None,
        }
    }
}
