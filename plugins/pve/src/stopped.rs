//! Guests that are expected to run and do not: since when, and whether a person stopped them.

use crate::cluster_view::ClusterView;
use crate::context::PollContext;
use crate::memory::Stopped;
use crate::resources::Guest;
use crate::tasks::{Act, last_act};
use proxmox::Diagnostics;

/// A guest that ran at the last poll was stopped by a task that is not older than this: a shutdown may take minutes.
/// Seconds.
const RECENT: f64 = 15.0 * 60.0;

impl Stopped {
    /// A guest that was already stopped at its first check: it is not known whether it ran before.
    pub(crate) fn at_first_check(now: f64) -> Self {
        Self { since: now, lock: None, held: now, by: None, not_before: 0.0, asked: false }
    }

    /// A guest that ran at the last poll.
    pub(crate) fn after_running(now: f64) -> Self {
        Self { not_before: now - RECENT, asked: true, ..Self::at_first_check(now) }
    }

    /// Whether it was already stopped at its first check, so that the time of the stop is not known.
    pub(crate) fn began_unseen(&self) -> bool {
        self.not_before == 0.0
    }

    /// The state at a later poll. A clock that was set back must not stop the time.
    pub(crate) fn at(mut self, now: f64, lock: Option<&str>) -> Self {
        if self.lock.as_deref() != lock {
            self.lock = lock.map(str::to_owned);
            self.held = now;
        }
        Self { since: self.since.min(now), held: self.held.min(now), ..self }
    }

    /// Adds the user who stopped the guest, from the newest task that did, unless the guest was started since.
    pub(crate) fn explained(mut self, guest: &Guest<'_>, context: &mut PollContext, view: &ClusterView<'_>) -> Self {
        let mut found = last_act(guest.id, view.tasks);
        let may_ask = !self.asked && view.lookups.get() > 0 && crate::nodes::answers(context, view.nodes, &guest.node);
        if found.is_none() && may_ask {
            // Tasks of other guests push it off the cluster's list. The list of the guest's node is longer.
            let path = format!("/nodes/{}/tasks?vmid={}&limit=20&source=all", guest.node, guest.id);
            let [answer] = context.api.ask([path.as_str()]);
            view.lookups.set(view.lookups.get() - 1);
            let tasks = answer.list(&mut Diagnostics::default());
            crate::nodes::record_answer(context, &guest.node, &tasks);
            if let Ok(tasks) = tasks {
                self.asked = true;
                found = last_act(guest.id, &tasks);
            }
        }
        match found {
            Some(Act::Stop { by, at }) if at >= self.not_before => self.by = Some((by, at)),
            Some(Act::Start { at }) if self.by.as_ref().is_some_and(|(_, stopped)| at >= *stopped) => self.by = None,
            _ => {}
        }
        self
    }
}
