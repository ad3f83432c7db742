//! What this crate needs of the host: point queries and commands.

use crate::auth::TokenHash;
use futures_util::future::BoxFuture;
use metrics::Reading;
use model::{
    Ask, CommandError, Explanation, PluginState, SchedulerState, SequencedEvent, Setting, TargetId, TargetState,
    Timestamp,
};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;

/// Reads and commands. Reads are answered from committed state, without waiting for the scheduling loop.
pub trait Host: Send + Sync + 'static {
    /// One target; `None` if there is none with this id.
    fn target(&self, id: &TargetId) -> Option<Arc<TargetState>>;

    /// Every target, by id.
    fn targets(&self) -> Vec<Arc<TargetState>>;

    /// The scheduler and its loop.
    fn scheduler(&self) -> Arc<SchedulerState>;

    /// The plugins that serve, and the files that were refused.
    fn plugins(&self) -> Vec<PluginState>;

    /// Counters and gauges of the process.
    fn process(&self) -> Vec<Reading>;

    /// When the process started.
    fn started(&self) -> Timestamp;

    /// The events from now on.
    fn listen(&self) -> Receiver<Arc<SequencedEvent>>;

    /// Stored events after a place in the sequence; `None` if some of them are gone.
    fn events_after(&self, sequence: i64, limit: u32) -> BoxFuture<'_, Result<Option<Vec<SequencedEvent>>, String>>;

    /// Whether this process works; if not, why. Then it should be restarted.
    fn health(&self) -> Result<(), String>;

    /// Whether polls run and results are stored; if not, why.
    fn readiness(&self) -> Result<(), String>;

    /// Resolves when the scheduling loop has handled a message.
    fn loop_answers(&self) -> BoxFuture<'_, bool>;

    /// Does something with a target's schedule.
    fn ask(&self, target: &TargetId, ask: Ask) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Forgets a missing dependency of a target, or all of them. Returns their number.
    fn dismiss(&self, target: &TargetId, dependency: Option<String>) -> BoxFuture<'_, Result<usize, CommandError>>;

    /// Explains when a target is polled next.
    fn explain(&self, target: &TargetId) -> BoxFuture<'_, Result<Explanation<Timestamp>, CommandError>>;

    /// The name of the configuration's file.
    fn settings_file(&self) -> String;

    /// The problems that keep the configuration, or a setting, from being active; one sentence each.
    fn problems(&self) -> Vec<String>;

    /// Every setting: those of the scheduler, then those of each target.
    fn settings(&self) -> Vec<Setting>;

    /// The settings of one target.
    fn settings_of(&self, target: &TargetId) -> Vec<Setting>;

    /// The setting with this key.
    fn setting(&self, key: &str) -> Option<Setting>;

    /// Changes settings: all of them, or none. A value of `None` unsets.
    fn set(&self, changes: Vec<(String, Option<String>)>) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Keeps a session of pages until its end, also over a restart; `None` ends it.
    fn keep_session(&self, hash: TokenHash, until: Option<Timestamp>);

    /// Replaces the admin token. Returns the new one.
    fn rotate_token(&self) -> Result<String, CommandError>;

    /// Unpredictable text, for a session's id.
    fn random_id(&self) -> String;

    /// The time.
    fn now(&self) -> Timestamp;
}
