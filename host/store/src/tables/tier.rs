//! Tables `latency_window`, `latency_hour` and `latency_day`: the latency points of past days in three tiers, one row
//! for each dependency and block of days.

use crate::columns::{BlockColumns, block};
use crate::wire::{StoredPoint, pack};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The id of a row is a [`Key`]. It begins with the time: new rows are appended, and old ones are deleted as a range. A
/// table with a primary key of several columns would move rows of more than 1 KB to pages of their own.
pub(crate) const V6: &str = "
CREATE TABLE latency_window (id INTEGER PRIMARY KEY, points BLOB NOT NULL) STRICT;
CREATE TABLE latency_hour (id INTEGER PRIMARY KEY, points BLOB NOT NULL) STRICT;
CREATE TABLE latency_day (id INTEGER PRIMARY KEY, points BLOB NOT NULL) STRICT;
";

/// The bits of a target's number in a row id.
const TARGET_BITS: u32 = 20;
/// The bits of a slot in a row id.
const SLOT_BITS: u32 = 26;

/// The day, the target's number and the slot of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Days since the epoch.
    pub day: i64,
    pub target: i64,
    pub slot: u32,
}

impl Key {
    /// Returns the row id; `None` for a target or slot that has no place in it, more than a million and 67 million.
    fn id(self) -> Option<i64> {
        let fits = (0..1 << TARGET_BITS).contains(&self.target) && self.slot < 1 << SLOT_BITS;
        fits.then_some((self.day << (TARGET_BITS + SLOT_BITS)) | (self.target << SLOT_BITS) | i64::from(self.slot))
    }

    fn of(id: i64) -> Self {
        let target = (id >> SLOT_BITS) & ((1 << TARGET_BITS) - 1);
        let slot = (id & ((1 << SLOT_BITS) - 1)) as u32;
        Self { day: id >> (TARGET_BITS + SLOT_BITS), target, slot }
    }

    /// Returns the first id of a day.
    fn first(day: i64) -> i64 {
        day << (TARGET_BITS + SLOT_BITS)
    }

    /// Returns the ids of a target and day: of one slot, or of all.
    fn ids(day: i64, target: i64, slot: Option<u32>) -> Option<RangeInclusive<i64>> {
        let first = Self { day, target, slot: slot.unwrap_or(0) }.id()?;
        let last = Self { day, target, slot: slot.unwrap_or((1 << SLOT_BITS) - 1) }.id()?;
        Some(first..=last)
    }
}

/// Windows of five minutes in a day.
pub(crate) const WINDOWS: i64 = 288;

/// The resolution of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Points of five minutes. Their distributions are reduced to the 95th percentile.
    Window,
    /// Points of an hour.
    Hour,
    /// Points of a day.
    Day,
}

impl Tier {
    pub(crate) const ALL: [Self; 3] = [Self::Window, Self::Hour, Self::Day];

    fn table(self) -> &'static str {
        match self {
            Self::Window => "latency_window",
            Self::Hour => "latency_hour",
            Self::Day => "latency_day",
        }
    }

    /// Returns the number of days in one row.
    pub(crate) fn days(self) -> i64 {
        match self {
            Self::Window | Self::Hour => 1,
            Self::Day => 32,
        }
    }

    /// Returns the first day of the row that a day belongs to, counted since the epoch.
    pub(crate) fn block(self, day: i64) -> i64 {
        day.div_euclid(self.days()) * self.days()
    }

    /// Returns the number of windows in one point.
    fn windows(self) -> u32 {
        match self {
            Self::Window => 1,
            Self::Hour => 12,
            Self::Day => WINDOWS as u32,
        }
    }
}

/// Combines points into those of a tier, in order of time.
pub(crate) fn combined(tier: Tier, points: impl IntoIterator<Item = StoredPoint>) -> Vec<StoredPoint> {
    let mut by_window: BTreeMap<u32, StoredPoint> = BTreeMap::new();
    for mut point in points {
        point.point.window -= point.point.window % tier.windows();
        match by_window.get_mut(&point.point.window) {
            Some(held) => held.merge(&point),
            None => drop(by_window.insert(point.point.window, point)),
        }
    }
    by_window.into_values().collect()
}

/// Adds points of one dependency and row to a tier. Drops them if the key has no row id.
pub(crate) fn add(connection: &Connection, tier: Tier, key: Key, points: &[StoredPoint]) -> rusqlite::Result<()> {
    let Some(id) = key.id() else { return Ok(()) };
    let held = get(connection, tier, id)?.unwrap_or_default();
    let mut points = combined(tier, held.into_iter().chain(points.iter().cloned()));
    if tier == Tier::Window {
        points.iter_mut().for_each(|point| point.sketch = point.sketch.reduced());
    }
    let sql = format!("INSERT OR REPLACE INTO {} (id, points) VALUES (?1, ?2)", tier.table());
    let packed = pack(&points.iter().collect::<BlockColumns>())?;
    connection.prepare_cached(&sql)?.execute(params![id, packed]).map(drop)
}

/// Removes a row and returns its points; a missing row has none.
pub(crate) fn take(connection: &Connection, tier: Tier, key: Key) -> rusqlite::Result<Vec<StoredPoint>> {
    let Some(id) = key.id() else { return Ok(Vec::new()) };
    let Some(taken) = get(connection, tier, id)? else { return Ok(Vec::new()) };
    connection.prepare_cached(&format!("DELETE FROM {} WHERE id = ?1", tier.table()))?.execute([id])?;
    Ok(taken)
}

/// Returns the points of a row; a damaged row has none.
fn get(connection: &Connection, tier: Tier, id: i64) -> rusqlite::Result<Option<Vec<StoredPoint>>> {
    let sql = format!("SELECT points FROM {} WHERE id = ?1", tier.table());
    let row: Option<Vec<u8>> = connection.prepare_cached(&sql)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(row.map(|bytes| block(&bytes).unwrap_or_default()))
}

/// Returns the keys of the first rows of a tier before a day, at most `limit`.
pub(crate) fn oldest(connection: &Connection, tier: Tier, before: i64, limit: u32) -> rusqlite::Result<Vec<Key>> {
    let sql = format!("SELECT id FROM {} WHERE id < ?1 ORDER BY id LIMIT ?2", tier.table());
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![Key::first(before), limit], |row| row.get(0).map(Key::of))?;
    rows.collect()
}

/// Returns the first and the last day of a tier's rows; `None` without rows.
fn bounds(connection: &Connection, tier: Tier) -> rusqlite::Result<Option<(i64, i64)>> {
    let day = |which: &str| {
        let mut statement = connection.prepare_cached(&format!("SELECT {which}(id) FROM {}", tier.table()))?;
        statement.query_row([], |row| row.get::<_, Option<i64>>(0))
    };
    let (first, last) = (day("min")?, day("max")?);
    Ok(first.zip(last).map(|(first, last)| (Key::of(first).day, Key::of(last).day)))
}

/// Calls `found` with the points of a target from the row of the day `since` on, of the dependency with one slot or of
/// all, in order of time.
pub(crate) fn read(
    connection: &Connection,
    tier: Tier,
    (target, slot, since): (i64, Option<u32>, i64),
    mut found: impl FnMut(StoredPoint),
) -> rusqlite::Result<()> {
    let Some((first, last)) = bounds(connection, tier)? else { return Ok(()) };
    let sql = format!("SELECT points FROM {} WHERE id BETWEEN ?1 AND ?2 ORDER BY id", tier.table());
    let mut statement = connection.prepare_cached(&sql)?;
    for day in (tier.block(first.max(since))..=last).step_by(tier.days() as usize) {
        let Some(ids) = Key::ids(day, target, slot) else { continue };
        let mut rows = statement.query([ids.start(), ids.end()])?;
        while let Some(row) = rows.next()? {
            block(row.get_ref(0)?.as_blob()?).into_iter().flatten().for_each(&mut found);
        }
    }
    Ok(())
}

/// Deletes rows whose days are all before `before`, at most `limit`.
pub(crate) fn prune(connection: &Connection, tier: Tier, before: i64, limit: u32) -> rusqlite::Result<()> {
    let table = tier.table();
    let sql = format!("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE id < ?1 ORDER BY id LIMIT ?2)");
    let end = Key::first(before - tier.days() + 1);
    connection.prepare_cached(&sql)?.execute(params![end, limit]).map(drop)
}

/// Deletes the rows of the target with a number.
pub(crate) fn delete(connection: &Connection, target: i64) -> rusqlite::Result<()> {
    for tier in Tier::ALL {
        let Some((first, last)) = bounds(connection, tier)? else { continue };
        let sql = format!("DELETE FROM {} WHERE id BETWEEN ?1 AND ?2", tier.table());
        let mut statement = connection.prepare_cached(&sql)?;
        for day in (first..=last).step_by(tier.days() as usize) {
            let Some(ids) = Key::ids(day, target, None) else { continue };
            statement.execute([ids.start(), ids.end()])?;
        }
    }
    Ok(())
}
