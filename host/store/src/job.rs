//! The writer's jobs.

use crate::record::{Commit, Progress, Publish};
use model::{Event, TargetId, Timestamp};
use std::sync::mpsc::SyncSender;

/// A job for the writer, in the order of which they are written and published.
pub(crate) enum Job {
    /// A commit, and its publication; without one its events are announced.
    Commit(Box<Commit>, Option<Publish>),
    /// A publication that keeps its place behind commits of its target.
    Publish(Publish),
    Event(Event),
    /// Schedules and volatile fields, their time, and whether that time may be used to prune history.
    Progress(Vec<Progress>, Timestamp, bool),
    Forget(TargetId, Timestamp),
    Token([u8; 32], Timestamp),
    /// A session of pages, and its end; `None` ends it now.
    Session([u8; 32], Option<Timestamp>),
    Setting(SettingChange),
    Begin(Timestamp),
    Finish(Timestamp),
    Abandon,
}

/// Settings to set, or to unset if their value is `None`.
pub(crate) struct SettingChange {
    pub values: Vec<(String, Option<String>)>,
    pub at: Timestamp,
    /// Receives once the change is on disk.
    pub done: SyncSender<()>,
}
