//! Which devices' heartbeats differ from the records that the operator has read of them.
//!
//! A difference says little at first: the records may be on their way, or the operator may not have noticed yet that it
//! no longer reads. It counts only if it stays while everything is read.

use std::collections::HashMap;

/// After this number of differences in a row, the agent has to send all its records.
const MOST: u8 = 3;
/// The least number of seconds between two differences that count. A device that connects sends several heartbeats at
/// once; later ones have more time between them.
const APART: u32 = 5;

/// The number of differences of each device, and the second of the last one that counted.
#[derive(Default)]
pub(super) struct Disagreements(HashMap<String, (u8, u32)>);

impl Disagreements {
    /// Notes a heartbeat that differs, in a second of the operator's clock. Returns whether the device has to send all
    /// its records; then it counts from zero again.
    pub(super) fn note(&mut self, device: &str, second: u32) -> bool {
        let Some((count, last)) = self.0.get_mut(device) else {
            self.0.insert(device.to_owned(), (1, second));
            return false;
        };
        if second < last.saturating_add(APART) {
            return false;
        }
        (*count, *last) = (*count + 1, second);
        let is_enough = *count >= MOST;
        if is_enough {
            self.0.remove(device);
        }
        is_enough
    }

    /// Notes a heartbeat that agrees.
    pub(super) fn end(&mut self, device: &str) {
        self.0.remove(device);
    }

    /// Forgets all differences: records were not read for a time.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_stays_counts() {
        /// An event of a device.
        enum Step {
            Differs(u32),
            Agrees,
            Interrupted,
        }
        use Step::{Agrees, Differs, Interrupted};
        let asks = |steps: &[Step]| {
            let mut all = Disagreements::default();
            let mut step = |step: &Step| match step {
                Differs(second) => all.note("host-1", *second),
                Agrees => {
                    all.end("host-1");
                    false
                }
                Interrupted => {
                    all.forget();
                    false
                }
            };
            steps.iter().map(&mut step).filter(|is_enough| *is_enough).count()
        };
        assert_eq!(asks(&[Differs(0), Differs(8), Differs(38)]), 1);
        // A device that connects twice, each time with two heartbeats at once.
        assert_eq!(asks(&[Differs(0), Differs(0), Differs(4), Differs(4), Differs(12)]), 0);
        assert_eq!(asks(&[Differs(0), Differs(8), Agrees, Differs(38)]), 0);
        assert_eq!(asks(&[Differs(0), Differs(8), Interrupted, Differs(38)]), 0);
        let long: Vec<Step> = (0..9).map(|beat| Differs(beat * 30)).collect();
        assert_eq!(asks(&long), 3, "it has to send all again if that did not help");
    }

    #[test]
    fn each_device_counts_for_itself() {
        let mut all = Disagreements::default();
        for second in [0, 10] {
            assert!(!all.note("host-1", second) && !all.note("host-2", second));
        }
        all.end("host-2");
        assert!(!all.note("host-2", 20) && all.note("host-1", 20));
    }
}
