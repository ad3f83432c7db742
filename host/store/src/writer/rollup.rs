//! Rolls latency points up into coarser tiers and deletes old ones, in a small step with each flush.
//!
//! Points of five minutes are first in blocks of an hour for each target. Two hours after the end of a day they become
//! one row for each dependency: of five minutes, and of an hour. After 90 days the points of hours become points of
//! days. Each roll consumes its source, so a step can end anywhere, and a point that arrives late is rolled up later.

use super::pending::Limits;
use crate::tables::latency;
use crate::tables::tier::{self, Key, Tier};
use crate::wire::StoredPoint;
use model::Timestamp;
use rusqlite::Transaction;
use std::collections::BTreeMap;

/// Days for which points of five minutes are kept.
const WINDOW_DAYS: i64 = 14;
/// Days for which points of an hour are kept at least.
const HOUR_DAYS: i64 = 90;
/// The number of points after which a step ends. A step changes a few pages of each hour, whatever the number of its
/// targets.
const POINTS: usize = 150_000;
/// The maximum number of targets in one step from five minutes.
const TARGETS: usize = 512;
/// The maximum number of dependencies in one step from hours to days.
const DEPENDENCIES: u32 = 64;
/// The maximum number of rows of a tier that one step deletes.
const ROWS: u32 = 2_000;
/// A day is rolled up this many hours after its end, because the window of a target that is polled rarely is complete
/// only with its next poll.
const LATE_HOURS: i64 = 2;

/// Rolls up and deletes what is due at a time.
pub(super) fn step(transaction: &Transaction<'_>, limits: Limits, now: Timestamp) -> rusqlite::Result<()> {
    let hour = now.as_millis().div_euclid(3_600_000);
    let today = hour.div_euclid(24);
    roll_day(transaction, (hour - LATE_HOURS).div_euclid(24))?;
    roll_hours(transaction, Tier::Day.block(today - HOUR_DAYS))?;
    let oldest = limits.oldest(now).as_millis().div_euclid(86_400_000);
    for tier in Tier::ALL {
        let before = if tier == Tier::Window { oldest.max(today - WINDOW_DAYS) } else { oldest };
        tier::prune(transaction, tier, before, ROWS)?;
    }
    Ok(())
}

/// Rolls hourly blocks of the oldest day before `before` up into rows of dependencies.
fn roll_day(transaction: &Transaction<'_>, before: i64) -> rusqlite::Result<()> {
    let Some(day) = latency::oldest(transaction)?.map(|hour| hour.div_euclid(24)).filter(|day| *day < before) else {
        return Ok(());
    };
    let hours = day * 24..(day + 1) * 24;
    let mut by_dependency: BTreeMap<(i64, u32), Vec<StoredPoint>> = BTreeMap::new();
    let mut count = 0;
    'step: for target in latency::targets(transaction, hours.clone(), TARGETS)? {
        for hour in hours.clone() {
            if count >= POINTS {
                break 'step;
            }
            let points = latency::take(transaction, hour, target)?;
            count += points.len();
            for point in points {
                by_dependency.entry((target, point.slot)).or_default().push(point);
            }
        }
    }
    for ((target, slot), points) in by_dependency {
        for tier in [Tier::Window, Tier::Hour] {
            tier::add(transaction, tier, Key { day, target, slot }, &points)?;
        }
    }
    Ok(())
}

/// Rolls hours up into days, of the oldest block of days before `before`.
fn roll_hours(transaction: &Transaction<'_>, before: i64) -> rusqlite::Result<()> {
    for Key { day, target, slot } in tier::oldest(transaction, Tier::Hour, before, DEPENDENCIES)? {
        let block = Tier::Day.block(day);
        let mut points = Vec::new();
        for day in block..block + Tier::Day.days() {
            points.extend(tier::take(transaction, Tier::Hour, Key { day, target, slot })?);
        }
        // A later key of a dependency finds its rows taken.
        if !points.is_empty() {
            tier::add(transaction, Tier::Day, Key { day: block, target, slot }, &points)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
