//! The records of devices that this operator has read, for its host to keep: a start reads only those that came after.
//!
//! The operator writes its mark into a stream, and when it reads it there, it has read everything before. Records and
//! place are kept in one transaction. A stream that was made again, or restored from a copy, lacks the mark or has an
//! earlier one: then it is read from the beginning. Records that are applied twice change nothing.

use super::noticed::Noticed;
use crate::bucket::{Bucket, is_mark, mark};
use bytes::Bytes;
use model::{KeptPlace, KeptRecord};
use std::collections::HashMap;

/// The buckets whose records are kept.
pub(super) const KEPT: [Bucket; 2] = [Bucket::Info, Bucket::State];
/// Kept at the latest when there are this many.
const MOST: usize = 10_000;
/// Records are kept this often, in seconds.
pub(super) const EVERY: u32 = 5;

/// The records that were read and not kept yet.
pub(super) struct Kept {
    /// The key of this operator's mark.
    mark: String,
    unkept: [Unkept; KEPT.len()],
}

#[derive(Default)]
struct Unkept {
    incarnation: String,
    records: HashMap<String, Bytes>,
    is_caught_up: bool,
    /// The mark that is on its way.
    written: Option<String>,
}

impl Kept {
    pub(super) fn new(operator: &str) -> Self {
        Self { mark: mark(operator), unkept: Default::default() }
    }

    fn of(&mut self, bucket: Bucket) -> Option<&mut Unkept> {
        KEPT.iter().position(|kept| *kept == bucket).map(|place| &mut self.unkept[place])
    }

    /// Begins to read a stream.
    pub(super) fn attached(&mut self, bucket: Bucket, incarnation: &str) {
        if let Some(unkept) = self.of(bucket) {
            (unkept.incarnation, unkept.is_caught_up, unkept.written) = (incarnation.to_owned(), false, None);
        }
    }

    /// Everything that was in the stream at the attach has been read.
    pub(super) fn caught_up(&mut self, bucket: Bucket) {
        if let Some(unkept) = self.of(bucket) {
            unkept.is_caught_up = true;
        }
    }

    /// Notes a record. Returns what the host should keep now.
    pub(super) fn read(&mut self, bucket: Bucket, key: &str, payload: &Bytes, sequence: u64) -> Option<Noticed> {
        let is_own = key == self.mark;
        let unkept = self.of(bucket)?;
        if is_mark(key) {
            if !is_own {
                return None;
            }
            let mark = unkept.written.take_if(|mark| mark.as_bytes() == payload)?;
            let incarnation = unkept.incarnation.clone();
            let place = KeptPlace { stream: bucket.stream(), incarnation, sequence, mark };
            return Some(Noticed::Read(unkept.take(bucket), Some(place)));
        }
        unkept.records.insert(key.to_owned(), payload.clone());
        (unkept.records.len() >= MOST).then(|| Noticed::Read(unkept.take(bucket), None))
    }

    /// Returns the marks to write: subjects and texts. The text differs from those before.
    pub(super) fn marks(&mut self, text: &str) -> Vec<(String, String)> {
        let mark = self.mark.clone();
        let buckets = KEPT.into_iter().zip(&mut self.unkept);
        let due = buckets.filter(|(_, unkept)| unkept.is_caught_up && !unkept.records.is_empty());
        due.map(|(bucket, unkept)| {
            unkept.written = Some(text.to_owned());
            (bucket.subject(&mark), text.to_owned())
        })
        .collect()
    }
}

impl Unkept {
    fn take(&mut self, bucket: Bucket) -> Vec<KeptRecord> {
        let kept =
            |(key, payload): (String, Bytes)| KeptRecord { stream: bucket.stream(), key, payload: payload.into() };
        std::mem::take(&mut self.records).into_iter().map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_with_the_place_of_the_mark_that_was_written_last() {
        let mut kept = Kept::new("hub");
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        kept.attached(Bucket::Info, "made on Monday");
        assert_eq!(kept.read(Bucket::Info, "info.a", &bytes("1"), 1), None);
        assert_eq!(kept.marks("first"), [], "the stream has not been read yet");
        kept.caught_up(Bucket::Info);
        assert_eq!(kept.marks("first"), [("$KV.device-info.mark.hub".to_owned(), "first".to_owned())]);
        assert_eq!(kept.marks("second").len(), 1);
        assert_eq!(kept.read(Bucket::Info, "info.a", &bytes("2"), 2), None);
        assert_eq!(kept.read(Bucket::Info, "mark.hub", &bytes("first"), 3), None, "a later one follows");
        let stream = Bucket::Info.stream();
        let record = KeptRecord { stream: stream.clone(), key: "info.a".to_owned(), payload: b"2".to_vec() };
        let (incarnation, mark) = ("made on Monday".to_owned(), "second".to_owned());
        let place = KeptPlace { stream, incarnation, sequence: 4, mark };
        let expected = Noticed::Read(vec![record], Some(place));
        assert_eq!(kept.read(Bucket::Info, "mark.hub", &bytes("second"), 4), Some(expected));
        assert_eq!(kept.marks("third"), [], "nothing has changed");
        // Two operators do not answer each other's marks.
        assert_eq!(kept.read(Bucket::Info, "mark.other", &bytes("x"), 5), None);
        assert_eq!(kept.marks("fourth"), []);
        // Other buckets are read again at each start.
        assert_eq!(kept.read(Bucket::Leases, "operator", &bytes("x"), 1), None);
        // While a large stream is read, its records are kept, but no place.
        for number in 0..MOST - 1 {
            assert_eq!(kept.read(Bucket::State, &format!("state.a.{number}"), &bytes("x"), 9), None);
        }
        let Some(Noticed::Read(records, None)) = kept.read(Bucket::State, "state.b.web", &bytes("x"), 9) else {
            panic!("it must be kept")
        };
        assert_eq!(records.len(), MOST);
    }
}
