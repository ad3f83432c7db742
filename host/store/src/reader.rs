//! Reads history over separate connections.
//!
//! Every read has a bound on its rows and on its steps, so that no read delays a checkpoint for long.

use crate::tables::tier::{self, Tier};
use crate::tables::{
    alert, delivery, error, event, fleet, fleet_kept, gap, journal, latency, plugin_value, poll_error, session,
    setting, target, token, transition,
};
use crate::wire::StoredPoint;
use model::{
    AlertRecord, Delivery, DeliveryFilter, DeploymentReport, FleetPlace, History, KeptPlace, KeptRecord,
    LatencySummary, PluginValues, QueuedRecord, SequencedEvent, Session, TargetId, Timestamp, Token,
};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The number of connections kept for the next reads.
const KEPT: usize = 4;
/// The limit on virtual machine steps of one read (about a second).
const STEPS: i32 = 50_000_000;

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error text of each variant describes it")]
pub enum ReadError {
    #[error("the database could not be read: {}", crate::sqlite::plain(.0))]
    Failed(#[from] rusqlite::Error),
    #[error("the database is closed because the host is shutting down")]
    Closed,
}

/// Reads history. Reads block; call them only where blocking is allowed.
pub struct Reader {
    path: PathBuf,
    idle: Mutex<Idle>,
}

/// Connections kept for the next read.
#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Connections of an earlier generation are closed when their read is over.
    generation: u64,
    closed: bool,
}

impl Reader {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default() }
    }

    /// Returns at most `limit` events after a position in the sequence, in order.
    pub fn events_after(&self, sequence: i64, limit: u32) -> Result<Vec<SequencedEvent>, ReadError> {
        self.with(|connection| event::after(connection, sequence, limit))
    }

    /// Returns at most `limit` events before a position in the sequence, newest first: of a target and of a name, or of
    /// all.
    pub fn events_before(
        &self,
        sequence: i64,
        of: (Option<&str>, Option<&str>),
        limit: u32,
    ) -> Result<Vec<SequencedEvent>, ReadError> {
        self.with(|connection| event::before(connection, sequence, of, limit))
    }

    /// Returns the position of the first stored event and the last position ever assigned.
    pub fn event_bounds(&self) -> Result<(i64, i64), ReadError> {
        self.with(event::bounds)
    }

    /// Returns the hash of the token of the first start; `None` if it does not exist yet.
    pub fn admin_token(&self) -> Result<Option<[u8; 32]>, ReadError> {
        self.with(token::admin)
    }

    /// Returns the settings that were changed at run time, by key.
    pub fn settings(&self) -> Result<BTreeMap<String, String>, ReadError> {
        self.with(setting::all)
    }

    /// Returns what is stored of a target's past since a time.
    pub fn history(&self, target: &TargetId, since: Timestamp) -> Result<History, ReadError> {
        self.with(|connection| history(connection, target, since))
    }

    /// Returns the past of several targets since a time within the last days: their changes, and for each the latencies
    /// of five minutes of the dependency with a slot, if any.
    pub fn recent(
        &self,
        targets: &[(TargetId, Option<u32>)],
        since: Timestamp,
    ) -> Result<Vec<(History, Vec<LatencySummary>)>, ReadError> {
        self.with(|connection| {
            let numbers = targets.iter().map(|(id, _)| target::find(connection, id));
            let numbers = numbers.collect::<rusqlite::Result<Vec<Option<i64>>>>()?;
            let mut journaled: BTreeMap<(i64, u32), Vec<StoredPoint>> = BTreeMap::new();
            for ((_, slot), num) in targets.iter().zip(&numbers) {
                if let (Some(slot), Some(num)) = (slot, num) {
                    journaled.insert((*num, *slot), Vec::new());
                }
            }
            let wanted: BTreeSet<i64> = journaled.keys().map(|(num, _)| *num).collect();
            if !wanted.is_empty() {
                let is_wanted = |num| wanted.contains(&num);
                journal::each_point(connection, is_wanted, |num, point| {
                    if let Some(points) = journaled.get_mut(&(num, point.slot)) {
                        points.push(point);
                    }
                })?;
            }
            let day = since.as_millis().div_euclid(86_400_000);
            let read = |((id, slot), num): (&(TargetId, Option<u32>), &Option<i64>)| {
                let history = history(connection, id, since)?;
                let (Some(num), Some(slot)) = (*num, *slot) else { return Ok((history, Vec::new())) };
                let mut points = Vec::new();
                tier::read(connection, Tier::Window, (num, Some(slot), day), |point| points.push(point))?;
                points.extend(latency::since(connection, num, since)?.into_iter().filter(|point| point.slot == slot));
                points.extend(journaled.get(&(num, slot)).into_iter().flatten().cloned());
                points.sort_by_key(|point| point.point.window);
                let summaries = points.iter().map(StoredPoint::summary);
                Ok((history, summaries.filter(|summary| summary.start >= since).collect()))
            };
            targets.iter().zip(&numbers).map(read).collect()
        })
    }

    /// Returns the latencies of a target since a time, by the slots of its dependencies, oldest first: of the
    /// dependency with one slot, or of all. With `hours` they are of hours, or of days where hours are no longer
    /// stored; else they are of five minutes, as far back as these are stored.
    pub fn latencies(
        &self,
        target: &TargetId,
        (since, slot): (Timestamp, Option<u32>),
        hours: bool,
    ) -> Result<BTreeMap<u32, Vec<LatencySummary>>, ReadError> {
        self.with(|connection| {
            let Some(num) = target::find(connection, target)? else { return Ok(BTreeMap::new()) };
            let mut stored = Vec::new();
            let tiers: &[Tier] = if hours { &[Tier::Day, Tier::Hour] } else { &[Tier::Window] };
            let first = since.as_millis().div_euclid(86_400_000);
            for tier in tiers {
                tier::read(connection, *tier, (num, slot, first), |point| stored.push(point))?;
            }
            let mut journaled = Vec::new();
            journal::each_point(connection, |of| of == num, |_, point| journaled.push(point))?;
            let recent = latency::since(connection, num, since)?.into_iter().chain(journaled);
            let recent = recent.filter(|point| slot.is_none_or(|slot| point.slot == slot));
            let mut by_slot: BTreeMap<u32, Vec<StoredPoint>> = BTreeMap::new();
            for point in stored.into_iter().chain(recent) {
                by_slot.entry(point.slot).or_default().push(point);
            }
            let summarised = |mut points: Vec<StoredPoint>| {
                points.sort_by_key(|point| point.point.window);
                let points = if hours { tier::combined(Tier::Hour, points) } else { points };
                let summaries = points.iter().map(StoredPoint::summary);
                summaries.filter(|summary| summary.start >= since).collect()
            };
            Ok(by_slot.into_iter().map(|(slot, points)| (slot, summarised(points))).collect())
        })
    }

    /// Returns the tokens with names.
    pub fn tokens(&self) -> Result<Vec<Token>, ReadError> {
        self.with(token::named)
    }

    /// Returns the web sessions that have not expired.
    pub fn sessions(&self, now: Timestamp) -> Result<Vec<Session>, ReadError> {
        self.with(|connection| session::valid(connection, now))
    }

    /// Calls a function with each record of the fleet that this host has read as an operator, and returns how far it
    /// has read each stream.
    pub fn fleet_kept(&self, each: impl FnMut(KeptRecord)) -> Result<Vec<KeptPlace>, ReadError> {
        self.with(|connection| {
            fleet_kept::each(connection, each)?;
            fleet_kept::places(connection)
        })
    }

    /// Returns all alerts, by subject.
    pub fn alerts(&self) -> Result<Vec<AlertRecord>, ReadError> {
        self.with(alert::all)
    }

    /// Returns what plugins stored for channels, with the kind that stored it, by channel.
    pub fn channel_values(&self) -> Result<BTreeMap<String, (String, PluginValues)>, ReadError> {
        self.with(plugin_value::channels)
    }

    /// Returns the deliveries that wait, the oldest first, and the number of the last one of all.
    pub fn waiting_deliveries(&self) -> Result<(Vec<Delivery>, u64), ReadError> {
        self.with(delivery::waiting)
    }

    /// Returns at most `limit` deliveries, the newest first.
    pub fn deliveries(&self, filter: &DeliveryFilter, limit: u32) -> Result<Vec<Delivery>, ReadError> {
        self.with(|connection| delivery::page(connection, filter, limit))
    }

    /// Returns the delivery with a number.
    pub fn delivery(&self, number: u64) -> Result<Option<Delivery>, ReadError> {
        self.with(|connection| delivery::one(connection, number))
    }

    /// Returns the place of this host's reports at the broker of the fleet; `None` if the host is not an agent.
    pub fn fleet_place(&self) -> Result<Option<FleetPlace>, ReadError> {
        self.with(fleet::place)
    }

    /// Returns the oldest records that the broker has not acknowledged, at most `limit`.
    pub fn fleet_queued(&self, limit: u32) -> Result<Vec<QueuedRecord>, ReadError> {
        self.with(|connection| fleet::queued(connection, limit))
    }

    /// Returns the last report about each deployment.
    pub fn fleet_reports(&self) -> Result<Vec<DeploymentReport>, ReadError> {
        self.with(fleet::reports)
    }

    /// Closes every connection; later reads open new ones. The last connection to close folds the write-ahead log; this
    /// must not be a kept read connection, and such a connection must not prevent the fold.
    pub(crate) fn renew(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.connections.clear();
        idle.generation += 1;
    }

    /// Closes every connection for good.
    pub(crate) fn close(&self) {
        self.renew();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }

    fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ReadError> {
        let (kept, generation) = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.closed {
                return Err(ReadError::Closed);
            }
            (idle.connections.pop(), idle.generation)
        };
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                connection.busy_timeout(std::time::Duration::from_secs(5))?;
                connection
            }
        };
        connection.progress_handler(STEPS, Some(|| true))?;
        // All statements of a read see the same state: a fold moves points from one table to another.
        let transaction = connection.unchecked_transaction()?;
        let result = read(&transaction)?;
        drop(transaction);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.generation == generation && idle.connections.len() < KEPT {
            idle.connections.push(connection);
        }
        Ok(result)
    }
}

/// Returns what is stored of a target's past since a time.
fn history(connection: &Connection, target: &TargetId, since: Timestamp) -> rusqlite::Result<History> {
    let statuses = transition::newest(connection, target, since)?;
    let polls = poll_error::newest(connection, target, since)?;
    let errors = error::newest(connection, target, since)?;
    let complete = [statuses.cut, polls.cut, errors.cut].into_iter().flatten().fold(since, Timestamp::max);
    let gaps = gap::after(connection, complete)?;
    let (mut statuses, mut polls, mut errors) = (statuses.rows, polls.rows, errors.rows);
    statuses.reverse();
    polls.reverse();
    errors.reverse();
    Ok(History { since: complete, statuses, polls, errors, gaps })
}
