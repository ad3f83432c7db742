//! Answers to requests of an operator: lines of this device's log, and what its API answers.

use crate::agent_host::AgentHost;
use crate::bucket::{log_request, logs, read_request};
use crate::seal::Keys;
use async_nats::Client;
use bytes::Bytes;
use fleet::wire::{LogQuery, ReadQuery, Record, chunks, encode, read_parts};
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

/// Answers requests.
pub(super) struct Answers<H> {
    host: Arc<H>,
    sender: Sender,
    readers: Arc<Semaphore>,
}

#[derive(Clone)]
struct Sender {
    client: Client,
    keys: Keys,
    device: String,
}

impl<H: AgentHost> Answers<H> {
    pub(super) fn new(host: Arc<H>, client: Client, (device, keys): (String, Keys)) -> Self {
        let sender = Sender { client, keys, device };
        Self { host, sender, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Answers a request while the agent goes on. Returns whether it is one for this. A request that is not valid, not
    /// sealed as it should be, or one too many, is not answered.
    pub(super) fn answer(&self, subject: &str, request: &Bytes) -> bool {
        let (host, sender) = (self.host.clone(), self.sender.clone());
        let device = &sender.device;
        let (is_log, is_read) = (subject == log_request(device), subject == read_request(device));
        if !is_log && !is_read {
            return false;
        }
        let Ok(reader) = self.readers.clone().try_acquire_owned() else { return true };
        if is_log && let Ok(query) = sender.keys.read::<LogQuery>((device, subject), request) {
            tokio::spawn(async move {
                sender.send(query.token, chunks(lines(&*host, &query).await)).await;
                drop(reader);
            });
        } else if is_read && let Ok(query) = sender.keys.read::<ReadQuery>((device, subject), request) {
            tokio::spawn(async move {
                let (status, body) = host.read(query.path).await;
                sender.send(query.token, read_parts(status, &body)).await;
                drop(reader);
            });
        }
        true
    }
}

/// The lines that a query asks for, at the latest when its time is over.
async fn lines(host: &impl AgentHost, query: &LogQuery) -> LogPage {
    let until = Instant::now() + Duration::from_millis(query.wait.into()).min(LONGEST);
    loop {
        let page = host.log(query.after, query.limit as usize);
        if !page.lines.is_empty() || Instant::now() >= until {
            return page;
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Sender {
    async fn send<R: Record>(&self, token: u64, parts: Vec<R>) {
        let subject = logs(&self.device, token);
        for part in parts {
            let Ok(payload) = encode(&part) else { continue };
            let payload = self.keys.seal((&self.device, &subject), payload);
            // A publish does not wait for the network, a flush does: a large answer does not fill the memory.
            let sent = self.client.publish(subject.clone(), payload.into()).await.is_ok();
            if !sent || self.client.flush().await.is_err() {
                break;
            }
        }
    }
}
