//! Common properties of the history tables: rows are numbered in order of time, and bounded by age, count and size.

use model::{TargetId, Timestamp};
use rusqlite::{Connection, Row};

/// The maximum number of rows of one table that one read returns.
const ROWS: usize = 20_000;

/// A history table.
pub(crate) struct History {
    /// The name of the table.
    pub table: &'static str,
    /// The column that numbers its rows.
    pub id: &'static str,
    /// Whether the column `target` holds the number of the target (true) or its id (false).
    pub by_number: bool,
    /// An expression for the approximate bytes of a row.
    pub bytes: &'static str,
}

/// The indexes of the tables in [`HISTORY`](super::HISTORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Event,
    Transition,
    Error,
    PollError,
}

/// The newest rows of a target in one table.
pub(crate) struct Newest<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// The time of the oldest row, if older ones were left out because there are too many.
    pub cut: Option<Timestamp>,
}

impl<T> Newest<T> {
    /// Reads the rows of a target since a time, and the last one before it if `with_earlier`. `sql` selects all of its
    /// rows, newest first, with the time as column 3.
    pub(super) fn read(
        connection: &Connection,
        (sql, target, since): (&str, &TargetId, Timestamp),
        with_earlier: bool,
        mut parse: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([target.as_str()])?;
        let (mut found, mut oldest) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
            let at = Timestamp::from_millis(row.get(3)?);
            if at < since {
                found.extend(with_earlier.then(|| parse(row)).transpose()?);
                break;
            }
            if found.len() == ROWS {
                return Ok(Self { rows: found, cut: oldest });
            }
            found.push(parse(row)?);
            oldest = Some(at);
        }
        Ok(Self { rows: found, cut: None })
    }
}
