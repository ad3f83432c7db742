//! The event bus.

use model::SequencedEvent;
use std::sync::Arc;
use tokio::sync::broadcast::{self, Receiver};

/// The number of events that are queued for a slow listener. A slower listener misses events and receives their number.
const BACKLOG: usize = 4096;

/// Announces events to every listener. Clones share their listeners.
#[derive(Clone, Debug)]
pub struct Bus {
    sender: broadcast::Sender<Arc<SequencedEvent>>,
}

impl Default for Bus {
    fn default() -> Self {
        Self { sender: broadcast::channel(BACKLOG).0 }
    }
}

impl Bus {
    /// Announces an event to the present listeners.
    pub fn announce(&self, event: SequencedEvent) {
        // Without a listener there is nothing to do.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Whether there is a listener.
    pub fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Listens from now on.
    pub fn listen(&self) -> Receiver<Arc<SequencedEvent>> {
        self.sender.subscribe()
    }
}
