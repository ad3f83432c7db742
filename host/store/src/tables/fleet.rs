//! Tables `fleet_self` and `fleet_key`: the outbox of an agent, with one row for each key at the broker.
//!
//! A row holds the newest record of its key only, and whether the broker has acknowledged it. Epoch and counter order
//! everything that the agent says.

use super::fleet_kept;
use model::{Acknowledged, DeploymentReport, FleetChange, FleetPlace, FleetRecord, Phase, QueuedRecord, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// The row with an empty deployment is the description of the device, which is in `text`. The numbers of the phases are
/// their positions in [`Phase::ALL`].
pub(crate) const V8: &str = "
CREATE TABLE fleet_self (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    incarnation TEXT,
    top_revision INTEGER NOT NULL DEFAULT 0,
    top_deployment TEXT
) STRICT;
CREATE TABLE fleet_key (
    deployment TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    ok INTEGER NOT NULL,
    warning INTEGER NOT NULL,
    critical INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    at INTEGER NOT NULL,
    text TEXT,
    revision INTEGER,
    dirty INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX fleet_dirty ON fleet_key (epoch, counter) WHERE dirty = 1;
";

/// The term of the lease under which the host polls a deployment.
pub(crate) const V9: &str = "ALTER TABLE fleet_key ADD COLUMN term INTEGER NOT NULL DEFAULT 0;";

/// Applies a change. A host that has not begun as an agent has no records.
pub(crate) fn apply(connection: &Connection, change: &FleetChange) -> rusqlite::Result<()> {
    match change {
        FleetChange::Begin(now) => begin(connection, *now),
        FleetChange::Outdo(epoch) => outdo(connection, *epoch),
        FleetChange::Record(record) => put(connection, record),
        FleetChange::Acknowledged(all) => all.iter().try_for_each(|one| acknowledge(connection, one)),
        FleetChange::SendAgain(incarnation) => {
            connection.execute("UPDATE fleet_key SET dirty = 1, revision = NULL", [])?;
            let sql = "UPDATE fleet_self SET incarnation = ?1, top_revision = 0, top_deployment = NULL";
            connection.execute(sql, [incarnation]).map(drop)
        }
        FleetChange::Keep(records, place) => fleet_kept::keep(connection, records, place.as_ref()),
    }
}

fn begin(connection: &Connection, now: u32) -> rusqlite::Result<()> {
    let sql = "INSERT INTO fleet_self (one, epoch, counter, floor) VALUES (1, ?1, 1, ?1)
               ON CONFLICT (one) DO UPDATE SET epoch = max(epoch + 1, ?1), counter = 1";
    connection.execute(sql, [now])?;
    // The description has the epoch of the latest run: by it, a host with a new database finds a larger one.
    let sql = "UPDATE fleet_key SET epoch = (SELECT epoch FROM fleet_self), counter = 1, dirty = 1
               WHERE deployment = ''";
    connection.execute(sql, []).map(drop)
}

/// Everything known is said again with a larger epoch. The records of the other database are void.
fn outdo(connection: &Connection, epoch: u32) -> rusqlite::Result<()> {
    let sql = "UPDATE fleet_self SET epoch = ?1 + 1, floor = ?1 + 1 WHERE epoch <= ?1";
    if connection.execute(sql, [epoch])? == 0 {
        return Ok(());
    }
    let sql = "UPDATE fleet_key SET epoch = ?1 + 1, dirty = 1, revision = NULL";
    connection.execute(sql, [epoch])?;
    // The description holds the floor, which is new; the counter grows past every record.
    connection
        .execute("UPDATE fleet_self SET counter = (SELECT coalesce(max(counter), 0) FROM fleet_key)", [])
        .map(drop)
}

fn put(connection: &Connection, record: &FleetRecord) -> rusqlite::Result<()> {
    let held = connection
        .prepare_cached("SELECT * FROM fleet_key WHERE deployment = ?1")?
        .query_row([record.deployment()], read_record);
    if held.optional()?.as_ref().is_some_and(|held| is_same(held, record)) {
        return Ok(());
    }
    let sql = "UPDATE fleet_self SET counter = counter + 1 RETURNING epoch, counter";
    let stamp = connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
    let Some((epoch, counter)): Option<(u32, u32)> = stamp.optional()? else { return Ok(()) };
    let (phase, [ok, warning, critical, unknown], at, text, term) = match record {
        FleetRecord::Description(text) => (Phase::Succeeded, [0; 4], Timestamp::default(), Some(text), 0),
        FleetRecord::Report(DeploymentReport { phase, counts, at, error, term, .. }) => {
            (*phase, *counts, *at, error.as_ref(), *term)
        }
    };
    let term = term.cast_signed();
    let phase = Phase::ALL.iter().position(|other| *other == phase).unwrap_or_default() as i64;
    let sql = "INSERT INTO fleet_key
               (deployment, epoch, counter, phase, ok, warning, critical, unknown, at, text, term, dirty)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1)
               ON CONFLICT (deployment) DO UPDATE SET epoch = ?2, counter = ?3, phase = ?4, ok = ?5, warning = ?6,
               critical = ?7, unknown = ?8, at = ?9, text = ?10, term = ?11, dirty = 1";
    let values =
        params![record.deployment(), epoch, counter, phase, ok, warning, critical, unknown, at.as_millis(), text, term];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Whether two records differ at most in their time.
fn is_same(held: &FleetRecord, new: &FleetRecord) -> bool {
    match (held, new) {
        (FleetRecord::Report(held), FleetRecord::Report(new)) => {
            (held.phase, held.counts, &held.error, held.term) == (new.phase, new.counts, &new.error, new.term)
        }
        (held, new) => held == new,
    }
}

/// A record that changed while it was on its way stays queued.
fn acknowledge(connection: &Connection, answer: &Acknowledged) -> rusqlite::Result<()> {
    let Acknowledged { deployment, stamp: (epoch, counter), revision, is_stored } = answer;
    let revision = revision.cast_signed();
    if !is_stored {
        let sql = "UPDATE fleet_key SET revision = ?2 WHERE deployment = ?1";
        return connection.prepare_cached(sql)?.execute(params![deployment, revision]).map(drop);
    }
    let sql = "UPDATE fleet_key SET revision = ?2, dirty = NOT (epoch = ?3 AND counter = ?4) WHERE deployment = ?1";
    connection.prepare_cached(sql)?.execute(params![deployment, revision, epoch, counter])?;
    if !deployment.is_empty() {
        let sql = "UPDATE fleet_self SET top_revision = ?1, top_deployment = ?2 WHERE top_revision < ?1";
        connection.prepare_cached(sql)?.execute(params![revision, deployment])?;
    }
    Ok(())
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<FleetRecord> {
    let deployment: String = row.get("deployment")?;
    let text: Option<String> = row.get("text")?;
    if deployment.is_empty() {
        return Ok(FleetRecord::Description(text.unwrap_or_default()));
    }
    let phase: u8 = row.get("phase")?;
    Ok(FleetRecord::Report(DeploymentReport {
        deployment,
        phase: Phase::ALL.get(usize::from(phase)).copied().unwrap_or(Phase::Pending),
        counts: [row.get("ok")?, row.get("warning")?, row.get("critical")?, row.get("unknown")?],
        at: Timestamp::from_millis(row.get("at")?),
        error: text,
        term: row.get::<_, i64>("term")?.cast_unsigned(),
    }))
}

/// Returns the oldest records that the broker has not acknowledged, at most `limit`.
pub(crate) fn queued(connection: &Connection, limit: u32) -> rusqlite::Result<Vec<QueuedRecord>> {
    let sql = "SELECT * FROM fleet_key WHERE dirty = 1 ORDER BY epoch, counter LIMIT ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([limit], |row| {
        let stamp = (row.get("epoch")?, row.get("counter")?);
        Ok(QueuedRecord {
            record: read_record(row)?,
            stamp,
            revision: row.get::<_, Option<i64>>("revision")?.map(i64::cast_unsigned),
        })
    })?;
    rows.collect()
}

/// Returns all reports of deployments, whether they are acknowledged or not.
pub(crate) fn reports(connection: &Connection) -> rusqlite::Result<Vec<DeploymentReport>> {
    let mut statement = connection.prepare_cached("SELECT * FROM fleet_key WHERE deployment <> ''")?;
    let records = statement.query_map([], read_record)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let report = |record| match record {
        FleetRecord::Report(report) => Some(report),
        FleetRecord::Description(_) => None,
    };
    Ok(records.into_iter().filter_map(report).collect())
}

/// Returns the place at the broker; `None` if the host has not begun as an agent.
pub(crate) fn place(connection: &Connection) -> rusqlite::Result<Option<FleetPlace>> {
    let sql = "SELECT epoch, floor, incarnation, top_revision, top_deployment FROM fleet_self";
    let place = connection.prepare_cached(sql)?.query_row([], |row| {
        let top: Option<String> = row.get(4)?;
        let revision = row.get::<_, i64>(3)?.cast_unsigned();
        Ok(FleetPlace {
            epoch: row.get(0)?,
            floor: row.get(1)?,
            incarnation: row.get(2)?,
            top: top.map(|deployment| (deployment, revision)),
            ..FleetPlace::default()
        })
    });
    let Some(mut place) = place.optional()? else { return Ok(None) };
    let sql = "SELECT deployment, epoch, counter, dirty, revision FROM fleet_key";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let deployment: String = row.get(0)?;
        match row.get::<_, bool>(3)? {
            true => place.queued += 1,
            false if deployment.is_empty() => {
                place.described = row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned);
            }
            false => place.acknowledged.push((deployment, (row.get(1)?, row.get(2)?))),
        }
    }
    Ok(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(deployment: &str, phase: Phase, error: Option<&str>, at: i64) -> FleetChange {
        let (counts, error) = ([1, 0, 0, 0], error.map(ToOwned::to_owned));
        let (deployment, at) = (deployment.to_owned(), Timestamp::from_millis(at));
        FleetChange::Record(FleetRecord::Report(DeploymentReport { deployment, phase, counts, at, error, term: 0 }))
    }

    fn acknowledged(queued: &QueuedRecord, revision: u64, is_stored: bool) -> FleetChange {
        let deployment = queued.record.deployment().to_owned();
        FleetChange::Acknowledged(vec![Acknowledged { deployment, stamp: queued.stamp, revision, is_stored }])
    }

    fn agent() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&format!("{V8}{V9}")).unwrap();
        apply(&connection, &FleetChange::Begin(100)).unwrap();
        apply(&connection, &FleetChange::Record(FleetRecord::Description("labels".to_owned()))).unwrap();
        connection
    }

    /// The deployments of the queued records, with their stamps and revisions.
    fn outbox(connection: &Connection) -> Vec<(String, (u32, u32), Option<u64>)> {
        let queued = queued(connection, 9).unwrap().into_iter();
        queued.map(|queued| (queued.record.deployment().to_owned(), queued.stamp, queued.revision)).collect()
    }

    #[test]
    fn only_the_newest_record_of_a_key_is_queued_until_the_broker_has_it() {
        let connection = agent();
        for (phase, error) in [(Phase::Pending, None), (Phase::Failed, Some("why")), (Phase::Failed, Some("why"))] {
            apply(&connection, &report("a", phase, error, 7)).unwrap();
        }
        assert_eq!(outbox(&connection), [(String::new(), (100, 2), None), ("a".to_owned(), (100, 4), None)]);
        let sent = queued(&connection, 9).unwrap();
        // The broker holds another record; then it changes here while it is on its way.
        apply(&connection, &acknowledged(&sent[1], 31, false)).unwrap();
        assert_eq!(outbox(&connection)[1], ("a".to_owned(), (100, 4), Some(31)));
        apply(&connection, &report("a", Phase::Succeeded, None, 8)).unwrap();
        apply(&connection, &acknowledged(&sent[1], 32, true)).unwrap();
        assert_eq!(outbox(&connection)[1], ("a".to_owned(), (100, 5), Some(32)));
        for record in queued(&connection, 9).unwrap() {
            let revision = record.revision.unwrap_or(40) + 1;
            apply(&connection, &acknowledged(&record, revision, true)).unwrap();
        }
        assert_eq!(outbox(&connection), []);
        let place = place(&connection).unwrap().unwrap();
        assert_eq!((place.top, place.described), (Some(("a".to_owned(), 33)), Some(41)));
        assert_eq!((place.acknowledged, place.queued), (vec![("a".to_owned(), (100, 5))], 0));
        // The same state at another time is not sent again.
        apply(&connection, &report("a", Phase::Succeeded, None, 9)).unwrap();
        assert_eq!(outbox(&connection), []);
        assert_eq!(reports(&connection).unwrap()[0].at, Timestamp::from_millis(8));
    }

    #[test]
    fn another_broker_receives_everything_and_another_database_is_outdone() {
        let connection = agent();
        apply(&connection, &report("a", Phase::Succeeded, None, 7)).unwrap();
        for record in queued(&connection, 9).unwrap() {
            apply(&connection, &acknowledged(&record, 5, true)).unwrap();
        }
        apply(&connection, &FleetChange::SendAgain("other".to_owned())).unwrap();
        assert_eq!(outbox(&connection).len(), 2);
        let found = place(&connection).unwrap().unwrap();
        assert_eq!((found.incarnation.as_deref(), found.top, found.described), (Some("other"), None, None));
        // A clock that was set back does not take the epoch back, and only the description has the new one.
        apply(&connection, &FleetChange::Begin(50)).unwrap();
        assert_eq!(outbox(&connection), [("a".to_owned(), (100, 3), None), (String::new(), (101, 1), None)]);
        apply(&connection, &FleetChange::Outdo(90)).unwrap();
        assert_eq!(place(&connection).unwrap().unwrap().epoch, 101);
        apply(&connection, &FleetChange::Outdo(200)).unwrap();
        let found = place(&connection).unwrap().unwrap();
        assert_eq!((found.epoch, found.floor, found.queued), (201, 201, 2));
        apply(&connection, &report("b", Phase::Pending, None, 7)).unwrap();
        let stamps: Vec<_> = outbox(&connection).into_iter().map(|(_, stamp, _)| stamp).collect();
        assert_eq!(stamps, [(201, 1), (201, 3), (201, 4)]);
    }

    #[test]
    fn a_host_that_is_no_agent_queues_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&format!("{V8}{V9}")).unwrap();
        apply(&connection, &report("a", Phase::Pending, None, 7)).unwrap();
        assert_eq!((outbox(&connection), place(&connection).unwrap()), (Vec::new(), None));
    }
}
