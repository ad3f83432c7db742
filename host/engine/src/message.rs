//! Messages to the driver.

use crate::target::RuntimeTarget;
use catalog::PluginSet;
use model::{
    Ask, CommandError, Event, Explanation, Failure, Kind, Moment, Observed, PollFailure, PollMeasure, TargetId,
    Timestamp,
};
use scheduler::{Change, Finish, Settings};
use std::sync::Arc;
use store::{Aliases, Changes};
use tokio::sync::oneshot;

/// A message to the driver.
pub enum Message {
    /// A poll ended.
    Finished(Box<Finished>),
    /// The store has written some of a target's results, of which the most that may wait did.
    Written(TargetId),
    /// A command for one target.
    Command(TargetId, Command),
    /// Settings, targets or plugins changed.
    Reconfigured(Box<Reconfigured>),
    /// Asks for a reply, to find out whether the loop works.
    Ping(oneshot::Sender<()>),
    /// The host ends. The reply is sent once everything is handed to the store.
    Shutdown(oneshot::Sender<()>),
}

/// A command for one target, with where its result goes.
pub enum Command {
    /// Does something with its schedule.
    Ask(Ask, oneshot::Sender<Result<(), CommandError>>),
    /// Forgets a missing dependency, or all of them. The result is their number.
    Dismiss(Option<String>, oneshot::Sender<Result<usize, CommandError>>),
    /// Explains its due time; the result is `None` if there is no such target. The only question to the loop: the
    /// scheduler alone knows why, and answers for one target in constant time.
    Explain(oneshot::Sender<Option<Explained>>),
}

/// Why a target is polled next at its due time, and why its last poll failed.
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
    /// Targets that are gone.
    pub removed: Vec<TargetId>,
    /// Canonical names of dependencies.
    pub aliases: Arc<Aliases>,
    /// The plugins that serve.
    pub plugins: Arc<PluginSet>,
    /// The kind whose plugin changed, or that lost it.
    pub plugged: Option<Kind>,
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
    /// Why there is no report.
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
