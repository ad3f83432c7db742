//! Lines of a device's log, which the device itself answers.

use crate::bucket::{log_request, logs};
use async_nats::Client;
use fleet::wire::{LogChunk, LogQuery, decode, encode};
use futures_util::StreamExt;
use model::LogPage;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A device answers within this time, besides the time that it may wait for a line.
const ANSWER: Duration = Duration::from_secs(5);

/// Returns lines of a device's log: those after a line, or the newest, at most `limit`. The answer may be delayed
/// by `wait`, until there is a line.
///
/// # Errors
/// If the device does not answer; the reason in words.
pub(super) async fn read(
    client: &Client,
    id: &str,
    (after, limit): (Option<u64>, u32),
    wait: Duration,
) -> Result<LogPage, String> {
    // A number that no other request has, so that an answer reaches its reader only.
    let token = RandomState::new().hash_one(id);
    let mut answers = client.subscribe(logs(id, token)).await.map_err(|error| error.to_string())?;
    let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    let query = LogQuery { token, after, limit, wait: wait_ms };
    let request = encode(&query).map_err(|why| why.to_string())?;
    client.publish(log_request(id), request.into()).await.map_err(|error| error.to_string())?;
    let until = tokio::time::Instant::now() + wait + ANSWER;
    let mut log: Option<LogPage> = None;
    let mut parts = 0;
    loop {
        let silent = || format!("device {id} does not answer: it is off, not connected, or of an earlier version");
        let answer = tokio::time::timeout_at(until, answers.next()).await.map_err(|_| silent())?;
        let answer = answer.ok_or_else(silent)?;
        let chunk = decode::<LogChunk>(&answer.payload).map_err(|why| why.to_string())?;
        if chunk.part != parts {
            return Err(format!("a part of the answer of device {id} was lost: try again"));
        }
        parts += 1;
        let log =
            log.get_or_insert_with(|| LogPage { before: chunk.before, dropped: chunk.dropped, lines: Vec::new() });
        log.lines.extend(chunk.lines);
        // A device that sends without end is not read without end.
        if chunk.is_last || log.lines.len() > limit as usize {
            log.lines.truncate(limit as usize);
            return Ok(std::mem::take(log));
        }
    }
}
