//! Common properties of the history tables: rows are numbered in order of time, and bounded by age, count and size.

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
