//! Answers to requests for lines of this device's log.

use crate::bucket::logs;
use async_nats::Client;
use bytes::Bytes;
use fleet::wire::{LogQuery, chunks, decode, encode};
use model::LogPage;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The maximum number of requests that are answered at the same time.
const READERS: usize = 8;
/// A request that waits for a line looks for one this often.
const LOOK: Duration = Duration::from_millis(200);
/// The longest time that an answer is delayed.
const LONGEST: Duration = Duration::from_secs(20);

/// Answers requests for the log.
pub(super) struct Logs {
    client: Client,
    device: String,
    readers: Arc<Semaphore>,
}

impl Logs {
    pub(super) fn new(client: Client, device: String) -> Self {
        Self { client, device, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Answers a request with what `read` returns, while the agent goes on. A request that is not valid, or one too
    /// many, is not answered: its reader repeats it.
    pub(super) fn answer(&self, request: &Bytes, read: impl Fn(Option<u64>, usize) -> LogPage + Send + 'static) {
        let Ok(query) = decode::<LogQuery>(request) else { return };
        let Ok(reader) = self.readers.clone().try_acquire_owned() else { return };
        let (client, subject) = (self.client.clone(), logs(&self.device, query.token));
        tokio::spawn(async move {
            let until = Instant::now() + Duration::from_millis(query.wait.into()).min(LONGEST);
            let limit = query.limit as usize;
            let page = loop {
                let page = read(query.after, limit);
                if !page.lines.is_empty() || Instant::now() >= until {
                    break page;
                }
                tokio::time::sleep(LOOK).await;
            };
            for chunk in chunks(page) {
                let Ok(payload) = encode(&chunk) else { continue };
                // A publish does not wait for the network, a flush does: a large log does not fill the memory.
                let sent =
                    client.publish(subject.clone(), payload.into()).await.is_ok() && client.flush().await.is_ok();
                if !sent {
                    break;
                }
            }
            drop(reader);
        });
    }
}
