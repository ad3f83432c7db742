//! What is looked at less often than at every poll.
//!
//! The last look is remembered in the target's cache, by the poll's own time. Where that is gone, it is looked again. What
//! could not be read then is said at each poll in between, because what is known of it stands as well.

use crate::Look;
use crate::memory::{remember, remembered};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A look.
#[derive(Default, Deserialize, Serialize)]
struct Looked {
    /// From when on, and until when that will do. Milliseconds since 1970.
    from: u64,
    until: u64,
    /// What could not be read.
    notes: Vec<String>,
}

impl<S> Look<S> {
    /// Whether it is time to look at this again. What is noted from here to [`Look::looked`] belongs to it.
    pub fn is_due(&mut self, part: &str) -> bool {
        let Looked { from, until, notes } = remembered(&key(part));
        // A look of tomorrow was before the clock was set back.
        let due = !(from..until).contains(&self.milliseconds());
        if due {
            self.notes.begin();
        } else {
            notes.into_iter().for_each(|note| self.notes.say(|| note));
        }
        due
    }

    /// It was looked at: the next time is after so long.
    pub fn looked(&mut self, part: &str, period: Duration) {
        let from = self.milliseconds();
        let looked = Looked { from, until: from + period.as_millis() as u64, notes: self.notes.begun() };
        // A cache that is full means one look too many.
        remember(&key(part), &looked, period);
    }
}

fn key(part: &str) -> String {
    format!("rhythm/{part}")
}
