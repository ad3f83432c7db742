//! The latest lines of the log, for readers.

use model::LogPage;
use std::collections::VecDeque;

/// The number of lines that are kept.
const LINES: usize = 10_000;
/// The number of bytes that are kept. A line of the log may be long.
const BYTES: usize = 4 << 20;

/// The latest lines of the log. They are numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct LogRing {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the line before the first one here.
    before: u64,
}

impl LogRing {
    pub(crate) fn push(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = without_colours(text.trim_end_matches('\n'));
        self.bytes += text.len();
        self.lines.push_back(text);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
            self.before += 1;
        }
    }

    /// Returns at most `limit` lines: those after a line, oldest first; or the newest. A reader that asks for lines
    /// after one that does not exist yet has read those of an earlier process: it gets the newest.
    pub(crate) fn page(&self, after: Option<u64>, limit: usize) -> LogPage {
        let newest = self.before + self.lines.len() as u64;
        let after = after.filter(|after| *after <= newest);
        let before = match after {
            Some(after) => after.max(self.before),
            None => newest - (limit.min(self.lines.len()) as u64),
        };
        let skipped = usize::try_from(before - self.before).unwrap_or(usize::MAX);
        let lines = self.lines.iter().skip(skipped).take(limit).cloned().collect();
        LogPage { before, dropped: after.map_or(0, |after| before - after), lines }
    }
}

/// Removes the sequences that set colours on a terminal.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_every_line_or_the_number_of_those_that_are_gone() {
        let mut ring = LogRing::default();
        assert_eq!(ring.page(None, 5), LogPage::default());
        for number in 1..=LINES + 5 {
            ring.push(format!("line {number}\n").as_bytes());
        }
        let newest = ring.page(None, 2);
        assert_eq!(
            (newest.before, newest.lines),
            (LINES as u64 + 3, vec!["line 10004".to_owned(), "line 10005".to_owned()])
        );
        let page = ring.page(Some(2), 1);
        assert_eq!((page.before, page.dropped, page.lines), (5, 3, vec!["line 6".to_owned()]));
        assert_eq!(ring.page(Some(10_005), 9), LogPage { before: 10_005, ..LogPage::default() });
        // The process has started again since.
        assert_eq!(ring.page(Some(20_000), 1).lines, ["line 10005"]);
        ring.push(b"\x1b[2mtime\x1b[0m \x1b[32m INFO\x1b[0m it works\n");
        assert_eq!(ring.page(None, 1).lines, ["time  INFO it works"]);
        ring.push(&vec![b'x'; BYTES]);
        assert_eq!(ring.lines.len(), 1);
    }
}
