//! Texts as dense numbers.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// Texts with a number and a value each: all in one buffer, because a million small strings cost several times their
/// length.
///
/// A text stays for ever. The caller bounds what adds texts.
#[derive(Default)]
pub(super) struct Arena<T = ()> {
    bytes: Vec<u8>,
    entries: Vec<Entry<T>>,
    table: HashTable<u32>,
}

/// The value is next to the end, because both are needed to find it by its text.
struct Entry<T> {
    /// Where the text ends.
    end: u32,
    value: T,
}

/// The number of devices that are best looked up at once with [`Aggregator::prefetch`](super::Aggregator::prefetch).
pub const PREFETCHED: usize = 64;

/// Names come from agents with known ids, so a fixed seed is no door for collisions that slow the operator down more
/// than their number does.
const HASH: FixedState = FixedState::with_seed(0x5eed);

#[inline]
fn part<'a, T>(bytes: &'a [u8], entries: &[Entry<T>], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { entries[number - 1].end };
    &bytes[start as usize..entries[number].end as usize]
}

impl<T: Copy + Default> Arena<T> {
    /// Returns the number of a text; `None` if it is unknown.
    pub(super) fn get(&self, wanted: &str) -> Option<u32> {
        let wanted = wanted.as_bytes();
        let same = |number: &u32| part(&self.bytes, &self.entries, *number) == wanted;
        self.table.find(HASH.hash_one(wanted), same).copied()
    }

    /// Returns the number of a text, which is added if it is unknown: the count of texts before it.
    pub(super) fn number(&mut self, wanted: &str) -> u32 {
        if let Some(number) = self.get(wanted) {
            return number;
        }
        let number = self.len();
        self.bytes.extend_from_slice(wanted.as_bytes());
        let end = u32::try_from(self.bytes.len()).expect("4 GiB of names do not fit into the operator");
        self.entries.push(Entry { end, value: T::default() });
        let (bytes, entries) = (&self.bytes, &self.entries);
        let hash = |number: &u32| HASH.hash_one(part(bytes, entries, *number));
        self.table.insert_unique(HASH.hash_one(wanted.as_bytes()), number, hash);
        number
    }

    /// Returns the numbers that these texts probably have, without reading the texts with those numbers.
    pub(super) fn guess<'a>(&self, wanted: impl Iterator<Item = &'a str>) -> SmallVec<[u32; PREFETCHED]> {
        let hashes: SmallVec<[u64; PREFETCHED]> = wanted.map(|wanted| HASH.hash_one(wanted.as_bytes())).collect();
        hashes.into_iter().filter_map(|hash| self.table.find(hash, |_| true).copied()).collect()
    }

    /// Returns the value of a text.
    pub(super) fn value(&self, number: u32) -> T {
        self.entries[number as usize].value
    }

    pub(super) fn value_mut(&mut self, number: u32) -> &mut T {
        &mut self.entries[number as usize].value
    }

    /// Returns the first and the last byte of the text with a number: it may lie on two lines of the cache.
    pub(super) fn edges(&self, number: u32) -> [u8; 2] {
        let text = part(&self.bytes, &self.entries, number);
        [text.first(), text.last()].map(|byte| byte.copied().unwrap_or_default())
    }

    /// Returns the text with a number.
    pub(super) fn text(&self, number: u32) -> &str {
        std::str::from_utf8(part(&self.bytes, &self.entries, number)).expect("it was added as a text")
    }

    /// Returns the count of texts.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("each text has a number of 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number() {
        let mut arena = Arena::<()>::default();
        let all: Vec<String> = (0..1000).map(|n| format!("name-{n}")).chain([String::new()]).collect();
        for (n, name) in all.iter().enumerate() {
            assert_eq!(arena.number(name) as usize, n);
        }
        for (n, name) in all.iter().enumerate() {
            assert_eq!((arena.number(name) as usize, arena.text(n as u32)), (n, name.as_str()));
        }
        assert_eq!((arena.get("name-1000"), arena.len()), (None, 1001));
        // Some texts share the part of the hash that the table keeps, so not every guess is right.
        let guesses = all.chunks(PREFETCHED).flat_map(|some| arena.guess(some.iter().map(String::as_str)));
        let right = guesses.enumerate().filter(|(n, guess)| *n == *guess as usize).count();
        assert!(right >= 900, "{right} of 1,001 guesses are right");
    }
}
