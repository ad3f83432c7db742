//! The pictures of targets in the list: the states and the latency of the last day.
//!
//! They are kept until the state of the target changes, or until a part of the picture is over, so that a list that is
//! refreshed every second does not read the history each time.

use crate::chart;
use crate::host::{Host, Recent};
use crate::timeline::Past;
use maud::{Markup, PreEscaped, html};
use model::{TargetId, TargetState, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time that a picture shows.
const LENGTH: Duration = Duration::from_secs(86_400);
/// A picture ends at a multiple of this time: a part of its 240.
const STEP_MS: i64 = 360_000;
/// The number of kept pictures at which all are dropped.
const KEPT: usize = 2_000;

/// The pictures of a target.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The states.
    pub strip: Markup,
    /// The latency of the slowest dependency.
    pub line: Markup,
}

/// A picture is valid while this is the same: the end of its time, and the last change of the target's state.
type Version = (i64, usize, Option<Timestamp>, Option<Timestamp>, bool);

/// The kept pictures.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    kept: Mutex<HashMap<TargetId, (Version, Arc<Picture>)>>,
}

impl Pictures {
    /// Returns the pictures of targets, in their order. If the history cannot be read, they are empty.
    pub(crate) async fn of(&self, host: &dyn Host, targets: &[Arc<TargetState>], now: Timestamp) -> Vec<Arc<Picture>> {
        let end = Timestamp::from_millis((now.as_millis().div_euclid(STEP_MS) + 1) * STEP_MS);
        let mut found: Vec<Option<Arc<Picture>>> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let valid = |target: &Arc<TargetState>| {
                let (version, picture) = kept.get(&target.info.id)?;
                (*version == version_of(target, end)).then(|| picture.clone())
            };
            targets.iter().map(valid).collect()
        };
        let lacking: Vec<usize> = (0..targets.len()).filter(|at| found[*at].is_none()).collect();
        if !lacking.is_empty() {
            let wanted = lacking.iter().map(|at| (targets[*at].info.id.clone(), slowest(&targets[*at]))).collect();
            let read = host.recent(wanted, end.before(LENGTH)).await.unwrap_or_default();
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() > KEPT {
                kept.clear();
            }
            for (at, recent) in lacking.into_iter().zip(&read) {
                let target = &targets[at];
                let picture = Arc::new(drawn(target, recent, end));
                kept.insert(target.info.id.clone(), (version_of(target, end), picture.clone()));
                found[at] = Some(picture);
            }
        }
        let empty = Arc::new(Picture { strip: PreEscaped(String::new()), line: PreEscaped(String::new()) });
        found.into_iter().map(|picture| picture.unwrap_or_else(|| empty.clone())).collect()
    }
}

fn version_of(target: &TargetState, end: Timestamp) -> Version {
    let dependencies = &target.observed.dependencies;
    let last = |of: fn(&model::DependencyRecord) -> Option<Timestamp>| {
        dependencies.iter().filter_map(|dependency| of(&dependency.record)).max()
    };
    let (changed, missing) = (last(|record| record.last_status_change), last(|record| record.missing_since));
    (end.as_millis(), dependencies.len(), changed, missing, target.observed.failure.is_some())
}

/// Returns the slot of the slowest dependency.
fn slowest(target: &TargetState) -> Option<u32> {
    let measured = target.observed.dependencies.iter();
    let measured = measured.filter_map(|dependency| Some((dependency.record.slot, dependency.volatile.latency_ms?)));
    measured.max_by(|left, right| left.1.total_cmp(&right.1)).map(|(slot, _)| slot)
}

fn drawn(target: &TargetState, (history, latencies): &Recent, end: Timestamp) -> Picture {
    let span = (end.before(LENGTH), end);
    let periods = Past::new(target, history, end).of_target();
    let strip = chart::strip(&target.info.name, &periods, span);
    Picture { strip, line: html! { @if let Some(line) = chart::sparkline(latencies, span) { (line) } } }
}
