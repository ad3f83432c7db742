//! Reads the body of an answer.

use crate::Error;
use crate::broken::broken;
use crate::budget::Held;
use crate::decoding::Decoding;
use crate::in_flight::{Common, Counted, Plan, Progress};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// Budget share in bytes for the first piece of a body, whatever its content-length. Each further share doubles the
/// total.
const FIRST_HOLD: usize = 64 * 1024;
/// Maximum wait of a partly read body for more of the budget. The wait is short because the body already holds a share.
const GROWING: Duration = Duration::from_secs(2);

/// The longest body in bytes that is received although it is not asked for. Another connection, and a TLS handshake,
/// would cost more; one that is longer closes the connection.
const PASSED_OVER: usize = 64 * 1024;
/// Maximum wait for such a body.
const ARRIVES: Duration = Duration::from_millis(20);

/// The part of a body that was read.
pub(crate) struct Read {
    pub body: Vec<u8>,
    pub is_complete: bool,
    pub held: Option<Held>,
}

/// Reads and decodes a body within the cap and the budget. If the body is too long, or the rest is not asked for, the
/// rest is not read and the connection is closed. A short body of which nothing is wanted is passed over.
pub(crate) async fn read(
    (common, plan, progress): (&Common, &Plan, &Progress),
    mut incoming: Incoming,
    headers: &mut HeaderMap,
) -> Result<Read, Error> {
    let visible = &*plan.visible;
    // An answer without a body (to HEAD, or with status 304) may state the encoding that its body would have.
    if visible.is_nothing() || incoming.is_end_stream() {
        let is_complete = incoming.is_end_stream();
        if !is_complete {
            let _ = timeout(ARRIVES, pass_over(incoming)).await;
        }
        return Ok(Read { body: Vec::new(), is_complete, held: None });
    }
    let mut decoding = Decoding::of(headers)?;
    let unseen = if visible.is_whole() { 0 } else { visible.margin() };
    let limit = || progress.cap.load(Ordering::Relaxed).saturating_add(unseen);
    let promised = incoming.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    if visible.is_whole() && promised.is_some_and(|length| length > limit()) {
        return Err(Error::BodyTooLarge { limit: limit() });
    }
    let expected = promised.unwrap_or(FIRST_HOLD).min(FIRST_HOLD).min(limit());
    let held = progress.held_up(common.bytes.hold(expected, &common.gauges)).await;
    let (bytes, counted) = (Vec::with_capacity(expected), Counted::new(&plan.reading));
    let mut body = Growing { common, plan, limit: &limit, bytes, held, counted, searched: 0 };
    let (mut is_complete, mut received) = (true, 0);
    'frames: while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| broken(&error, plan))?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        let Some(decoding) = &mut decoding else {
            if body.add(&data).await? {
                is_complete = incoming.is_end_stream();
                break;
            }
            continue;
        };
        let is_compressed = decoding.is_compressed();
        for part in decoding.parts(&data) {
            if body.add(&decoding.decode(part)?).await? {
                is_complete = !is_compressed && incoming.is_end_stream();
                break 'frames;
            }
        }
    }
    if let Some(decoding) = &mut decoding {
        let is_compressed = decoding.is_compressed();
        if is_complete {
            body.add(&decoding.finish()?).await?;
        }
        if let Some(guessed) = decoding.guessed(&body.bytes, is_complete) {
            body.replace(&guessed).await?;
        }
        if is_compressed {
            headers.remove(CONTENT_ENCODING);
        }
        if is_compressed || received != body.bytes.len() {
            // It states the length before decoding.
            match is_complete {
                true => headers.insert(CONTENT_LENGTH, body.bytes.len().into()),
                false => headers.remove(CONTENT_LENGTH),
            };
        }
    }
    let Growing { bytes: body, mut held, .. } = body;
    held.shrink(body.len());
    Ok(Read { body, is_complete, held: Some(held) })
}

/// Receives the rest of a short body, so that its connection can be used again. What is wrong with it does not matter.
async fn pass_over(mut incoming: Incoming) {
    let mut received = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        received += frame.data_ref().map_or(0, |data| data.len());
        if received > PASSED_OVER {
            return;
        }
    }
}

/// A body while it is read.
struct Growing<'a, 'l> {
    common: &'a Common,
    plan: &'a Plan,
    /// Returns the maximum length in bytes. It can grow while the body is read.
    limit: &'l (dyn Fn() -> usize + Sync),
    bytes: Vec<u8>,
    held: Held,
    counted: Counted<'a>,
    /// No text that ends the reading begins before this place.
    searched: usize,
}

impl Growing<'_, '_> {
    /// Adds the next bytes. Returns whether those that were read so far suffice.
    async fn add(&mut self, data: &[u8]) -> Result<bool, Error> {
        let (common, plan) = (self.common, self.plan);
        let visible = &*plan.visible;
        let length = self.bytes.len() + data.len();
        let too_large = |limit| Error::BodyTooLarge { limit };
        if (visible.is_whole() && length > (self.limit)()) || !self.counted.add(data.len()) {
            return Err(too_large((self.limit)()));
        }
        while length > self.held.bytes() {
            let more = self.held.bytes().max(length - self.held.bytes()).min((self.limit)().max(length));
            let grown = timeout(GROWING, common.bytes.grow(&mut self.held, more, &common.gauges)).await;
            grown.map_err(|_| Error::Overloaded { limit: common.bytes.limit() })?;
        }
        self.bytes.extend_from_slice(data);
        if visible.is_whole() {
            return Ok(false);
        }
        // Boxed, because most bodies are read as a whole: the future of each request would be larger by a kilobyte.
        let suffices = Box::pin(visible.suffices(&self.bytes, &mut self.searched, &plan.reading.compared)).await?;
        if !suffices && length > (self.limit)() {
            return Err(too_large((self.limit)()));
        }
        Ok(suffices)
    }

    /// Replaces the bytes that were read so far.
    async fn replace(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.counted = Counted::new(&self.plan.reading);
        (self.bytes, self.searched) = (Vec::with_capacity(bytes.len()), 0);
        self.add(bytes).await.map(drop)
    }
}
