//! Reads a bucket: first all its records, or those after the place that the reader has reached, then each change.
//!
//! A bucket holds one message for each key, so one consumer from the beginning without a filter is snapshot and feed at
//! once. The client's own readers are not used: after a broker lost its stream, they continue at the old sequence in
//! the new one, and skip what agents sent again.

use crate::bucket::Bucket;
use crate::connection::Connection;
use crate::record::last;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use bytes::Bytes;
use fleet::names::of_state_key;
use futures_util::StreamExt;
use model::KeptPlace;
use std::time::Duration;
use tokio::sync::mpsc;

/// The number of records in one request to the broker.
const BATCH: usize = 1000;
/// A request ends after this time, with the records that arrived.
const WAIT: Duration = Duration::from_secs(2);
/// The broker forgets the consumer of an operator that is gone after this time.
const INACTIVE: Duration = Duration::from_secs(60);
/// The delay before a further attempt to attach.
const RETRY: Duration = Duration::from_millis(500);

/// An item of a feed.
#[derive(Debug)]
pub(crate) enum Fed {
    /// It begins in the stream that this text identifies: from the beginning, or after the reader's place. From the
    /// beginning, records that are not delivered until [`Fed::CaughtUp`] are not in the stream.
    Attached(Bucket, String),
    /// A record with its revision.
    Record(Bucket, String, Bytes, u64),
    /// Everything that was in the stream at the attach has been delivered.
    CaughtUp(Bucket),
    /// It cannot read; the reason in words.
    Failed(Bucket, String),
}

impl Fed {
    /// Whether records of devices were not read before, or are not from now on.
    pub(crate) fn is_interruption(&self) -> bool {
        match self {
            Self::Record(..) => false,
            Self::Attached(bucket, _) | Self::CaughtUp(bucket) | Self::Failed(bucket, _) => {
                matches!(bucket, Bucket::Info | Bucket::State)
            }
        }
    }

    /// The device of a state.
    pub(crate) fn device_of_state(&self) -> Option<&str> {
        match self {
            Self::Record(Bucket::State, key, ..) => of_state_key(key).map(|(device, _)| device),
            _ => None,
        }
    }
}

/// Reads a bucket into a channel until the channel closes. `place` returns the key of the reader's mark and how far it
/// has read, if it has.
pub(crate) async fn feed(
    connection: Connection,
    (bucket, replicas): (Bucket, usize),
    place: impl Fn() -> Option<(String, KeptPlace)> + Send,
    into: mpsc::Sender<Fed>,
) {
    let mut connected = connection.connected();
    loop {
        let why = match read(&connection, (bucket, replicas), place(), &into).await {
            Ok(Closed) => return,
            Err(why) => why,
        };
        tracing::debug!("reading the bucket {} again: {why}", bucket.stream());
        if into.send(Fed::Failed(bucket, why)).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            _ = connected.changed() => {}
        }
    }
}

/// The reader of the channel is gone.
struct Closed;

/// Reads until something is wrong; a gap is.
async fn read(
    connection: &Connection,
    (bucket, replicas): (Bucket, usize),
    place: Option<(String, KeptPlace)>,
    into: &mpsc::Sender<Fed>,
) -> Result<Closed, String> {
    let made = connection.context.get_or_create_stream(bucket.config(replicas)).await;
    let stream = made.map_err(|error| explained(bucket, &error))?;
    if bucket == Bucket::Leases
        && let Err(error) = connection.context.get_or_create_stream(Bucket::Alerts.config(replicas)).await
    {
        // Leases work without it.
        tracing::warn!("{}", explained(Bucket::Alerts, &error));
    }
    let info = stream.get_info().await.map_err(|e| e.to_string())?;
    check(bucket, &info.config)?;
    let last = info.state.last_sequence;
    let read = match place {
        Some((mark, place)) if holds(connection, bucket, (&mark, &place), &info.created.to_string()).await? => {
            place.sequence
        }
        _ => 0,
    };
    let config = pull::Config {
        deliver_policy: match read {
            0 => DeliverPolicy::All,
            read => DeliverPolicy::ByStartSequence { start_sequence: read + 1 },
        },
        ack_policy: AckPolicy::None,
        memory_storage: true,
        inactive_threshold: INACTIVE,
        ..pull::Config::default()
    };
    let mut consumer = stream.create_consumer(config).await.map_err(|e| e.to_string())?;
    if into.send(Fed::Attached(bucket, info.created.to_string())).await.is_err() {
        return Ok(Closed);
    }
    let mut is_caught_up = false;
    let (mut next, mut seen) = (1, read);
    loop {
        if !is_caught_up && (seen >= last || consumer.cached_info().num_pending == 0) {
            is_caught_up = true;
            if into.send(Fed::CaughtUp(bucket)).await.is_err() {
                return Ok(Closed);
            }
        }
        let batch = consumer.fetch().max_messages(BATCH).expires(WAIT).messages().await.map_err(|e| e.to_string())?;
        let mut batch = std::pin::pin!(batch);
        let mut count = 0;
        let silent = |_| "the broker does not answer".to_owned();
        while let Some(message) = tokio::time::timeout(WAIT * 2, batch.next()).await.map_err(silent)? {
            let message = message.map_err(|e| e.to_string())?;
            let (at, sequence, pending) = {
                let info = message.info().map_err(|e| e.to_string())?;
                (info.stream_sequence, info.consumer_sequence, info.pending)
            };
            if sequence != next {
                return Err(format!("message {next} of the feed was lost"));
            }
            (next, seen, count) = (next + 1, at, count + 1);
            if let Some(key) = bucket.key(&message.subject) {
                let record = Fed::Record(bucket, key.to_owned(), message.payload.clone(), at);
                if into.send(record).await.is_err() {
                    return Ok(Closed);
                }
            }
            if pending == 0 {
                seen = seen.max(last);
            }
        }
        if count == 0 {
            // Nothing happens, or the consumer is gone: only the broker can tell.
            alive(&mut consumer).await?;
        }
    }
}

/// Whether a stream still has everything up to a place: it is the same one, and has the mark at its sequence.
async fn holds(
    connection: &Connection,
    bucket: Bucket,
    (mark, place): (&str, &KeptPlace),
    incarnation: &str,
) -> Result<bool, String> {
    if place.incarnation != incarnation {
        return Ok(false);
    }
    let stream = connection.context.get_stream_no_info(bucket.stream()).await.map_err(|e| e.to_string())?;
    let found = last(&stream, bucket, mark).await?;
    Ok(found.is_some_and(|(text, at)| at == place.sequence && text == place.mark.as_bytes()))
}

/// The reason why a stream cannot be made, and the remedy.
fn explained(bucket: Bucket, error: &CreateStreamError) -> String {
    let code = match error.kind() {
        CreateStreamErrorKind::JetStream(answer) => Some(answer.error_code()),
        _ => None,
    };
    match code {
        Some(ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT) => {
            NO_JETSTREAM.to_owned()
        }
        // A server without JetStream does not answer such a request.
        None if error.kind() == CreateStreamErrorKind::JetStreamUnavailable => NO_JETSTREAM.to_owned(),
        Some(ErrorCode::STORAGE_RESOURCES_EXCEEDED) => format!(
            "the broker has no storage for the stream {}, which may need {} MiB: give its JetStream a larger max_file_store, or \
             a larger disk",
            bucket.stream(),
            bucket.bytes() >> 20
        ),
        _ if error.kind() == CreateStreamErrorKind::TimedOut => "the broker does not answer".to_owned(),
        _ => format!("the stream {} cannot be made: {error}", bucket.stream()),
    }
}

/// Shown if the broker has no JetStream.
const NO_JETSTREAM: &str = "the broker runs without JetStream, which keeps the records of the fleet: add \
    jetstream { store_dir: \"jetstream\" } to its configuration, or give it to the operator's account";

async fn alive(consumer: &mut Consumer<pull::Config>) -> Result<(), String> {
    consumer.info().await.map(drop).map_err(|error| format!("the broker no longer knows this reader: {error}"))
}

/// Checks the settings of a stream that exists: one that was made by hand may let agents erase each other's records.
fn check(bucket: Bucket, found: &async_nats::jetstream::stream::Config) -> Result<(), String> {
    let name = bucket.stream();
    let wrong = match found {
        found if found.max_messages_per_subject != 1 => "keeps more than one message for each subject",
        found if found.allow_rollup => "permits roll-ups, with which one agent can erase the records of all",
        found if !found.allow_direct => "does not permit direct reads, which agents need",
        _ => return Ok(()),
    };
    Err(format!("the stream {name} {wrong}: delete it, so that the operator makes it again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{META, mark};
    use fleet::names::{info_key, state_key};

    #[test]
    fn only_a_state_has_the_device_of_a_state() {
        let of = |bucket, key: String| Fed::Record(bucket, key, Bytes::new(), 1).device_of_state().map(str::to_owned);
        assert_eq!(of(Bucket::State, state_key("host-1", "web")), Some("host-1".to_owned()));
        for other in [META.to_owned(), mark("operator")] {
            assert_eq!(of(Bucket::State, other), None);
        }
        assert_eq!(of(Bucket::Info, info_key("host-1")), None);
        assert_eq!(Fed::CaughtUp(Bucket::State).device_of_state(), None);
    }

    #[test]
    fn an_interruption_is_one_of_the_records_of_devices() {
        let all = |bucket| {
            let record = Fed::Record(bucket, String::new(), Bytes::new(), 1);
            [Fed::Attached(bucket, String::new()), Fed::CaughtUp(bucket), Fed::Failed(bucket, String::new()), record]
                .map(|fed| fed.is_interruption())
        };
        assert_eq!([all(Bucket::Info), all(Bucket::State)], [[true, true, true, false]; 2]);
        assert_eq!([all(Bucket::Leases), all(Bucket::Assignments)], [[false; 4]; 2]);
    }
}
