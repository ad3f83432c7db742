//! The server-sent event stream.

use crate::event_wire::event_json;
use crate::host::Host;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use model::SequencedEvent;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Most stored events that are replayed to a resuming client.
const REPLAY: u32 = 10_000;

/// Replays the events stored after sequence number `last`, then sends new events. Ends when the host ends.
pub(crate) async fn stream(
    host: Arc<dyn Host>,
    last: Option<i64>,
    ending: CancellationToken,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    // Subscribe before the replay, so that no event between the two is lost.
    let live = host.listen();
    let (replayed, reached) = match last {
        Some(last) => replay(&*host, last).await,
        None => (Vec::new(), i64::MIN),
    };
    let following = stream::unfold((live, host), move |(mut live, host)| async move {
        loop {
            match live.recv().await {
                Ok(event) if event.sequence.is_some_and(|sequence| sequence <= reached) => {}
                Ok(event) => return Some((render(&*host, &event), (live, host))),
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
            let reached = stored.last().and_then(|event| event.sequence).unwrap_or(last);
            let mut events: Vec<_> = stored.iter().map(|event| render(host, event)).collect();
            if stored.len() == REPLAY as usize {
                events.push(resync(0));
            }
            (events, reached)
        }
        // Some events are pruned or unreadable: the client must read everything again.
        Ok(None) | Err(_) => (vec![resync(0)], i64::MIN),
    }
}

fn render(host: &dyn Host, SequencedEvent { sequence, event }: &SequencedEvent) -> SseEvent {
    let payload = event_json(event, |target| Some(host.target(target)?.info.name.clone())).to_string();
    let rendered = SseEvent::default().event(event.kind.name()).data(payload);
    match sequence {
        Some(sequence) => rendered.id(sequence.to_string()),
        None => rendered,
    }
}

fn resync(missed: u64) -> SseEvent {
    SseEvent::default().event("resync").data(format!("{{\"missed\":{missed}}}"))
}
