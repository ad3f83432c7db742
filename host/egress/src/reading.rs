//! Where the reading of a body ends.
//!
//! A plugin chooses where an answer ends, so the end must not reveal anything about a secret. Two rules ensure that:
//!
//! - The host reads [`MARGIN`] bytes more than the plugin sees, so that a secret that begins in the seen part is found.
//!   The end of the seen part then lies in front of a secret or behind it.
//! - A text that ends the body counts only where it touches no secret.

use crate::mask::{Masker, Region};
use crate::message::BodyReading;
use crate::{Error, Grant};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::ops::Range;
use std::sync::Arc;

/// The bytes that are read behind the seen part, if there are secrets. A secret is found by its first 8 bytes: the
/// longest supported encodings write 1 byte as 90 (an HTML entity that is percent-encoded twice).
const MARGIN: usize = 1 << 10;
/// Maximum number of texts that end a body.
const MAX_TEXTS: usize = 16;
/// Maximum length of such a text in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// Maximum number of bytes to read first.
const MAX_FIRST: usize = 8 << 20;
/// Maximum number of bytes that are searched for secrets while one body is read, because a text was found.
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

/// The end of a body that is not read as a whole.
#[derive(Debug)]
pub(crate) struct Partial {
    end: End,
    grant: Arc<Grant>,
    /// Finds the results of signatures.
    derived: Option<Masker>,
}

#[derive(Debug)]
enum End {
    /// At the begin.
    Begin,
    /// After this number of bytes.
    Bytes(usize),
    /// After one of these texts.
    Texts(AhoCorasick),
}

/// How far the texts were searched in a body that is being read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// No text begins before this place, except those that touch a secret.
    searched: usize,
    /// The bytes that were searched for secrets so far.
    compared: usize,
}

impl Partial {
    /// Returns the end of a body; `None` if it is read as a whole. `derived` has the results of signatures.
    pub(crate) fn of(reading: &BodyReading, grant: &Arc<Grant>, derived: &[String]) -> Option<Self> {
        let end = match reading {
            BodyReading::Whole => return None,
            BodyReading::None => End::Begin,
            BodyReading::First(count) => End::Bytes(*count),
            // At most 4 KiB of texts, so it can be built.
            BodyReading::Until(texts) => {
                End::Texts(AhoCorasick::builder().match_kind(MatchKind::Standard).build(texts).ok()?)
            }
        };
        let derived = (!derived.is_empty()).then(|| Masker::new(derived.iter().map(String::as_str)));
        Some(Self { end, grant: grant.clone(), derived })
    }

    /// Returns whether no byte is read.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.end, End::Begin)
    }

    /// The number of bytes that are read and not seen.
    pub(crate) fn margin(&self) -> usize {
        let is_free = self.grant.secrets.masker().is_empty() && self.derived.is_none();
        if is_free { 0 } else { MARGIN }
    }

    /// Returns whether the bytes of a body that were read so far suffice.
    pub(crate) async fn suffices(&self, body: &[u8], progress: &mut Progress) -> Result<bool, Error> {
        let texts = match &self.end {
            End::Begin => return Ok(true),
            End::Bytes(count) => return Ok(body.len() >= count + self.margin()),
            End::Texts(texts) => texts,
        };
        let mut regions = None;
        while let Some(found) = self.next(texts, body, progress.searched) {
            if body.len() < found.end + self.margin() {
                progress.searched = found.start;
                return Ok(false);
            }
            if self.margin() == 0 {
                return Ok(true);
            }
            if regions.is_none() {
                progress.compared += body.len();
                if progress.compared > MAX_COMPARED_BYTES {
                    return Err(Error::TooMuchSearched { limit: MAX_COMPARED_BYTES });
                }
                regions = Some(self.regions(body).await);
            }
            if is_apart(&found, regions.as_deref().unwrap_or_default()) {
                return Ok(true);
            }
            progress.searched = found.start + 1;
        }
        // A text may have begun.
        progress.searched = progress.searched.max(body.len().saturating_sub(texts.max_pattern_len()));
        Ok(false)
    }

    fn next(&self, texts: &AhoCorasick, body: &[u8], from: usize) -> Option<Range<usize>> {
        texts.find(Input::new(body).range(from.min(body.len())..)).map(|found| found.range())
    }

    async fn regions(&self, body: &[u8]) -> Vec<Region> {
        let mut regions = self.grant.secrets.masker().regions(body).await;
        if let Some(derived) = &self.derived {
            regions.extend(derived.regions(body).await);
        }
        regions
    }

    /// Returns the end of the part of a body that the plugin sees, in front of masking. `None` for all of it.
    pub(crate) fn end(&self, body: &[u8], regions: &[Region]) -> Option<usize> {
        let end = match &self.end {
            End::Begin => 0,
            End::Bytes(count) => *count,
            End::Texts(texts) => {
                let mut from = 0;
                loop {
                    let found = self.next(texts, body, from)?;
                    if is_apart(&found, regions) {
                        break found.end;
                    }
                    from = found.start + 1;
                }
            }
        };
        (end < body.len()).then_some(end)
    }

    /// The maximum number of bytes that the plugin sees.
    pub(crate) fn most(&self) -> usize {
        match self.end {
            End::Begin => 0,
            End::Bytes(count) => count,
            End::Texts(_) => usize::MAX,
        }
    }
}

/// Returns whether a text touches none of these regions.
fn is_apart(text: &Range<usize>, regions: &[Region]) -> bool {
    regions.iter().all(|region| region.source.end <= text.start || text.end <= region.source.start)
}

#[cfg(test)]
mod tests;
