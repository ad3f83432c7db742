//! Writes one job of the writer.

use super::pending::{Fold, Known, PendingWrite, incomplete_hour};
use super::rows;
use crate::job::Job;
use crate::tables::{alert, fleet, gap, journal, target};
use model::{SequencedEvent, Timestamp};
use rusqlite::Transaction;
use std::time::Duration;

/// A shorter time without a host is not recorded: a host that was killed may have lost 30 s of progress.
const SHORTEST_GAP: Duration = Duration::from_secs(60);

/// The times in the jobs of a group.
#[derive(Default)]
pub(super) struct Times {
    /// The time of the last flush, and whether it may be used to prune history.
    pub progressed: Option<(Timestamp, bool)>,
    /// The time at which the host ended.
    pub ended: Option<Timestamp>,
}

/// Writes one job. Returns its events.
pub(super) fn write_job(
    transaction: &Transaction<'_>,
    known: &Known<'_>,
    job: &Job,
    (pending, times): (&mut PendingWrite, &mut Times),
) -> rusqlite::Result<Vec<SequencedEvent>> {
    match job {
        Job::Commit(commit, _) => {
            let num = rows::number(transaction, known.numbers, pending, (&commit.target, &commit.kind))?;
            return rows::write_commit(transaction, num, commit, pending);
        }
        Job::Event(event) => return rows::write_events(transaction, std::slice::from_ref(event), pending),
        Job::Alerts(changes, events, _) => {
            changes.iter().try_for_each(|change| alert::apply(transaction, change))?;
            return rows::write_events(transaction, events, pending);
        }
        Job::Setting(change) => return rows::write_setting(transaction, change, pending),
        Job::Progress(progress, now, is_plausible) => {
            times.progressed = Some((*now, *is_plausible));
            rows::write_progress(transaction, known, (progress, *now), pending)?;
        }
        Job::Access(change) => rows::write_access(transaction, change)?,
        Job::Fleet(change, _) => fleet::apply(transaction, change)?,
        Job::Forget(id) => {
            target::delete(transaction, id)?;
            pending.numbers.remove(id);
            pending.forgotten.push(id.clone());
        }
        Job::Begin(now) => {
            if let Some(last) = known.last_run.filter(|last| now.since(*last) > SHORTEST_GAP) {
                gap::insert(transaction, last, *now)?;
            }
            if journal::is_current(transaction)? {
                rows::mark(transaction, *now, pending)?;
            } else {
                let fold = Fold { at: *now, ended: false, incomplete: incomplete_hour(*now) };
                rows::fold(transaction, known, fold, pending)?;
            }
        }
        Job::Finish(now) => times.ended = Some(*now),
        Job::Publish(_) | Job::Abandon => {}
    }
    Ok(Vec::new())
}
