//! Numbers and times as people read them.
//!
//! A time is shown as a date and not as an age: a text that changes at every poll would be written to disk at every
//! poll.

use jiff::Timestamp;

/// How many names a message contains before the rest is counted.
const NAMED: usize = 5;

/// A day in seconds.
pub const DAY: f64 = 24.0 * 3600.0;
/// No job is due later than this from now on: a time in milliseconds is. Seconds.
pub const LATEST: f64 = 400.0 * DAY;

/// Names an item of a list that has no name: its state must not hide.
pub fn item(index: usize) -> String {
    format!("item {}", index + 1)
}

/// A date, from seconds since 1970: `2026-03-01 04:00 UTC`. `None` if it is outside the calendar.
pub fn moment(seconds: f64) -> Option<String> {
    let timestamp = Timestamp::from_second(seconds as i64).ok()?;
    let text = timestamp.to_string();
    Some(format!("{} {} UTC", text.get(..10)?, text.get(11..16)?))
}

/// Seconds since 1970, from a date in the format of RFC 3339.
pub fn seconds(text: &str) -> Option<f64> {
    Some(text.parse::<Timestamp>().ok()?.as_second() as f64)
}

/// A size: `1.8 TB`.
pub fn bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "kB", "MB", "GB", "TB", "PB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} EB")
}

/// `1 guest`, `2 guests`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A text for a query or a form. Escapes everything except letters, digits, `-._~` and `plain`.
pub fn percent_encoded(text: &str, plain: &[u8]) -> String {
    text.bytes().fold(String::new(), |encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            encoded + &char::from(byte).to_string()
        } else {
            encoded + &format!("%{byte:02X}")
        }
    })
}

/// The first few names, and the number of the others.
pub fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_formatted() {
        assert_eq!(moment(1_772_337_600.0).unwrap(), "2026-03-01 04:00 UTC");
        for absurd in [f64::MAX, 1e18, f64::INFINITY] {
            assert_eq!(moment(absurd), None, "{absurd}");
        }
        for (size, expected) in
            [(0.0, "0 B"), (999.0, "999 B"), (1e3, "1.0 kB"), (1.915e12, "1.9 TB"), (2e19, "20.0 EB")]
        {
            assert_eq!(bytes(size), expected);
        }
        let names: Vec<String> = (1..=7).map(|n| n.to_string()).collect();
        assert_eq!(list(&names), "1, 2, 3, 4, 5 and 2 more");
        assert_eq!(list(&names[..2]), "1, 2");
        assert_eq!(percent_encoded("a b/ü&~", b"/"), "a%20b/%C3%BC%26~");
        assert_eq!((count(1, "guest"), count(0, "guest")), ("1 guest".to_owned(), "0 guests".to_owned()));
    }
}
