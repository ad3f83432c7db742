//! The interface between this crate and the host: point queries and commands.

use crate::fleet::Fleet;
use axum::body::Bytes;
use futures_util::future::BoxFuture;
use metrics::Reading;
use model::{
    AccessChange, AlertRecord, Ask, ChannelState, CommandError, Definition, Delivery, DeliveryFilter, Explanation,
    History, KindDescription, LatencySummary, NewSilence, PluginState, PollMeasure, Replay, RouteExplanation,
    RouteStep, SchedulerState, SequencedEvent, Setting, SilenceState, StatusPage, Subject, TargetId, TargetSource,
    TargetState, TestStep, Tested, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;

/// The past of a target: its changes, and the latencies of one of its dependencies.
pub type Recent = (History, Vec<LatencySummary>);

/// Reads and commands. Reads are answered from committed state, without waiting for the scheduling loop.
pub trait Host: Send + Sync + 'static {
    /// The target with this id; `None` if the id is unknown.
    fn target(&self, id: &TargetId) -> Option<Arc<TargetState>>;

    /// Every target, ordered by id.
    fn targets(&self) -> Vec<Arc<TargetState>>;

    /// The last polls of a target, newest first.
    fn polls(&self, id: &TargetId) -> Vec<PollMeasure>;

    /// The state of the scheduler and of its loop.
    fn scheduler(&self) -> Arc<SchedulerState>;

    /// The served plugins and the refused files.
    fn plugins(&self) -> Vec<PluginState>;

    /// Adds a file to the plugin directory, or replaces it, and removes it if there is no content. The host judges the
    /// file afterwards, as any other file there.
    fn change_plugin(&self, file: String, content: Option<Bytes>) -> BoxFuture<'_, Result<(), CommandError>>;

    /// The kinds that plugins serve, for people who define targets.
    fn kinds(&self) -> Vec<KindDescription>;

    /// The process's counters and gauges.
    fn process(&self) -> Vec<Reading>;

    /// When the process started.
    fn started(&self) -> Timestamp;

    /// Subscribes to new events.
    fn listen(&self) -> Receiver<Arc<SequencedEvent>>;

    /// Returns up to `limit` stored events after this sequence number; `None` if some of them were pruned.
    fn events_after(&self, sequence: i64, limit: u32) -> BoxFuture<'_, Result<Option<Vec<SequencedEvent>>, String>>;

    /// Returns up to `limit` stored events before this sequence number, newest first: of a target and of a name, or of
    /// all.
    fn events_before(
        &self,
        sequence: i64,
        of: (Option<String>, Option<String>),
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<SequencedEvent>, String>>;

    /// Returns what is stored of a target's past since a time.
    fn history(&self, target: &TargetId, since: Timestamp) -> BoxFuture<'_, Result<History, String>>;

    /// Returns the past of several targets since a time within the last days: their changes, and for each the latencies
    /// of five minutes of the dependency with a slot, if any.
    fn recent(
        &self,
        targets: Vec<(TargetId, Option<u32>)>,
        since: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<Recent>, String>>;

    /// Returns the stored latencies of a target since a time, by the slots of its dependencies: of the dependency with
    /// one slot, or of all; of hours, or of five minutes.
    fn latencies(
        &self,
        target: &TargetId,
        of: (Timestamp, Option<u32>),
        hours: bool,
    ) -> BoxFuture<'_, Result<BTreeMap<u32, Vec<LatencySummary>>, String>>;

    /// Fails with the reason if this process does not work and should be restarted.
    fn health(&self) -> Result<(), String>;

    /// Fails with the reason if polls do not run or results are not stored.
    fn readiness(&self) -> Result<(), String>;

    /// Resolves to true when the scheduling loop has answered a ping, to false if the loop has ended.
    fn loop_answers(&self) -> BoxFuture<'_, bool>;

    /// Applies a command to a target's schedule.
    fn ask(&self, target: &TargetId, ask: Ask) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Forgets one missing dependency of a target, or all if `None`. Returns the number forgotten.
    fn dismiss(&self, target: &TargetId, dependency: Option<String>) -> BoxFuture<'_, Result<usize, CommandError>>;

    /// Explains the time of a target's next poll.
    fn explain(&self, target: &TargetId) -> BoxFuture<'_, Result<Explanation<Timestamp>, CommandError>>;

    /// The name of the configuration's file.
    fn settings_file(&self) -> String;

    /// The problems that keep the configuration or a setting from being active, one sentence each.
    fn problems(&self) -> Vec<String>;

    /// When the clock of the machine was set within the last hour, and by how many milliseconds.
    fn clock_set(&self) -> Option<(Timestamp, i64)>;

    /// The public pages of chosen targets.
    fn status_pages(&self) -> Vec<StatusPage>;

    /// Every setting: first the scheduler's, then each target's.
    fn settings(&self) -> Vec<Setting>;

    /// The settings of one target.
    fn settings_of(&self, target: &TargetId) -> Vec<Setting>;

    /// The setting with this key; `None` if the key is unknown.
    fn setting(&self, key: &str) -> Option<Setting>;

    /// Changes all of these settings or, on failure, none. A value of `None` unsets a setting.
    fn set(&self, changes: Vec<(String, Option<String>)>) -> BoxFuture<'_, Result<(), CommandError>>;

    /// The definition of a target that was made through the API, as JSON with the keys of the file; `None` for other
    /// targets.
    fn definition(&self, target: &TargetId) -> Option<String>;

    /// Makes, changes or deletes a target that is not in the file. The definition is JSON with the keys of the file.
    fn define(&self, target: &TargetId, definition: Definition) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Every alert, by subject.
    fn alerts(&self) -> Vec<Arc<AlertRecord>>;

    /// Acknowledges an alert for an operator, or takes that back without a name.
    fn acknowledge(&self, subject: Subject, by: Option<String>) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Every silence.
    fn silences(&self) -> Vec<SilenceState>;

    /// Makes a silence, or changes the one with this id; without a definition, ends it. Returns its id.
    fn silence(&self, id: Option<String>, silence: Option<NewSilence>) -> BoxFuture<'_, Result<String, CommandError>>;

    /// The open alerts that match all conditions. Fails if a condition is not valid.
    fn matching(&self, conditions: &[(String, String)]) -> Result<Vec<Arc<AlertRecord>>, String>;

    /// Every configured channel.
    fn channels(&self) -> Vec<ChannelState>;

    /// Sends a test notification and waits for its outcome.
    fn test_channel(&self, name: String) -> BoxFuture<'_, Result<(), CommandError>>;

    /// At most `limit` deliveries, the newest first.
    fn deliveries(&self, filter: DeliveryFilter, limit: u32) -> BoxFuture<'_, Result<Vec<Delivery>, String>>;

    /// Tries a delivery again, at once.
    fn retry_delivery(&self, number: u64) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Every route: its name, its conditions, and its channels.
    fn routes(&self) -> Vec<RouteStep>;

    /// Compares an alert of a target, or of a dependency of it, with the routes. `None` if there is no such target.
    fn explain_route(&self, target: &TargetId, dependency: Option<&str>) -> Option<RouteExplanation>;

    /// Every alias by name: its canonical name, and the source.
    fn aliases(&self) -> Vec<(String, String, TargetSource)>;

    /// Makes or changes an alias that is not in the file; without a canonical name, deletes it.
    fn alias(&self, name: String, canonical: Option<String>) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Tests a target step by step. It fails if the target cannot be polled at all.
    fn test(&self, tested: Tested) -> BoxFuture<'_, Result<Vec<TestStep>, CommandError>>;

    /// Replays the recorded changes of a time until now under other cadences and intervals.
    ///
    /// # Errors
    /// If another replay runs, or the database does not answer.
    fn replay(&self, span: Duration) -> BoxFuture<'_, Result<Replay, CommandError>>;

    /// Stores a change of the tokens and sessions.
    fn keep_access(&self, change: AccessChange);

    /// Resolves when every change of the tokens and sessions so far is on disk.
    ///
    /// # Errors
    /// If the database does not take them in time.
    fn access_kept(&self) -> BoxFuture<'_, Result<(), CommandError>>;

    /// Replaces the admin token. Returns the new one.
    fn rotate_token(&self) -> Result<String, CommandError>;

    /// Returns an unpredictable string for a session's id.
    fn random_id(&self) -> String;

    /// The host's part in a fleet; `None` if it has none.
    fn fleet(&self) -> Option<&dyn Fleet>;

    /// The current time.
    fn now(&self) -> Timestamp;
}
