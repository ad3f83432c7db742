//! Yields to other tasks while a long text is masked.

/// Number of bytes after which masking yields to other tasks, so that a body of many megabytes does not block them.
pub(super) const TURN: usize = 64 << 10;

/// Yields to other tasks after every [`TURN`] bytes.
#[derive(Default)]
pub(super) struct Turns {
    bytes: usize,
}

impl Turns {
    pub(super) async fn after(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= TURN {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}
