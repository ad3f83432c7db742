//! Pauses in long responses.
//!
//! A thread that wakes up may have to wait until the thread that runs has used its time slice, up to a tick of the
//! kernel (4 ms), whatever their priorities. A response about thousands of targets takes far longer than that. It
//! yields the core after every few items, so that polls start on time (`cargo bench -p polliwog --bench host --
//! readers`).

use std::fmt;

/// Items between two pauses. They take well below a millisecond.
const ITEMS: usize = 8;
/// Bytes of text between two pauses.
const BYTES: usize = 16 << 10;

/// Adds pauses to an iterator.
pub(crate) trait WithPauses: Iterator + Sized {
    /// Yields the core to other threads after every few items.
    fn with_pauses(self) -> impl Iterator<Item = Self::Item> {
        self.enumerate().map(|(index, item)| {
            if index % ITEMS == ITEMS - 1 {
                std::thread::yield_now();
            }
            item
        })
    }
}

impl<I: Iterator> WithPauses for I {}

/// Text that yields the core to other threads while it is written.
#[derive(Default)]
pub(crate) struct PausingText {
    text: String,
    since: usize,
}

impl PausingText {
    /// Returns the text.
    pub(crate) fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Write for PausingText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.text.push_str(more);
        self.since += more.len();
        if self.since >= BYTES {
            self.since = 0;
            std::thread::yield_now();
        }
        Ok(())
    }
}
