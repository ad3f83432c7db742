//! Requests to a device, which the device itself answers: lines of its log, and what its API answers.

use super::shared::Shared;
use crate::bucket::{log_request, logs, read_request};
use fleet::wire::{LogChunk, LogQuery, ReadPart, ReadQuery, Record, encode};
use futures_util::StreamExt;
use model::LogPage;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A device answers within this time, besides the time that it may wait for a line.
const ANSWER: Duration = Duration::from_secs(5);
/// An answer with a larger body is not read to its end, in bytes.
const LARGEST_BODY: usize = 64 << 20;

/// A part of an answer.
trait Part: Record {
    /// Its number, from 0, and whether it is the last one.
    fn place(&self) -> (u32, bool);
}

impl Part for LogChunk {
    fn place(&self) -> (u32, bool) {
        (self.part, self.is_last)
    }
}

impl Part for ReadPart {
    fn place(&self) -> (u32, bool) {
        (self.part, self.is_last)
    }
}

impl Shared {
    /// Returns lines of a device's log: those after a line, or the newest, at most `limit`. The answer may be delayed
    /// by `wait`, until there is a line.
    ///
    /// # Errors
    /// If the device does not answer; the reason in words.
    pub(super) async fn log_of(
        &self,
        id: &str,
        (after, limit): (Option<u64>, u32),
        wait: Duration,
    ) -> Result<LogPage, String> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let mut log: Option<LogPage> = None;
        let query = |token| LogQuery { token, after, limit, wait: wait_ms };
        self.ask(id, (log_request(id), query), ANSWER + wait, |chunk: LogChunk| {
            let page = LogPage { before: chunk.before, dropped: chunk.dropped, lines: Vec::new() };
            let log = log.get_or_insert(page);
            log.lines.extend(chunk.lines);
            log.lines.len() <= limit as usize
        })
        .await?;
        let mut log = log.unwrap_or_default();
        log.lines.truncate(limit as usize);
        Ok(log)
    }

    /// Returns what the API of a device answers: the status and the body.
    ///
    /// # Errors
    /// If the device does not answer; the reason in words.
    pub(super) async fn read_of(&self, id: &str, path: String) -> Result<(u16, String), String> {
        let (mut status, mut body) = (0, String::new());
        let query = |token| ReadQuery { token, path };
        self.ask(id, (read_request(id), query), ANSWER, |part: ReadPart| {
            status = part.status;
            body.push_str(&part.body);
            body.len() <= LARGEST_BODY
        })
        .await?;
        Ok((status, body))
    }

    /// Sends a request, and hands each part of the answer to `take`, until it is the last one or `take` has enough.
    async fn ask<Q: Record, P: Part>(
        &self,
        id: &str,
        (subject, query): (String, impl FnOnce(u64) -> Q),
        patience: Duration,
        mut take: impl FnMut(P) -> bool,
    ) -> Result<(), String> {
        let link = self.connection.state();
        if !link.is_connected {
            return Err(format!("device {id} cannot be asked: {}", link.problem.unwrap_or_default()));
        }
        let client = &self.connection.client;
        // A number that no other request has, so that an answer reaches its reader only.
        let token = RandomState::new().hash_one(id);
        let answer = logs(id, token);
        let mut answers = client.subscribe(answer.clone()).await.map_err(|error| error.to_string())?;
        let request = encode(&query(token)).map_err(|why| why.to_string())?;
        let request = self.keys.seal((id, &subject), request);
        client.publish(subject, request.into()).await.map_err(|error| error.to_string())?;
        let until = tokio::time::Instant::now() + patience;
        let mut parts = 0;
        loop {
            let silent = || {
                let link = self.connection.state();
                let or = link.problem.map(|why| format!("; or that is why: {why}")).unwrap_or_default();
                format!("device {id} does not answer: it is off, not connected, or of an earlier version{or}")
            };
            let message = tokio::time::timeout_at(until, answers.next()).await.map_err(|_| silent())?;
            let message = message.ok_or_else(silent)?;
            let part: P = self.keys.read((id, &answer), &message.payload)?;
            let (number, is_last) = part.place();
            if number != parts {
                return Err(format!("a part of the answer of device {id} was lost: try again"));
            }
            parts += 1;
            // A device that sends without end is not read without end.
            if !take(part) || is_last {
                return Ok(());
            }
        }
    }
}
