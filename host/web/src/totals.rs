//! Totals over all targets.

use crate::pauses::WithPauses as _;
use model::{Kind, TargetState, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The horizon of `due_soon`, as in Pulse's API.
const SOON: Duration = Duration::from_secs(12);

/// Counts of the targets that wait for their due time, a host slot or a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The number of waiting targets.
    pub depth: usize,
    /// The number of waiting targets by kind.
    pub depth_by_kind: BTreeMap<Kind, usize>,
    /// The number due within 12 seconds.
    pub due_soon: usize,
    /// The number whose due time passed longer ago than a target's longest interval.
    pub overdue: usize,
}

impl Totals {
    /// Counts targets at `now`. A target whose due time passed more than `overdue_after` ago is overdue.
    pub(crate) fn of(targets: &[Arc<TargetState>], now: Timestamp, overdue_after: Duration) -> Self {
        let mut totals = Self::default();
        for target in targets.iter().with_pauses().filter(|target| target.place.waits()) {
            totals.depth += 1;
            *totals.depth_by_kind.entry(target.info.kind.clone()).or_default() += 1;
            totals.due_soon += usize::from(target.schedule.due <= now.after(SOON));
            totals.overdue += usize::from(now.since(target.schedule.due) > overdue_after);
        }
        totals
    }
}
