//! Decodes the escapes of a text and keeps the source position of each byte.

use super::turns::{TURN, Turns};
use std::borrow::Cow;
use std::ops::Range;

/// Maximum length of an HTML entity after the `&`, including the `;`.
const ENTITY: usize = 10;

/// The escapes to decode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// The escapes of JSON strings.
    Json,
    /// The escapes of JSON, C and shell strings, percent encoding, HTML entities, and line breaks inside base64.
    Any,
}

/// A text after zero or more layers of decoding.
pub(super) struct View<'a> {
    pub bytes: Cow<'a, [u8]>,
    /// The start and end of each byte in the source. `None` if the view is the source.
    from: Option<Vec<(u32, u32)>>,
}

/// Returns whether a text contains an escape.
pub(super) fn contains_escape(text: &[u8]) -> bool {
    first_escape(text, Escapes::Any).is_some()
}

pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

impl<'a> View<'a> {
    pub(super) fn of(source: &'a [u8]) -> Self {
        Self { bytes: Cow::Borrowed(source), from: None }
    }

    /// Returns the source range of a range of this view.
    pub(super) fn source(&self, range: Range<usize>) -> Range<usize> {
        let Some(from) = &self.from else { return range };
        let start = from.get(range.start).map_or(0, |from| from.0 as usize);
        let end = range.end.checked_sub(1).and_then(|last| from.get(last)).map_or(start, |from| from.1 as usize);
        start..end.max(start)
    }

    /// Returns the first position of this view at or after a source position.
    pub(super) fn place_of(&self, source: usize) -> usize {
        match &self.from {
            None => source,
            Some(from) => from.partition_point(|(start, _)| (*start as usize) < source),
        }
    }

    /// Returns the view with one layer of escapes decoded. `None` if it contains no escapes.
    pub(super) async fn decoded(&self, escapes: Escapes, turns: &mut Turns) -> Option<View<'a>> {
        let text = &self.bytes[..];
        let first = first_escape(text, escapes)?;
        turns.after(first).await;
        let mut bytes = Vec::with_capacity(text.len());
        let mut from = Vec::with_capacity(text.len());
        bytes.extend_from_slice(&text[..first]);
        from.extend((0..first).map(|at| self.origin(at, 1)));
        let mut at = first;
        while at < text.len() {
            let turn = text.len().min(at + TURN);
            let begun = at;
            while at < turn {
                let length = decode_one(text, at, escapes, &mut bytes);
                from.resize(bytes.len(), self.origin(at, length));
                at += length;
            }
            turns.after(at - begun).await;
        }
        Some(View { bytes: Cow::Owned(bytes), from: Some(from) })
    }

    /// Returns the source range of `length` bytes at `at`. 32 bits suffice because bodies are capped far below 4 GiB.
    fn origin(&self, at: usize, length: usize) -> (u32, u32) {
        let source = self.source(at..at + length);
        (source.start as u32, source.end as u32)
    }
}

/// Decodes one layer of escapes of a short text. Returns `None` if it contains no escapes.
pub(super) fn decode_short(text: &[u8]) -> Option<Vec<u8>> {
    let mut at = first_escape(text, Escapes::Any)?;
    let mut bytes = text[..at].to_vec();
    while at < text.len() {
        at += decode_one(text, at, Escapes::Any, &mut bytes);
    }
    Some(bytes)
}

fn first_escape(text: &[u8], escapes: Escapes) -> Option<usize> {
    let is_escape = |at: &usize| escape(text, *at, escapes).is_some();
    if escapes == Escapes::Json {
        return memchr::memchr_iter(b'\\', text).find(is_escape);
    }
    let first = memchr::memchr3_iter(b'\\', b'%', b'&', text).find(is_escape);
    let before = text.get(..first.unwrap_or(text.len())).unwrap_or_default();
    memchr::memchr2_iter(b'\r', b'\n', before).find(is_escape).or(first)
}

/// Decodes the escape or byte at a position, appends it to `bytes`, and returns its length in the text.
fn decode_one(text: &[u8], at: usize, escapes: Escapes, bytes: &mut Vec<u8>) -> usize {
    let (length, meaning) = escape(text, at, escapes).unwrap_or((1, Meaning::Byte(text[at])));
    match meaning {
        Meaning::Nothing => {}
        Meaning::Byte(byte) => bytes.push(byte),
        Meaning::Character(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
    length
}

/// The decoded value of an escape.
enum Meaning {
    Nothing,
    Byte(u8),
    Character(char),
}

/// Returns the length and the decoded value of the escape at a position. `None` if there is no escape.
fn escape(text: &[u8], at: usize, escapes: Escapes) -> Option<(usize, Meaning)> {
    let any = escapes == Escapes::Any;
    match &text[at..] {
        [b'\\', rest @ ..] => backslash(rest, escapes),
        [b'%', high, low, ..] if any => Some((3, Meaning::Byte(hex(&[*high, *low])? as u8))),
        [b'&', rest @ ..] if any => entity(rest),
        [b'\r', b'\n', next, ..] if any && is_wrapped(text, at, *next) => Some((2, Meaning::Nothing)),
        [b'\n', next, ..] if any && is_wrapped(text, at, *next) => Some((1, Meaning::Nothing)),
        _ => None,
    }
}

/// Returns whether a line break is between two base64 characters.
fn is_wrapped(text: &[u8], at: usize, next: u8) -> bool {
    is_base64(next) && at.checked_sub(1).is_some_and(|before| is_base64(text[before]))
}

/// Decodes the text after a backslash: a JSON escape or, with [`Escapes::Any`], a C escape.
fn backslash(rest: &[u8], escapes: Escapes) -> Option<(usize, Meaning)> {
    let any = escapes == Escapes::Any;
    let byte = |byte| Some((2, Meaning::Byte(byte)));
    match rest {
        [b'u', b'{', digits @ ..] if any => braced(digits),
        [b'u', digits @ ..] if digits.len() >= 4 => unicode(digits),
        [b'n', ..] => byte(b'\n'),
        [b't', ..] => byte(b'\t'),
        [b'r', ..] => byte(b'\r'),
        [b'b', ..] => byte(8),
        [b'f', ..] => byte(12),
        [b'x', high, low, ..] if any => Some((4, Meaning::Byte(hex(&[*high, *low])? as u8))),
        [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if any => {
            let value = [a, b, c].into_iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            Some((4, Meaning::Byte(value as u8)))
        }
        [quoted @ (b'"' | b'\\' | b'/'), ..] => byte(*quoted),
        [b'\'', ..] if any => byte(b'\''),
        _ => None,
    }
}

/// Decodes the text after `\u{`: up to six digits and a brace.
fn braced(rest: &[u8]) -> Option<(usize, Meaning)> {
    let end = rest.iter().take(7).position(|byte| *byte == b'}').filter(|end| *end > 0)?;
    Some((end + 4, Meaning::Character(char::from_u32(hex(&rest[..end])?)?)))
}

/// Decodes the text after `\u`: four digits, or a pair of surrogates.
fn unicode(digits: &[u8]) -> Option<(usize, Meaning)> {
    let high = hex(&digits[..4])?;
    let (length, code) = match digits.get(4..10) {
        Some([b'\\', b'u', low @ ..]) if (0xd800..0xdc00).contains(&high) => {
            (12, 0x10000 + ((high - 0xd800) << 10) + hex(low)?.checked_sub(0xdc00)?)
        }
        _ => (6, high),
    };
    Some((length, Meaning::Character(char::from_u32(code)?)))
}

/// Decodes the text after `&`.
fn entity(rest: &[u8]) -> Option<(usize, Meaning)> {
    let end = rest.iter().take(ENTITY).position(|byte| *byte == b';')?;
    let name = &rest[..end];
    let code = match name {
        [b'#', b'x' | b'X', digits @ ..] if (1..=6).contains(&digits.len()) => hex(digits)?,
        [b'#', digits @ ..] if !digits.is_empty() => std::str::from_utf8(digits).ok()?.parse().ok()?,
        b"amp" => u32::from(b'&'),
        b"lt" => u32::from(b'<'),
        b"gt" => u32::from(b'>'),
        b"quot" => u32::from(b'"'),
        b"apos" => u32::from(b'\''),
        _ => return None,
    };
    Some((end + 2, Meaning::Character(char::from_u32(code)?)))
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}
