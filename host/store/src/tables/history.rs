//! What tables of history have in common: rows are numbered in the order of time, and bounded by age, count and size.

/// A table of history.
pub(crate) struct History {
    /// Its name.
    pub table: &'static str,
    /// The column that numbers its rows.
    pub id: &'static str,
    /// Whether its column `target` holds a target's number; else its id.
    pub by_number: bool,
    /// An expression for the approximate bytes of a row.
    pub bytes: &'static str,
}

/// The places of the tables in [`HISTORY`](super::HISTORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Event,
    Transition,
    Error,
    PollError,
}
