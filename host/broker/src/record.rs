//! Reading a record of a bucket, and the answer to a conditional write.

use crate::bucket::Bucket;
use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use bytes::Bytes;

/// Returns the last record of a key with its revision; `None` if the key has no record.
pub(crate) async fn last(stream: &Stream<()>, bucket: Bucket, key: &str) -> Result<Option<(Bytes, u64)>, String> {
    match stream.direct_get_last_for_subject(bucket.subject(key)).await {
        Ok(message) => Ok(Some((message.payload, message.sequence))),
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("the broker cannot be asked for {key}: {error}")),
    }
}

/// The broker's answer to a conditional write.
pub(crate) enum Answer {
    /// It is stored, with this revision.
    Stored(u64),
    /// Another record is stored, with this revision; 0 if none is.
    Other(u64),
    /// Whether it is stored is not known, or it is refused.
    Unknown(String),
}

/// Awaits the answer to a conditional write.
pub(crate) async fn answer(sent: PublishAckFuture) -> Answer {
    match sent.await {
        Ok(ack) => Answer::Stored(ack.sequence),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
            // The client hands on the broker's words: "wrong last sequence: 17".
            let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let digits = text.rsplit("wrong last sequence: ").next().unwrap_or_default();
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().map_or_else(|_| Answer::Unknown(text), Answer::Other)
        }
        // Some servers acknowledge nothing when their disk is full, and log nothing.
        Err(error) if error.kind() == PublishErrorKind::TimedOut => {
            let remedy = "its disk may be full: free space there, and restart it";
            Answer::Unknown(format!("it did not acknowledge it in time; {remedy}"))
        }
        Err(error) => Answer::Unknown(error.to_string()),
    }
}
