//! Messages to the driver.

use crate::alerts::AlertRules;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use config::AssignedDeployment;
use model::{
    AlertChange, Ask, Class, CommandError, Event, Explanation, Failure, Kind, Moment, Observed, PollFailure,
    PollMeasure, Subject, TargetId, Timestamp,
};
use notify::{TakenOver, Trouble, Unsent};
use scheduler::{Change, Finish, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Aliases, Changes};
use tokio::sync::oneshot;

/// A message to the driver.
pub enum Message {
    /// A poll ended.
    Finished(Box<Finished>),
    /// The store has written results of a target that had the maximum number of waiting results.
    Written(TargetId),
    /// A command for one target.
    Command(TargetId, Command),
    /// An operator acknowledges an alert, or takes that back if there is no name.
    Acknowledge(Subject, Option<String>, oneshot::Sender<Result<(), CommandError>>),
    /// The complete list of what is wrong in one class.
    Troubles(Class, Vec<Trouble>),
    /// The number of notifications of a channel that wait, if they are so many that alerts are held back.
    Undelivered(String, usize),
    /// The alerts of targets that another device of the fleet polled so far. The reply is sent when they are on disk.
    TakenOver(TakenOver, oneshot::Sender<()>),
    /// Alerts of messages that are not sent any more.
    NotSent(Withdrawn),
    /// Settings, targets or plugins changed.
    Reconfigured(Box<Reconfigured>),
    /// Requests a reply, to check that the loop works.
    Ping(oneshot::Sender<()>),
    /// The host ends. The reply is sent once everything is handed to the store.
    Shutdown(oneshot::Sender<()>),
}

/// Alerts of messages that are not sent any more.
#[derive(Default)]
pub struct Withdrawn {
    /// The alerts.
    pub(crate) unsent: Vec<Unsent>,
    /// The changes of their deliveries. They are stored together with those of the alerts, so that a host that is
    /// killed in between does not forget the alerts.
    pub(crate) changes: Vec<AlertChange>,
}

impl Withdrawn {
    pub(crate) fn add(&mut self, other: Self) {
        self.unsent.extend(other.unsent);
        self.changes.extend(other.changes);
    }
}

/// A command for one target, with the channel for its result.
pub enum Command {
    /// Changes its schedule.
    Ask(Ask, oneshot::Sender<Result<(), CommandError>>),
    /// Forgets a missing dependency, or all of them. The result is their number.
    Dismiss(Option<String>, oneshot::Sender<Result<usize, CommandError>>),
    /// Explains its due time. The result is `None` if there is no such target. This is the only read that goes to the
    /// loop, because only the scheduler knows the reason; it takes constant time.
    Explain(oneshot::Sender<Option<Explained>>),
}

/// The reasons for a target's due time and for the failure of its last poll.
pub struct Explained {
    /// The scheduler's explanation.
    pub explanation: Explanation<Moment>,
    /// The failure of its last poll.
    pub failure: Option<PollFailure>,
}

/// A new configuration, by its differences from the running one.
pub struct Reconfigured {
    /// The scheduler's settings.
    pub settings: Settings,
    /// New and changed targets; the change is `None` for a new one.
    pub changed: Vec<(Arc<RuntimeTarget>, Option<Change>)>,
    /// Removed targets.
    pub removed: Vec<TargetId>,
    /// Canonical names of dependencies.
    pub aliases: Arc<Aliases>,
    /// The plugins that serve.
    pub plugins: Arc<PluginSet>,
    /// The kinds whose plugins changed or were removed.
    pub plugged: Vec<Kind>,
    /// The rules of alerts.
    pub alerts: AlertRules,
    /// The deployments that this host was assigned, by name.
    pub deployments: BTreeMap<String, AssignedDeployment>,
}

/// A poll that ended.
pub struct Finished {
    /// The target.
    pub(crate) target: Arc<RuntimeTarget>,
    /// The result, as the scheduler uses it for the next poll.
    pub(crate) finish: Finish,
    /// Whether its outcome was merged into the known state.
    pub(crate) merged: bool,
    /// The changes to the known state.
    pub(crate) changes: Changes,
    /// The failure, if there is no report.
    pub(crate) failure: Option<Failure>,
    /// The known state after it; `None` if the poll never began.
    pub(crate) observed: Option<Arc<Observed>>,
    /// The duration and the result, for metrics.
    pub(crate) measure: Option<PollMeasure>,
    /// Events that are announced and never stored.
    pub(crate) passing: Vec<Event>,
    /// When it ended.
    pub(crate) at: Timestamp,
}
