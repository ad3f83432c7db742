//! Latencies with three significant digits, as codes of two bytes.
//!
//! Times of one dependency differ in most of their digits, so that no compression makes them shorter. Three digits are
//! as many as a chart or a table shows: the difference is at most half a percent. The codes are in order of the times,
//! so that those of similar latencies differ in their low byte only.

use serde::{Deserialize, Serialize};

/// Times below it, in microseconds, are their own codes.
const EXACT: u32 = 1_000;
/// Codes for each power of ten from there on: 100 to 999.
const DECADE: u32 = 900;

/// Returns the code of a time in microseconds, which is rounded to three significant digits.
pub(crate) fn code(us: u32) -> u16 {
    let (mut unit, mut exponent) = (1_u64, 0);
    while u64::from(us) / unit >= EXACT.into() {
        unit *= 10;
        exponent += 1;
    }
    // A time that is rounded up to the next power of ten has the first code of that power: 999 + 1.
    let digits = ((u64::from(us) + unit / 2) / unit) as u32;
    (exponent * DECADE + digits) as u16
}

/// Returns the time of a code in microseconds.
pub(crate) fn micros_of(code: u16) -> u32 {
    let code = u32::from(code);
    let exponent = code.saturating_sub(EXACT - DECADE) / DECADE;
    let digits = code - exponent * DECADE;
    10_u32.checked_pow(exponent).and_then(|unit| digits.checked_mul(unit)).unwrap_or(u32::MAX)
}

/// A column of codes, the low and the high bytes apart: compression finds the equal high bytes.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Codes {
    low: Vec<u8>,
    high: Vec<u8>,
}

impl Codes {
    pub(crate) fn push(&mut self, code: u16) {
        let [low, high] = code.to_le_bytes();
        self.low.push(low);
        self.high.push(high);
    }

    /// Returns the codes; the shorter half ends them.
    pub(crate) fn codes(self) -> impl Iterator<Item = u16> {
        self.low.into_iter().zip(self.high).map(|(low, high)| u16::from_le_bytes([low, high]))
    }
}

impl FromIterator<u16> for Codes {
    fn from_iter<I: IntoIterator<Item = u16>>(codes: I) -> Self {
        let mut column = Self::default();
        codes.into_iter().for_each(|code| column.push(code));
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_three_significant_digits() {
        let cases = [
            (0, 0),
            (7, 7),
            (999, 999),
            (1_000, 1_000),
            (1_004, 1_000),
            (1_005, 1_010),
            (9_994, 9_990),
            (9_995, 10_000),
            (12_345, 12_300),
            (99_950, 100_000),
            (4_284_949_999, 4_280_000_000),
            (u32::MAX, 4_290_000_000),
        ];
        for (us, rounded) in cases {
            assert_eq!(micros_of(code(us)), rounded, "{us}");
        }
        assert_eq!(micros_of(u16::MAX), u32::MAX, "a damaged code");
    }

    proptest! {
        #[test]
        fn a_code_is_within_half_a_percent_and_in_order(us in any::<u32>(), other in any::<u32>()) {
            let rounded = f64::from(micros_of(code(us)));
            prop_assert!((rounded - f64::from(us)).abs() <= f64::from(us) * 0.005);
            prop_assert_eq!(code(micros_of(code(us))), code(us));
            prop_assert!(us > other || code(us) <= code(other));
        }

        #[test]
        fn a_column_is_restored(codes: Vec<u16>) {
            let column: Codes = codes.iter().copied().collect();
            prop_assert_eq!(column.codes().collect::<Vec<_>>(), codes);
        }
    }
}
