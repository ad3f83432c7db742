//! Lines of the log.

/// Lines of a host's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The number of the line before the first one here. The lines of a process are numbered from 1.
    pub before: u64,
    /// The number of lines that were asked for, but that are no longer kept.
    pub dropped: u64,
    /// The lines, oldest first, each without its line break.
    pub lines: Vec<String>,
}
