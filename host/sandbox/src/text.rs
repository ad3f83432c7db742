//! Makes texts from plugins safe to show.

/// Returns the text without control and invisible characters, truncated to `longest` bytes. Line breaks and tabs become
/// spaces.
pub(crate) fn clean(text: &str, longest: usize) -> String {
    if is_clean(text, longest) {
        return text.to_owned();
    }
    let odd = |c: char| c.is_control() || model::is_invisible(c);
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
pub(crate) fn cleaned(text: String, longest: usize) -> String {
    if is_clean(&text, longest) { text } else { clean(&text, longest) }
}

/// Whether a text is obviously clean: short enough, and visible ASCII. Most texts are.
fn is_clean(text: &str, longest: usize) -> bool {
    text.len() + '…'.len_utf8() <= longest && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

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
