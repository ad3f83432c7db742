//! Bounds history by age, rows and bytes.
//!
//! If a bound is exceeded, the owner with the largest share loses its oldest rows. A target that changes all the time
//! thus never displaces the history of others.

use super::pending::{Limits, Owner};
use crate::tables::HISTORY;
use crate::tables::history::Place;
use model::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Transaction, params};
use std::collections::HashMap;

/// The maximum number of rows that one step deletes, so that no transaction is long.
const STEP: u64 = 20_000;
/// The maximum number of steps per pass over all histories.
const STEPS: usize = 32;

/// The share of one owner in one history table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub rows: u64,
    pub bytes: u64,
}

/// The share of every owner in each history table.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    by_table: [HashMap<Owner, Usage>; HISTORY.len()],
}

impl Shares {
    /// Counts the stored rows.
    pub(super) fn count(transaction: &Transaction<'_>) -> rusqlite::Result<Self> {
        let mut shares = Self::default();
        for (table, history) in HISTORY.iter().enumerate() {
            let sql = format!(
                "SELECT target, count(*), coalesce(sum({}), 0) FROM {} GROUP BY target",
                history.bytes, history.table
            );
            let mut statement = transaction.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let usage = Usage { rows: row.get::<_, i64>(1)? as u64, bytes: row.get::<_, i64>(2)? as u64 };
                shares.by_table[table].insert(owner(row.get(0)?), usage);
            }
        }
        Ok(shares)
    }

    /// Counts a new row.
    pub(super) fn add(&mut self, table: Place, owner: Owner, bytes: u64) {
        let usage = self.by_table[table as usize].entry(owner).or_default();
        usage.rows += 1;
        usage.bytes += bytes;
    }

    fn take(&mut self, table: usize, owner: &Owner, bytes: u64) {
        let Some(usage) = self.by_table[table].get_mut(owner) else { return };
        usage.rows = usage.rows.saturating_sub(1);
        usage.bytes = usage.bytes.saturating_sub(bytes);
        if usage.rows == 0 {
            self.by_table[table].remove(owner);
        }
    }

    /// Deletes rows that are too old (only if `now` is plausible) and rows beyond the bounds, in small steps.
    pub(super) fn prune(
        &mut self,
        transaction: &Transaction<'_>,
        limits: Limits,
        now: Option<Timestamp>,
    ) -> rusqlite::Result<()> {
        if let Some(now) = now {
            let oldest = limits.oldest(now).as_millis();
            for (table, history) in HISTORY.iter().enumerate() {
                self.prune_age(transaction, (table, history.table, history.id, history.bytes), oldest)?;
            }
        }
        for _ in 0..STEPS {
            let Some((table, owner, rows)) = self.surplus(limits) else { break };
            self.prune_oldest(transaction, table, &owner, rows)?;
        }
        Ok(())
    }

    fn prune_age(
        &mut self,
        transaction: &Transaction<'_>,
        (number, table, id, bytes): (usize, &str, &str, &str),
        oldest: i64,
    ) -> rusqlite::Result<()> {
        // Row numbers rise with time, so only the first rows are read.
        let first = format!("SELECT at FROM {table} ORDER BY {id} LIMIT 1");
        let first: Option<i64> =
            transaction.prepare_cached(&first)?.query_map([], |row| row.get(0))?.next().transpose()?;
        if first.is_none_or(|first| first >= oldest) {
            return Ok(());
        }
        let sql = format!(
            "DELETE FROM {table} WHERE {id} IN (SELECT {id} FROM {table} ORDER BY {id} LIMIT ?2) AND at < ?1
             RETURNING target, {bytes}"
        );
        self.delete(transaction, number, &sql, params![oldest, STEP as i64])
    }

    /// Returns the table, the owner and the number of rows to delete next: those of the largest owner if there are too
    /// many rows or bytes.
    fn surplus(&self, limits: Limits) -> Option<(usize, Owner, u64)> {
        for (table, owners) in self.by_table.iter().enumerate() {
            let rows: u64 = owners.values().map(|usage| usage.rows).sum();
            if rows > limits.rows {
                let (owner, largest) = owners.iter().max_by_key(|(_, usage)| usage.rows)?;
                let fair = largest.rows.div_ceil(2);
                return Some((table, owner.clone(), (rows - limits.rows).min(fair).min(STEP)));
            }
        }
        let all =
            || self.by_table.iter().enumerate().flat_map(|(table, of)| of.iter().map(move |(o, u)| (table, o, u)));
        let bytes: u64 = all().map(|(.., usage)| usage.bytes).sum();
        let surplus = bytes.checked_sub(limits.bytes).filter(|surplus| *surplus > 0)?;
        let (table, owner, largest) = all().max_by_key(|(.., usage)| usage.bytes)?;
        let each = (largest.bytes / largest.rows.max(1)).max(1);
        let rows = surplus.min(largest.bytes.div_ceil(2)).div_ceil(each);
        Some((table, owner.clone(), rows.clamp(1, STEP)))
    }

    fn prune_oldest(
        &mut self,
        transaction: &Transaction<'_>,
        table: usize,
        of: &Owner,
        rows: u64,
    ) -> rusqlite::Result<()> {
        let history = &HISTORY[table];
        let (name, id, bytes) = (history.table, history.id, history.bytes);
        let sql = format!(
            "DELETE FROM {name} WHERE {id} IN (SELECT {id} FROM {name} WHERE target IS ?1 ORDER BY {id} LIMIT ?2)
             RETURNING target, {bytes}"
        );
        let of_target: Value = match of {
            None => Value::Null,
            Some(id) if history.by_number => id.parse().map_or(Value::Null, Value::Integer),
            Some(id) => Value::Text(id.clone()),
        };
        let before = self.by_table[table].get(of).copied();
        self.delete(transaction, table, &sql, params![of_target, rows as i64])?;
        if self.by_table[table].get(of).copied() == before {
            // The count is wrong, for example after a crash of another version; do not retry this owner.
            self.by_table[table].remove(of);
        }
        Ok(())
    }

    fn delete(
        &mut self,
        transaction: &Transaction<'_>,
        table: usize,
        sql: &str,
        of: &[&dyn rusqlite::ToSql],
    ) -> rusqlite::Result<()> {
        let mut statement = transaction.prepare_cached(sql)?;
        let mut rows = statement.query(of)?;
        while let Some(row) = rows.next()? {
            let bytes: i64 = row.get(1)?;
            self.take(table, &owner(row.get(0)?), bytes as u64);
        }
        Ok(())
    }
}

fn owner(value: Value) -> Owner {
    match value {
        Value::Integer(number) => Some(number.to_string()),
        Value::Text(id) => Some(id),
        _ => None,
    }
}
