//! Makes untrusted text safe to show, and shows bytes and durations as text.

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

/// Returns the text without control and invisible characters, truncated to `longest` bytes. Line breaks and tabs become
/// spaces.
pub fn clean(text: &str, longest: usize) -> String {
    if is_clean(text, longest) {
        return text.to_owned();
    }
    let odd = |c: char| c.is_control() || is_invisible(c);
    let mut cleaned = String::with_capacity(text.len().min(longest));
    for c in text.chars() {
        let c = if c == '\n' || c == '\t' { ' ' } else { c };
        if odd(c) {
            continue;
        }
        if cleaned.len() + c.len_utf8() > longest.saturating_sub('…'.len_utf8()) {
            cleaned.push('…');
            break;
        }
        cleaned.push(c);
    }
    cleaned
}

/// Like [`clean`], without a copy of a text that is clean already.
pub fn cleaned(text: String, longest: usize) -> String {
    if is_clean(&text, longest) { text } else { clean(&text, longest) }
}

/// Whether a text is obviously clean: short enough, and visible ASCII. Most texts are.
fn is_clean(text: &str, longest: usize) -> bool {
    text.len() + '…'.len_utf8() <= longest && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
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

    #[test]
    fn odd_characters_are_removed_and_long_texts_are_cut() {
        let cases = [
            ("plain", 10, "plain"),
            ("two\nlines\tand a tab", 40, "two lines and a tab"),
            ("\u{1b}[31mred\u{7f}", 40, "[31mred"),
            ("a\u{202e}b\u{200b}c", 40, "abc"),
            ("größer", 40, "größer"),
            ("1234567", 10, "1234567"),
            ("12345678", 10, "1234567…"),
            ("", 10, ""),
        ];
        for (text, longest, expected) in cases {
            assert_eq!(clean(text, longest), expected, "{text:?}");
            assert_eq!(cleaned(text.to_owned(), longest), expected, "{text:?}");
        }
    }
}
