//! A quick test for texts that contain no pattern, which almost all answers are.
//!
//! The automaton reads each byte. This filter reads four bytes in every five: a text that contains a pattern of eight
//! bytes or more contains four of its bytes at one of these places. A Bloom filter with two bits for each entry
//! compares them with those of all patterns.

/// Minimum length of a pattern.
pub(super) const SHORTEST_PATTERN: usize = 8;
/// Number of bytes that are compared at once.
const GRAM: usize = 4;
/// Distance of the places. Each pattern is long enough to cover one of them wholly.
const STEP: usize = SHORTEST_PATTERN - GRAM + 1;
/// Bits of the filter for each entry. With 32, one place in 300 is found although no pattern is there: (2/32)².
const BITS: usize = 32;

/// The four bytes at each place of each pattern.
#[derive(Default)]
pub(super) struct Filter {
    /// The length is a power of two.
    words: Vec<u64>,
}

impl Filter {
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let grams = patterns.flat_map(|pattern| pattern.windows(GRAM).take(STEP));
        let words = (grams.clone().count() * BITS / 64).next_power_of_two();
        let mut filter = Self { words: vec![0; words] };
        for gram in grams {
            for bit in bits(gram) {
                let (word, mask) = filter.word_and_mask(bit);
                filter.words[word] |= mask;
            }
        }
        filter
    }

    /// Returns the places in a text where a pattern may be. An occurrence of a pattern begins less than [`STEP`] bytes
    /// before such a place, or at it.
    pub(super) fn places(&self, text: &[u8]) -> impl Iterator<Item = usize> {
        let grams = text.windows(GRAM).step_by(STEP).enumerate();
        grams.filter(|(_, gram)| self.may_contain(gram)).map(|(index, _)| index * STEP)
    }

    fn may_contain(&self, gram: &[u8]) -> bool {
        bits(gram).into_iter().all(|bit| {
            let (word, mask) = self.word_and_mask(bit);
            self.words.get(word).is_some_and(|word| word & mask != 0)
        })
    }

    /// Returns the index of the word of a bit, and its mask in the word.
    fn word_and_mask(&self, bit: u32) -> (usize, u64) {
        ((bit as usize / 64) & self.words.len().wrapping_sub(1), 1 << (bit % 64))
    }
}

/// Returns two bits for [`GRAM`] bytes: parts of a hash that ignores the case of letters (multiplicative, after Knuth).
fn bits(gram: &[u8]) -> [u32; 2] {
    let bytes = gram.first_chunk::<GRAM>().copied().unwrap_or_default();
    let hash = u64::from(u32::from_le_bytes(bytes) | 0x2020_2020).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [(hash >> 32) as u32, hash.rotate_left(16) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_occurrence_has_a_place(
            patterns in prop::collection::vec(prop::collection::vec(any::<u8>(), SHORTEST_PATTERN..20), 1..40),
            which in any::<prop::sample::Index>(),
            before in prop::collection::vec(any::<u8>(), 0..40),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let filter = Filter::new(patterns.iter().map(Vec::as_slice));
            let pattern = which.get(&patterns);
            for occurrence in [pattern.to_ascii_uppercase(), pattern.to_ascii_lowercase()] {
                let text = [&before[..], &occurrence, &behind].concat();
                let place = filter.places(&text).find(|place| (before.len()..before.len() + STEP).contains(place));
                prop_assert!(place.is_some(), "{text:?} contains {occurrence:?}");
            }
        }
    }

    #[test]
    fn most_places_of_other_texts_are_not_found() {
        let patterns: Vec<Vec<u8>> = (0..40).map(|n| format!("secret{n:02}").into_bytes()).collect();
        let filter = Filter::new(patterns.iter().map(Vec::as_slice));
        let text: String = (0..10_000).map(|n| format!("{{\"vmid\":{n},\"mem\":{}}},", n * 7919)).collect();
        let found = filter.places(text.as_bytes()).count();
        assert!(found * 50 < text.len() / STEP, "{found} of {}", text.len() / STEP);
    }
}
