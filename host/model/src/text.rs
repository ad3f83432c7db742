//! Detects characters in untrusted text that can deceive the reader, and shows bytes and durations as text.

use std::fmt::Write;
use std::time::Duration;

/// Returns true for an invisible character that changes how others are read: direction marks and overrides, zero-width
/// spaces, tags (Unicode general category Cf). The joiners that emoji and some scripts need are excluded.
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Formats bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A duration in its two largest units, rounded down: `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
pub fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let check = |seconds, expected: &str| assert_eq!(short_duration(Duration::from_secs(seconds)), expected);
        check(45, "45 s");
        check(754, "12 min");
        check(3600, "1 h");
        check(11_100, "3 h 5 min");
        check(187_300, "2 d 4 h");
        check(172_900, "2 d");
    }
}
