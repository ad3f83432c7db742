//! The stream of events.

use crate::host::Host;
use crate::wire::event_json;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use model::Event;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast::{self, Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

/// What a slow listener may be behind; after that it is told to look again.
const BACKLOG: usize = 4096;
/// Stored events that one resumption replays at most.
const REPLAY: u32 = 10_000;

/// Something that is told: with its place in the sequence when it is on disk.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Its place in the sequence.
    pub sequence: Option<i64>,
    /// What happened.
    pub event: Event,
}

/// Where announcements are made.
#[derive(Clone, Debug)]
pub struct Announcer {
    sender: broadcast::Sender<Arc<Announcement>>,
}

impl Default for Announcer {
    fn default() -> Self {
        Self { sender: broadcast::channel(BACKLOG).0 }
    }
}

impl Announcer {
    /// Tells everybody who listens now.
    pub fn announce(&self, announcement: Announcement) {
        // Nobody listening is no error.
        let _ = self.sender.send(Arc::new(announcement));
    }

    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn listen(&self) -> Receiver<Arc<Announcement>> {
        self.sender.subscribe()
    }
}

/// Replays what was stored after `last`, then goes on with what is announced; ends when the host does.
pub(crate) async fn stream(
    host: Arc<dyn Host>,
    announcer: Announcer,
    last: Option<i64>,
    ending: CancellationToken,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    // Listening comes first, so that nothing falls between the replay and what follows.
    let live = announcer.listen();
    let (replayed, reached) = match last {
        Some(last) => replay(&*host, last).await,
        None => (Vec::new(), i64::MIN),
    };
    let following = stream::unfold((live, host), move |(mut live, host)| async move {
        loop {
            match live.recv().await {
                Ok(told) if told.sequence.is_some_and(|sequence| sequence <= reached) => {}
                Ok(told) => return Some((render(&*host, told.sequence, &told.event), (live, host))),
                Err(RecvError::Lagged(missed)) => return Some((resync(missed), (live, host))),
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let all = stream::iter(replayed).chain(following).map(Ok).take_until(ending.cancelled_owned());
    Sse::new(all).keep_alive(KeepAlive::default())
}

async fn replay(host: &dyn Host, last: i64) -> (Vec<SseEvent>, i64) {
    match host.events_after(last, REPLAY).await {
        Ok(Some(stored)) => {
            let reached = stored.last().map_or(last, |(sequence, _)| *sequence);
            let mut events: Vec<_> =
                stored.iter().map(|(sequence, event)| render(host, Some(*sequence), event)).collect();
            if stored.len() == REPLAY as usize {
                events.push(resync(0));
            }
            (events, reached)
        }
        // Some are gone, or cannot be read: whoever listens has to look at everything again.
        Ok(None) | Err(_) => (vec![resync(0)], i64::MIN),
    }
}

fn render(host: &dyn Host, sequence: Option<i64>, event: &Event) -> SseEvent {
    let payload = event_json(event, |target| host.target_name(target)).to_string();
    let rendered = SseEvent::default().event(event.kind.name()).data(payload);
    match sequence {
        Some(sequence) => rendered.id(sequence.to_string()),
        None => rendered,
    }
}

fn resync(missed: u64) -> SseEvent {
    SseEvent::default().event("resync").data(format!("{{\"missed\":{missed}}}"))
}
