//! The part of a text that differs from its earlier version, in whole `[[target]]` tables.

use std::ops::Range;

const HEADER: &str = "[[target]]";

/// A part of both versions of a text. Around it the versions are equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangedPart {
    /// The bytes of the earlier version.
    pub before: Range<usize>,
    /// The bytes of the later version.
    pub after: Range<usize>,
}

impl ChangedPart {
    /// Finds the smallest part that consists of whole `[[target]]` tables in the earlier version, including other
    /// sections between them. `None` if the text before the first table differs, or if a version has multi-line
    /// strings, in which a header would be text.
    pub(crate) fn find(before: &str, after: &str) -> Option<Self> {
        if [before, after].iter().any(|text| text.contains("\"\"\"") || text.contains("'''")) {
            return None;
        }
        let same = |(a, b): &(u8, u8)| a == b;
        let prefix = before.bytes().zip(after.bytes()).take_while(same).count();
        let start = headers(before).take_while(|header| *header <= prefix).last()?;
        let suffix = before.bytes().rev().zip(after.bytes().rev()).take_while(same).count();
        let suffix = suffix.min(before.len() - start).min(after.len() - start);
        let mut rest = headers(&before[start..]).map(|header| start + header);
        let end = rest.find(|header| before.len() - header <= suffix && *header > start);
        let kept = end.map_or(0, |end| before.len() - end);
        let end = after.len() - kept;
        if !(end == start || after[..end].ends_with('\n') || kept == 0) {
            return None;
        }
        Some(Self { before: start..before.len() - kept, after: start..end })
    }
}

/// The offsets of the lines that begin a table.
fn headers(text: &str) -> impl Iterator<Item = usize> {
    let starts = |at: usize| at == 0 || text.as_bytes()[at - 1] == b'\n';
    text.match_indices(HEADER).map(|(at, _)| at).filter(move |at| starts(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changed_part_consists_of_whole_tables() {
        const A: &str = "[[target]]\nid = 1\n";
        const B: &str = "[[target]]\nid = 2\n";
        const C: &str = "[[target]]\nid = 3\n";
        let text = |parts: &[&str]| parts.concat();
        for (before, after, expected) in [
            (
                text(&["x = 1\n", A, B, C]),
                text(&["x = 1\n", A, "[[target]]\nid = 9\n", C]),
                Some((B, "[[target]]\nid = 9\n")),
            ),
            (text(&[A, B]), text(&[A, B, C]), Some((B, "[[target]]\nid = 2\n[[target]]\nid = 3\n"))),
            (text(&[A, B, C]), text(&[A, C]), Some(("[[target]]\nid = 2\n", ""))),
            (text(&[A, B]), text(&[A]), Some((B, ""))),
            (text(&[A, B]), text(&[A, B]), Some((B, B))),
            (text(&["x = 1\n", A]), text(&["x = 2\n", A]), None),
            (text(&["x = 1\n"]), text(&["x = 1\n", A]), None),
            (text(&[A, "[a]\nb = '''\n", B]), text(&[A, "[a]\nb = '''\n", C]), None),
        ] {
            let part = ChangedPart::find(&before, &after);
            let found = part.map(|part| (before[part.before].to_owned(), after[part.after].to_owned()));
            let expected = expected.map(|(before, after)| (before.to_owned(), after.to_owned()));
            assert_eq!(found, expected, "{before} {after}");
        }
    }
}
