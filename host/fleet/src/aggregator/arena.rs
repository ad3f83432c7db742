//! Texts as dense numbers.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Texts with a number each: all in one buffer, because a million small strings cost several times their length.
///
/// A text stays for ever. The caller bounds what adds texts.
#[derive(Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u32>,
    table: HashTable<u32>,
}

/// Names come from agents with known ids, so a fixed seed is no door for collisions that slow the operator down more
/// than their number does.
const HASH: FixedState = FixedState::with_seed(0x5eed);

#[inline]
fn part<'a>(bytes: &'a [u8], ends: &[u32], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start as usize..ends[number] as usize]
}

impl Arena {
    /// Returns the number of a text; `None` if it is unknown.
    pub(super) fn get(&self, wanted: &str) -> Option<u32> {
        let wanted = wanted.as_bytes();
        let same = |number: &u32| part(&self.bytes, &self.ends, *number) == wanted;
        self.table.find(HASH.hash_one(wanted), same).copied()
    }

    /// Returns the number of a text, which is added if it is unknown: the count of texts before it.
    pub(super) fn number(&mut self, wanted: &str) -> u32 {
        if let Some(number) = self.get(wanted) {
            return number;
        }
        let number = self.len();
        self.bytes.extend_from_slice(wanted.as_bytes());
        self.ends.push(u32::try_from(self.bytes.len()).expect("4 GiB of names do not fit into the operator"));
        let (bytes, ends) = (&self.bytes, &self.ends);
        let hash = |number: &u32| HASH.hash_one(part(bytes, ends, *number));
        self.table.insert_unique(HASH.hash_one(wanted.as_bytes()), number, hash);
        number
    }

    /// Returns the text with a number.
    pub(super) fn text(&self, number: u32) -> &str {
        std::str::from_utf8(part(&self.bytes, &self.ends, number)).expect("it was added as a text")
    }

    /// Returns the count of texts.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).expect("each text has a number of 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number() {
        let mut arena = Arena::default();
        let all: Vec<String> = (0..1000).map(|n| format!("name-{n}")).chain([String::new()]).collect();
        for (n, name) in all.iter().enumerate() {
            assert_eq!(arena.number(name) as usize, n);
        }
        for (n, name) in all.iter().enumerate() {
            assert_eq!((arena.number(name) as usize, arena.text(n as u32)), (n, name.as_str()));
        }
        assert_eq!((arena.get("name-1000"), arena.len()), (None, 1001));
    }
}
