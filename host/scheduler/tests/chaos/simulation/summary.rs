//! The result of a run.

use std::time::Duration;

/// Counts of the events in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Inputs applied.
    pub(crate) steps: u64,
    /// Polls started.
    pub(crate) polls: u64,
    /// Polls that failed or ended in a plugin fault.
    pub(crate) failures: u64,
    /// Interventions: changes of targets and settings, commands, restarts.
    pub(crate) interventions: u64,
    /// Probes of open breakers.
    pub(crate) probes: u64,
    /// How often a target became a dead letter.
    pub(crate) dead_letters: u64,
    /// Simulated time.
    pub(crate) virtual_time: Duration,
}

impl Summary {
    /// Returns the sum of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            polls: self.polls + other.polls,
            failures: self.failures + other.failures,
            interventions: self.interventions + other.interventions,
            probes: self.probes + other.probes,
            dead_letters: self.dead_letters + other.dead_letters,
            virtual_time: self.virtual_time + other.virtual_time,
        }
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The run's seed.
    pub(crate) seed: u64,
    /// Simulated time since the run's start.
    pub(crate) after: Duration,
    /// The observed and the expected state.
    pub(crate) what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}, after {:?}: {}", self.seed, self.after, self.what)
    }
}
