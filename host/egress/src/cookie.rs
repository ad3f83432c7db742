//! Where the values are in headers that carry cookies (RFC 6265, sections 4.2 and 5.2).

use std::ops::Range;

/// Returns the name of the cookie that a `Set-Cookie` header sets, and the place of its value without quotes. A text
/// without `=` is a value without a name, as browsers read it.
pub(crate) fn set_by(header: &str) -> (&str, Range<usize>) {
    let pair = header.split(';').next().unwrap_or_default();
    let (name, start) = pair.split_once('=').map_or(("", 0), |(name, _)| (name.trim(), name.len() + 1));
    (name, unquoted(header, start..pair.len()))
}

/// Returns the places of the values in a `Cookie` header.
pub(crate) fn sent_in(header: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let places = header.split(';').map(|pair| {
        let value = start + pair.find('=').map_or(0, |at| at + 1)..start + pair.len();
        start += pair.len() + 1;
        unquoted(header, value)
    });
    places.collect()
}

/// Returns a place without the spaces and quotes around its text.
fn unquoted(header: &str, place: Range<usize>) -> Range<usize> {
    let text = &header[place.clone()];
    let trimmed = text.trim().trim_matches('"');
    let start = place.start + (trimmed.as_ptr().addr() - text.as_ptr().addr());
    start..start + trimmed.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_without_name_attributes_and_quotes() {
        for (header, name, value) in [
            ("a=1; Path=/; HttpOnly", "a", "1"),
            ("Ticket=\"PMG:x::abc=\"; Secure", "Ticket", "PMG:x::abc="),
            (" a = b c ;x=y", "a", "b c"),
            ("a=", "a", ""),
            ("=b", "", "b"),
            ("no-name; Path=/", "", "no-name"),
            ("a=ü=ö", "a", "ü=ö"),
            ("", "", ""),
            (";", "", ""),
        ] {
            let (found, place) = set_by(header);
            assert_eq!((found, &header[place]), (name, value), "{header:?}");
        }
        for (header, values) in
            [("a=1; b=\"2\"", vec!["1", "2"]), ("a=${secret.sid};b", vec!["${secret.sid}", "b"]), ("", vec![""])]
        {
            let found: Vec<&str> = sent_in(header).into_iter().map(|place| &header[place]).collect();
            assert_eq!(found, values, "{header:?}");
        }
    }
}
