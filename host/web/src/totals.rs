//! Numbers about all targets together.

use model::{Kind, TargetState, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// "Soon", in the words of Pulse's API.
const SOON: Duration = Duration::from_secs(12);

/// Numbers about the targets that wait for their due time, a host or a cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Their number.
    pub depth: usize,
    /// Their number by kind.
    pub depth_by_kind: BTreeMap<Kind, usize>,
    /// Those due within 12 seconds.
    pub due_soon: usize,
    /// Those whose due time is longer ago than a target's longest interval.
    pub overdue: usize,
}

impl Totals {
    /// Counts targets at `now`; one whose due time is longer ago than `overdue_after` is overdue.
    pub(crate) fn of(targets: &[Arc<TargetState>], now: Timestamp, overdue_after: Duration) -> Self {
        let mut totals = Self::default();
        for target in targets.iter().filter(|target| target.place.waits()) {
            totals.depth += 1;
            *totals.depth_by_kind.entry(target.info.kind.clone()).or_default() += 1;
            totals.due_soon += usize::from(target.schedule.due <= now.after(SOON));
            totals.overdue += usize::from(now.since(target.schedule.due) > overdue_after);
        }
        totals
    }
}
