//! Requests for the lines of a device's log, and the answers.

use super::{Record, WireError};
use model::LogPage;
use serde::{Deserialize, Serialize};

/// The maximum size of an answer in bytes: a quarter of what the broker takes in one message by default.
const LARGEST_CHUNK: usize = 256 << 10;
/// The maximum number of lines in one answer.
pub const MOST_LINES: u32 = 10_000;

/// A request for lines of a device's log: `agent.<device>.logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// The last part of the subject of the answer: `logs.<device>.<token>`.
    pub token: u64,
    /// The number of the last line that the reader has; `None` for the newest lines.
    pub after: Option<u64>,
    /// The maximum number of lines.
    pub limit: u32,
    /// The answer may be delayed by this number of milliseconds, until there is a line.
    pub wait: u32,
}

/// A part of the answer to a [`LogQuery`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    /// The number of this part, from 0.
    pub part: u32,
    /// Whether it is the last part.
    pub is_last: bool,
    /// The number of the last line before the first one here. Lines of a process are numbered from 1.
    pub before: u64,
    /// The number of lines that the reader asked for, but that are no longer kept.
    pub dropped: u64,
    /// The lines, each without its line break.
    pub lines: Vec<String>,
}

impl Record for LogQuery {
    fn check(&self) -> Result<(), WireError> {
        if self.limit <= MOST_LINES { Ok(()) } else { Err(WireError::TooLong("number of lines")) }
    }
}

impl Record for LogChunk {
    const LARGEST: usize = LARGEST_CHUNK;

    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }
}

/// Distributes lines over as many parts as they need.
pub fn chunks(LogPage { before, dropped, lines }: LogPage) -> Vec<LogChunk> {
    /// Leaves space for the other fields, and for the lengths of the lines.
    const LINES: usize = LARGEST_CHUNK - (1 << 10);
    /// The bytes of a length.
    const LENGTH: usize = 5;
    let mut chunks = vec![LogChunk { before, dropped, ..LogChunk::default() }];
    let mut size = 0;
    for (number, mut line) in (before..).zip(lines) {
        line.truncate(line.floor_char_boundary(LINES - LENGTH));
        if size + line.len() + LENGTH > LINES {
            chunks.push(LogChunk { part: chunks.len() as u32, before: number, ..LogChunk::default() });
            size = 0;
        }
        size += line.len() + LENGTH;
        if let Some(chunk) = chunks.last_mut() {
            chunk.lines.push(line);
        }
    }
    if let Some(chunk) = chunks.last_mut() {
        chunk.is_last = true;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_query_survives_a_round_trip() {
        let query = LogQuery { token: 7, after: Some(9), limit: MOST_LINES, wait: 500 };
        assert_eq!(decode(&encode(&query).unwrap()).as_ref(), Ok(&query));
        let greedy = LogQuery { limit: MOST_LINES + 1, ..query };
        assert_eq!(encode(&greedy), Err(WireError::TooLong("number of lines")));
    }

    proptest! {
        #[test]
        fn every_line_is_in_one_chunk_that_can_be_sent(
            before in 0_u64..1000,
            lengths in prop::collection::vec(0_usize..80_000, 0..20),
        ) {
            let lines: Vec<String> = lengths.iter().map(|length| "x".repeat(*length)).collect();
            let chunks = chunks(LogPage { before, dropped: 3, lines: lines.clone() });
            let mut next = before;
            for (part, chunk) in chunks.iter().enumerate() {
                let sent: LogChunk = decode(&encode(chunk).unwrap()).unwrap();
                prop_assert_eq!((sent.part as usize, sent.is_last), (part, part + 1 == chunks.len()));
                prop_assert_eq!((sent.before, sent.dropped), (next, if part == 0 { 3 } else { 0 }));
                next += sent.lines.len() as u64;
            }
            let found: Vec<String> = chunks.into_iter().flat_map(|chunk| chunk.lines).collect();
            prop_assert_eq!(found, lines);
        }
    }
}
