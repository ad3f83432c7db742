//! The repairs of reports.

use std::collections::BTreeSet;

/// Maximum number of repairs that are listed. The others are counted.
const SHOWN_REPAIRS: usize = 50;

/// Descriptions of the repairs, for the warnings of the report.
#[derive(Default)]
pub(super) struct Repairs {
    shown: BTreeSet<String>,
    more: usize,
}

impl Repairs {
    /// Adds a repair, unless it is one of those already.
    pub(super) fn note(&mut self, repair: String) {
        if self.shown.len() < SHOWN_REPAIRS {
            self.shown.insert(repair);
        } else if !self.shown.contains(&repair) {
            self.more += 1;
        }
    }

    /// The descriptions that are shown, in order, and how many more there are.
    pub(super) fn into_warnings(self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more repairs", self.more));
        self.shown.into_iter().chain(more)
    }
}
