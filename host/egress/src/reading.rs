//! Where the reading of a body ends.
//!
//! A plugin chooses where an answer ends, so the end must not reveal anything about a secret. Two rules ensure that:
//!
//! - The host reads [`MARGIN`] bytes more than the plugin sees, so that a secret that begins in the seen part is found.
//!   The end of the seen part then lies in front of a secret or behind it.
//! - A text that ends the body counts only where it touches no secret.

use crate::Error;
use crate::mask::{Region, merged, replaced};
use crate::maskers::Maskers;
use crate::message::BodyReading;
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are read behind the seen part, if there are secrets. A secret is found by its first 8 bytes: the
/// longest supported encodings write 1 byte as 90 (an HTML entity that is percent-encoded twice).
const MARGIN: usize = 1 << 10;
/// Maximum number of texts that end a body.
const MAX_TEXTS: usize = 16;
/// Maximum length of such a text in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// Maximum number of bytes to read first.
const MAX_FIRST: usize = 8 << 20;
/// Maximum number of bytes that are searched for secrets while the bodies of a poll are read.
const MAX_COMPARED_BYTES: usize = 64 << 20;

/// Checks how much of the answer a request reads.
pub(crate) fn check(reading: &BodyReading) -> Result<(), Error> {
    let why = match reading {
        BodyReading::First(0) => "it reads the first 0 bytes of the body: use `none`".to_owned(),
        BodyReading::First(count) if *count > MAX_FIRST => {
            format!("it reads the first {count} bytes of the body, more than {MAX_FIRST}")
        }
        BodyReading::Until(texts) if texts.is_empty() || texts.len() > MAX_TEXTS => {
            format!("it reads the body until one of {} texts: use 1 to {MAX_TEXTS}", texts.len())
        }
        BodyReading::Until(texts) if texts.iter().any(|text| text.is_empty() || text.len() > MAX_TEXT_BYTES) => {
            format!("it reads the body until a text that does not have 1 to {MAX_TEXT_BYTES} bytes")
        }
        _ => return Ok(()),
    };
    Err(Error::BadRequest(why))
}

/// The part of an answer that a plugin sees.
#[derive(Debug)]
pub(crate) struct Visible {
    end: End,
    maskers: Maskers,
}

/// The end of the visible part of a body.
#[derive(Debug)]
enum End {
    /// That of the body.
    Whole,
    /// At its beginning: nothing is read.
    Begin,
    /// After this number of bytes.
    Bytes(usize),
    /// After one of these texts.
    Texts(AhoCorasick),
}

impl Visible {
    /// The part of an answer to a request that was checked with [`check`].
    pub(crate) fn of(reading: &BodyReading, maskers: Maskers) -> Self {
        let end = match reading {
            BodyReading::Whole => End::Whole,
            BodyReading::None => End::Begin,
            BodyReading::First(count) => End::Bytes(*count),
            BodyReading::Until(texts) => {
                let built = AhoCorasick::builder().match_kind(MatchKind::Standard).build(texts);
                End::Texts(built.expect("at most 4 KiB of texts fit"))
            }
        };
        Self { end, maskers }
    }

    pub(crate) fn maskers(&self) -> &Maskers {
        &self.maskers
    }

    /// Returns whether the body is read as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.end, End::Whole)
    }

    /// Returns whether no byte is read.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.end, End::Begin)
    }

    /// The number of bytes that are read and not seen.
    pub(crate) fn margin(&self) -> usize {
        if self.maskers.is_empty() { 0 } else { MARGIN }
    }

    /// Returns whether the bytes of a body that were read so far suffice. No text begins before `searched`, except
    /// those that touch a secret. `compared` has the bytes that the poll has searched for secrets so far.
    ///
    /// # Errors
    /// If the poll has searched too many bytes.
    pub(crate) async fn suffices(
        &self,
        body: &[u8],
        searched: &mut usize,
        compared: &AtomicUsize,
    ) -> Result<bool, Error> {
        let texts = match &self.end {
            End::Whole => return Ok(false),
            End::Begin => return Ok(true),
            End::Bytes(count) if self.margin() == 0 => return Ok(body.len() >= *count),
            End::Bytes(count) => {
                // Stars can take less room than the secret that they replace.
                let Some(seen) = body.len().checked_sub(self.margin()).filter(|seen| seen >= count) else {
                    return Ok(false);
                };
                return Ok(masked_length(seen, &self.regions(body, compared).await?) >= *count);
            }
            End::Texts(texts) => texts,
        };
        let mut regions = None;
        while let Some(found) = self.next(texts, body, *searched) {
            if body.len() < found.end + self.margin() {
                *searched = found.start;
                return Ok(false);
            }
            if self.margin() == 0 {
                return Ok(true);
            }
            if regions.is_none() {
                regions = Some(self.regions(body, compared).await?);
            }
            if is_apart(&found, regions.as_deref().unwrap_or_default()) {
                return Ok(true);
            }
            *searched = found.start + 1;
        }
        // A text may have begun.
        *searched = (*searched).max(body.len().saturating_sub(texts.max_pattern_len()));
        Ok(false)
    }

    fn next(&self, texts: &AhoCorasick, body: &[u8], from: usize) -> Option<Range<usize>> {
        texts.find(Input::new(body).range(from.min(body.len())..)).map(|found| found.range())
    }

    async fn regions(&self, body: &[u8], compared: &AtomicUsize) -> Result<Vec<Region>, Error> {
        if compared.fetch_add(body.len(), Ordering::Relaxed) + body.len() > MAX_COMPARED_BYTES {
            return Err(Error::TooMuchSearched { limit: MAX_COMPARED_BYTES });
        }
        Ok(merged(self.maskers.regions(body).await))
    }

    /// Returns the part of a body that the plugin sees, with its secrets replaced, and whether it is all of the body.
    /// `is_complete` says whether the body was read to its end.
    pub(crate) async fn body(&self, mut body: Vec<u8>, is_complete: bool) -> (Vec<u8>, bool) {
        if self.is_whole() && self.maskers.is_empty() {
            return (body, is_complete);
        }
        let regions = merged(self.maskers.regions(&body).await);
        // Behind this place, a secret may have begun that was not found.
        let known = if is_complete { body.len() } else { body.len().saturating_sub(self.margin()) };
        match &self.end {
            End::Whole => (replaced(body, regions), is_complete),
            End::Begin => (Vec::new(), is_complete && body.is_empty()),
            End::Bytes(count) => {
                let is_whole = is_complete && masked_length(body.len(), &regions) <= *count;
                let mut seen = replaced(body, regions);
                seen.truncate(*count);
                (seen, is_whole)
            }
            End::Texts(texts) => {
                let end = self.first_apart(texts, &body, &regions).unwrap_or(known);
                let is_whole = is_complete && end == body.len();
                body.truncate(end);
                let regions = regions.into_iter().filter(|region| region.source.end <= end).collect();
                (replaced(body, regions), is_whole)
            }
        }
    }

    /// Returns the end of the first text that touches no secret.
    fn first_apart(&self, texts: &AhoCorasick, body: &[u8], regions: &[Region]) -> Option<usize> {
        let mut from = 0;
        loop {
            let found = self.next(texts, body, from)?;
            if is_apart(&found, regions) {
                return Some(found.end);
            }
            from = found.start + 1;
        }
    }
}

/// Returns whether a text touches none of these regions, which are in order.
fn is_apart(text: &Range<usize>, regions: &[Region]) -> bool {
    let before = regions.partition_point(|region| region.source.end <= text.start);
    regions.get(before).is_none_or(|region| text.end <= region.source.start)
}

/// Returns the length of the text before `end` with its secrets replaced. A secret that is not over there does not
/// count.
fn masked_length(end: usize, regions: &[Region]) -> usize {
    let mut length = end;
    for Region { source, stars } in regions.iter().take_while(|region| region.source.start < end) {
        length = match source.end <= end {
            true => length - source.len() + (*stars).max(1),
            false => length - (end - source.start),
        };
    }
    length
}

#[cfg(test)]
mod tests;
