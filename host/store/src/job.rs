//! The jobs of the writer.

use crate::record::{Commit, Progress, Publish};
use model::{AccessChange, AlertChange, Event, EventKind, FleetChange, TargetId, Timestamp};
use std::sync::mpsc::SyncSender;

/// A job for the writer. Jobs are written and published in their order.
pub(crate) enum Job {
    /// A commit and its publication; if that is `None`, the events are announced.
    Commit(Box<Commit>, Option<Publish>),
    /// A publication that runs after all earlier commits.
    Publish(Publish),
    Event(Event),
    /// Alerts that changed without a poll, their events, and their publication.
    Alerts(Vec<AlertChange>, Vec<Event>, Publish),
    /// Schedules and volatile fields, their time, and whether that time may be used to prune history.
    Progress(Vec<Progress>, Timestamp, bool),
    Forget(TargetId),
    Access(AccessChange),
    Setting(SettingChange),
    /// A change of the records for the operator of the fleet. The channel receives a message once it is on disk.
    Fleet(FleetChange, SyncSender<()>),
    Begin(Timestamp),
    Finish(Timestamp),
    Abandon,
}

/// Settings to set; a value of `None` unsets the setting.
pub(crate) struct SettingChange {
    pub values: Vec<(String, Option<String>)>,
    /// The events that tell it.
    pub told: Vec<EventKind>,
    pub at: Timestamp,
    /// Receives a message once the change is on disk.
    pub done: SyncSender<()>,
}
