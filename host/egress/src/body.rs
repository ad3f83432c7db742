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
/// Maximum wait for such a body. A server that writes it apart from the head often sends it only when the head is
/// acknowledged, which Linux delays by up to 40 ms.
const ARRIVES: Duration = Duration::from_millis(100);

/// The part of a body that was read.
pub(crate) struct Read {
    pub body: Vec<u8>,
    pub is_complete: bool,
    pub held: Option<Held>,
    /// The body, if nothing of it was asked for: see [`pass_over`].
    pub rest: Option<Incoming>,
}

/// Reads and decodes a body within the cap and the budget. If the body is too long, or the rest is not asked for, the
/// rest is not read and the connection is closed.
pub(crate) async fn read(
    (common, plan, progress): (&Common, &Plan, &Progress),
    mut incoming: Incoming,
    headers: &mut HeaderMap,
) -> Result<Read, Error> {
    let visible = &*plan.visible;
    // An answer without a body (to HEAD, or with status 304) may state the encoding that its body would have.
    if visible.is_nothing() || incoming.is_end_stream() {
        let is_complete = incoming.is_end_stream();
        let rest = (!is_complete).then_some(incoming);
        return Ok(Read { body: Vec::new(), is_complete, held: None, rest });
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
    Ok(Read { body, is_complete, held: Some(held), rest: None })
}

/// Receives a short body that is not asked for, so that its connection can be used again. What is wrong with it does
/// not matter.
pub(crate) async fn pass_over(mut incoming: Incoming) {
    let short = async {
        let mut received = 0;
        while let Some(Ok(frame)) = incoming.frame().await {
            received += frame.data_ref().map_or(0, |data| data.len());
            if received > PASSED_OVER {
                return;
            }
        }
    };
    let _ = timeout(ARRIVES, short).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::sleep;

    /// Parts of a body: how long after the one before each arrives, and its length.
    type Parts<'a> = &'a [(Duration, usize)];

    /// Returns whether a connection can be used again after an answer with such a body.
    async fn is_kept(length: usize, parts: Parts<'_>) -> bool {
        let (here, mut there) = duplex(1 << 20);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(here)).await.unwrap();
        tokio::spawn(connection);
        let parts = parts.to_vec();
        let server = tokio::spawn(async move {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            there.write_all(head.as_bytes()).await.unwrap();
            for (after, bytes) in parts {
                sleep(after).await;
                let _ = there.write_all(&vec![b'x'; bytes]).await;
            }
            there
        });
        let answer = sender.send_request(hyper::Request::new(Empty::<Bytes>::new())).await.unwrap();
        pass_over(answer.into_body()).await;
        let _open = server.await.unwrap();
        timeout(Duration::from_secs(1), sender.ready()).await.is_ok_and(|ready| ready.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_body_is_passed_over_if_it_arrives_soon() {
        let millis = Duration::from_millis;
        let cases: [(usize, Parts<'_>, bool); 6] = [
            (3_000, &[(millis(0), 3_000)], true),
            (3_000, &[(millis(40), 3_000)], true),
            (3_000, &[(millis(40), 1_000), (millis(40), 2_000)], true),
            (3_000, &[(millis(40), 1_000), (millis(80), 2_000)], false),
            (3_000, &[], false),
            (100_000, &[(millis(1), 70_000), (millis(1), 30_000)], false),
        ];
        for (length, parts, expected) in cases {
            assert_eq!(is_kept(length, parts).await, expected, "{length} bytes: {parts:?}");
        }
    }
}
