//! Silences: periods during which alerts are recorded and not notified.

use crate::matcher::Matchers;
use crate::window::Window;
use model::Timestamp;

/// A silence.
#[derive(Clone, Debug, PartialEq)]
pub struct Silence {
    /// The id; recurring silences have the name of their place in the configuration.
    pub id: String,
    /// The conditions.
    pub matchers: Matchers,
    /// The period.
    pub time: SilenceTime,
    /// The author.
    pub author: String,
    /// The reason.
    pub comment: String,
}

/// The period of a silence.
#[derive(Clone, Debug, PartialEq)]
pub enum SilenceTime {
    /// From a start to an end.
    Once(Timestamp, Timestamp),
    /// A recurring window.
    Recurring(Window),
}

impl Silence {
    /// Returns whether the silence is active at `at`.
    pub fn is_active(&self, at: Timestamp) -> bool {
        match &self.time {
            SilenceTime::Once(start, end) => *start <= at && at < *end,
            SilenceTime::Recurring(window) => window.contains(at),
        }
    }

    /// Returns when the silence next begins or ends after `at`; `None` if never.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        match &self.time {
            SilenceTime::Once(start, end) => [*start, *end].into_iter().find(|change| *change > at),
            SilenceTime::Recurring(window) => window.next_change(at),
        }
    }
}
