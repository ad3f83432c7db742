//! Decodes the bodies of answers: compression, and texts in other character sets than UTF-8.
//!
//! It happens while a body arrives, before anything is masked: the masks see the same bytes as the plugin.

use crate::Error;
use encoding_rs::{Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use std::borrow::Cow;
use std::io::{self, Write};

/// The compressed bytes that are decoded at a time. They become at most 1,032 times as many (RFC 1951).
const STEP: usize = 1 << 10;
/// The bytes at the beginning of a text in which it can state its character set (HTML, section 4.2.5.4).
const PROLOGUE: usize = 1 << 10;
/// The bytes that a text without zeros has at least if it is UTF-8 and not UTF-16.
const CLEAR: usize = 16;
/// The length of the longest byte order mark.
const MARK: usize = 3;
/// The encodings that are known and not decoded. Every other word is no encoding: servers write character sets and
/// formats of storage there, and clients ignore them.
const UNSUPPORTED: [&str; 5] = ["br", "zstd", "compress", "x-compress", "dcb"];

/// Decodes one body.
pub(crate) struct Decoding {
    compression: Compression,
    /// Whether a byte has arrived.
    is_begun: bool,
    text: Text,
}

/// The decoder of a compression.
enum Compression {
    None,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    /// `deflate` before the first byte, which decides about its form.
    Deflate,
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Raw(Box<DeflateDecoder<Vec<u8>>>),
    /// Behind the end. What follows is ignored.
    Over,
}

/// The conversion of a text to UTF-8.
enum Text {
    /// It is not converted.
    Passed,
    /// The beginning of a text, whose character set is not known.
    Begin {
        bytes: Vec<u8>,
        kind: Kind,
    },
    /// UTF-8. If it is not, which is known at its end only, it is in the other character set.
    Utf8 {
        other: Option<&'static Encoding>,
    },
    Converted(Box<Decoder>),
}

/// The format and the character set of a text, as its content type states them.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    /// The character set.
    stated: Option<&'static Encoding>,
    format: Format,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Html,
    Xml,
    Json,
    /// Another text.
    Plain,
    /// An answer that does not say what it is.
    Unknown,
}

impl Decoding {
    /// Returns how to decode the body of an answer with these headers. `None` if it is passed on as it is.
    ///
    /// # Errors
    /// If it has a compression that is not supported, or several.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let compression = compression(headers)?;
        let text = match kind(headers) {
            Some(kind) => Text::Begin { bytes: Vec::new(), kind },
            None => Text::Passed,
        };
        let is_passed = matches!(compression, Compression::None) && matches!(text, Text::Passed);
        Ok((!is_passed).then_some(Self { compression, is_begun: false, text }))
    }

    /// Returns whether the body was compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        !matches!(self.compression, Compression::None)
    }

    /// Splits bytes into parts, of which each is decoded at once.
    pub(crate) fn parts<'a>(&self, data: &'a [u8]) -> std::slice::Chunks<'a, u8> {
        data.chunks(if self.is_compressed() { STEP } else { data.len().max(1) })
    }

    /// Decodes the next part of a body.
    pub(crate) fn decode<'a>(&mut self, part: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
        self.is_begun |= !part.is_empty();
        let plain = match self.compression {
            Compression::None => Cow::Borrowed(part),
            _ => Cow::Owned(self.decompress(part).map_err(|error| undecodable(&error))?),
        };
        Ok(self.text.convert(plain, false))
    }

    /// Returns the rest of a body that has arrived as a whole.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, Error> {
        let rest = match std::mem::replace(&mut self.compression, Compression::Over) {
            // Without a body there is nothing to decode.
            _ if !self.is_begun => Ok(Vec::new()),
            Compression::None | Compression::Over | Compression::Deflate => Ok(Vec::new()),
            Compression::Gzip(decoder) => decoder.finish(),
            Compression::Zlib(decoder) => decoder.finish(),
            Compression::Raw(decoder) => decoder.finish(),
        };
        let rest = rest.map_err(|error| undecodable(&error))?;
        Ok(self.text.convert(rest.into(), true).into_owned())
    }

    /// Returns a body in UTF-8 if it is a text in another character set. One that is not complete may end within a
    /// character.
    pub(crate) fn guessed(&self, body: &[u8], is_complete: bool) -> Option<Vec<u8>> {
        let Text::Utf8 { other: Some(other) } = self.text else { return None };
        let is_other = str::from_utf8(body).is_err_and(|error| is_complete || error.error_len().is_some());
        is_other.then(|| other.decode_without_bom_handling(body).0.into_owned().into_bytes())
    }

    fn decompress(&mut self, mut part: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        while let (&[first, ..], false) = (part, matches!(self.compression, Compression::Over)) {
            let written = match &mut self.compression {
                Compression::None | Compression::Over => part.len(),
                Compression::Deflate => {
                    // The specification means the format of zlib, and some servers send the bare one (RFC 9110,
                    // section 8.4.1.2). The low half of the first byte is the method, 8 in zlib (RFC 1950).
                    self.compression = match first & 0x0f {
                        8 => Compression::Zlib(Box::new(ZlibDecoder::new(Vec::new()))),
                        _ => Compression::Raw(Box::new(DeflateDecoder::new(Vec::new()))),
                    };
                    continue;
                }
                Compression::Gzip(decoder) => step(&mut **decoder, part, GzDecoder::get_mut, &mut plain)?,
                Compression::Zlib(decoder) => step(&mut **decoder, part, ZlibDecoder::get_mut, &mut plain)?,
                Compression::Raw(decoder) => step(&mut **decoder, part, DeflateDecoder::get_mut, &mut plain)?,
            };
            part = &part[written..];
            if written > 0 {
                continue;
            }
            // The end of the compressed data. Another member can follow that of gzip (RFC 1952, section 2.2).
            let over = std::mem::replace(&mut self.compression, Compression::Over);
            if let Compression::Gzip(decoder) = over {
                plain.append(&mut decoder.finish()?);
                if first == 0x1f {
                    self.compression = gzip();
                }
            }
        }
        Ok(plain)
    }
}

/// Decodes compressed bytes. Returns how many were read: 0 behind the end of the compressed data.
fn step<D: Write>(
    decoder: &mut D,
    part: &[u8],
    output: impl Fn(&mut D) -> &mut Vec<u8>,
    plain: &mut Vec<u8>,
) -> io::Result<usize> {
    let written = decoder.write(part)?;
    plain.append(output(decoder));
    Ok(written)
}

fn gzip() -> Compression {
    Compression::Gzip(Box::new(GzDecoder::new(Vec::new())))
}

fn undecodable(error: &io::Error) -> Error {
    Error::BrokenEncoding(match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    })
}

/// Returns the compression that the headers of an answer state.
fn compression(headers: &HeaderMap) -> Result<Compression, Error> {
    if !headers.contains_key(CONTENT_ENCODING) {
        return Ok(Compression::None);
    }
    let stated = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let stated = stated.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let mut found = Compression::None;
    for word in stated.split(',').map(str::trim) {
        let next = match word {
            "gzip" | "x-gzip" => gzip(),
            "deflate" | "x-deflate" => Compression::Deflate,
            word if UNSUPPORTED.contains(&word) => return Err(Error::EncodedBody(stated)),
            _ => continue,
        };
        if !matches!(found, Compression::None) {
            return Err(Error::EncodedBody(stated));
        }
        found = next;
    }
    Ok(found)
}

/// Returns what the headers of an answer say about its text. `None` if it is not a text.
fn kind(headers: &HeaderMap) -> Option<Kind> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Some(Kind { stated: None, format: Format::Unknown }) };
    // Most answers have this one.
    if value == "application/json" {
        return Some(Kind { stated: None, format: Format::Json });
    }
    let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset")?.trim_start().strip_prefix('='));
    let label = charset.map(|label| label.trim().trim_matches(['"', '\'']));
    let stated = label.and_then(|label| Encoding::for_label(label.as_bytes()));
    let format = match essence {
        "" => Format::Unknown,
        "text/html" => Format::Html,
        "text/xml" | "application/xml" => Format::Xml,
        kind if kind.ends_with("+xml") => Format::Xml,
        kind if kind.ends_with("/json") || kind.ends_with("+json") => Format::Json,
        kind if kind.starts_with("text/") || stated.is_some() => Format::Plain,
        _ => return None,
    };
    Some(Kind { stated, format })
}

impl Text {
    /// Converts the next part of a text to UTF-8.
    fn convert<'a>(&mut self, part: Cow<'a, [u8]>, is_last: bool) -> Cow<'a, [u8]> {
        match self {
            Self::Passed | Self::Utf8 { .. } => part,
            Self::Converted(decoder) => converted(decoder, &part, is_last).into(),
            Self::Begin { bytes, kind } => {
                let kind = *kind;
                let needed = match kind {
                    // A document may state its character set further on.
                    Kind { stated: None, format: Format::Html | Format::Xml } => PROLOGUE,
                    Kind { stated: Some(stated), .. } if is_utf16(stated) || is_legacy(stated) => PROLOGUE,
                    Kind { .. } => MARK,
                };
                let begin = if bytes.is_empty() { part } else { [bytes.as_slice(), &part].concat().into() };
                if begin.len() < needed && !is_last {
                    *bytes = begin.into_owned();
                    return Cow::Borrowed(&[]);
                }
                let (next, mark) = kind.of(&begin);
                *self = next;
                match begin {
                    Cow::Borrowed(begin) => self.convert(Cow::Borrowed(&begin[mark..]), is_last),
                    Cow::Owned(mut begin) => {
                        begin.drain(..mark);
                        self.convert(Cow::Owned(begin), is_last)
                    }
                }
            }
        }
    }
}

impl Kind {
    /// Whether the beginning of a text is UTF-8, perhaps with an incomplete character at its end, and not by chance.
    fn is_utf8_so_far(self, begin: &[u8]) -> bool {
        // Some words of Chinese in UTF-16 are words in ASCII.
        let is_clear = matches!(self.format, Format::Html | Format::Xml | Format::Json) || begin.len() >= CLEAR;
        is_utf8(begin) && is_clear && !begin.contains(&0)
    }

    /// Returns the conversion of a text that begins with these bytes, and the length of its byte order mark. The mark
    /// is more reliable than what a server states (Encoding Standard, section 6).
    fn of(self, begin: &[u8]) -> (Text, usize) {
        let (encoding, mark) = match Encoding::for_bom(begin) {
            Some((encoding, length)) => (Some(encoding), length),
            None => (self.stated.or_else(|| self.format.stated_in(begin)), 0),
        };
        let text = match encoding {
            None if matches!(self.format, Format::Html | Format::Plain) => Text::Utf8 { other: Some(WINDOWS_1252) },
            None => Text::Utf8 { other: None },
            Some(encoding) if encoding == UTF_8 => Text::Utf8 { other: None },
            // Every text in UTF-16 with markup, digits or blanks has bytes that are zero.
            Some(encoding) if mark == 0 && is_utf16(encoding) && self.is_utf8_so_far(begin) => {
                Text::Utf8 { other: None }
            }
            // Many servers declare one character set for every text, also for UTF-8. A text with one byte for each
            // letter is not UTF-8 by chance.
            Some(encoding) if encoding == WINDOWS_1252 || is_legacy(encoding) && is_utf8(begin) => {
                Text::Utf8 { other: Some(encoding) }
            }
            Some(encoding) => Text::Converted(Box::new(encoding.new_decoder_without_bom_handling())),
        };
        (text, mark)
    }
}

impl Format {
    /// Returns the character set that a text states itself.
    fn stated_in(self, begin: &[u8]) -> Option<&'static Encoding> {
        let prologue = &begin[..begin.len().min(PROLOGUE)];
        let label = match (self, prologue) {
            // The first characters of JSON are in ASCII (RFC 4627, section 3).
            (Self::Json, [0, second, ..]) if *second != 0 => return Some(UTF_16BE),
            (Self::Json, [first, 0, ..]) if *first != 0 => return Some(UTF_16LE),
            (Self::Plain | Self::Unknown, [0, b'{' | b'[', ..]) => return Some(UTF_16BE),
            (Self::Plain | Self::Unknown, [b'{' | b'[', 0, ..]) => return Some(UTF_16LE),
            (Self::Json | Self::Plain | Self::Unknown, _) => return None,
            (Self::Html, _) => {
                let text = String::from_utf8_lossy(prologue).to_ascii_lowercase();
                // `<meta charset="…">`, or `<meta … content="text/html; charset=…">`.
                let tags = text.split("<meta").skip(1).map(|tag| tag.split('>').next().unwrap_or_default().to_owned());
                tags.filter_map(|tag| value_of("charset", &tag)).next()?
            }
            (Self::Xml, _) => {
                let text = String::from_utf8_lossy(prologue).to_ascii_lowercase();
                value_of("encoding", text.trim_start().strip_prefix("<?xml")?.split("?>").next()?)?
            }
        };
        // A document in UTF-16 cannot state it in ASCII.
        Encoding::for_label(label.as_bytes()).filter(|stated| ![UTF_16BE, UTF_16LE].contains(stated))
    }
}

/// Whether a character set has one byte for each letter, and is not the usual one.
fn is_legacy(encoding: &'static Encoding) -> bool {
    encoding.is_single_byte() && encoding != WINDOWS_1252
}

/// Whether the beginning of a text is UTF-8, perhaps with an incomplete character at its end.
fn is_utf8(begin: &[u8]) -> bool {
    str::from_utf8(begin).map_or_else(|error| error.error_len().is_none(), |_| true)
}

fn is_utf16(encoding: &Encoding) -> bool {
    encoding == UTF_16LE || encoding == UTF_16BE
}

/// Returns the value of `name=value` in a tag, in quotes or without.
fn value_of(name: &str, tag: &str) -> Option<String> {
    let (_, rest) = tag.split_once(name)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| matches!(c, '"' | '\'' | ';' | '/') || c.is_whitespace()).unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

/// Converts bytes to UTF-8. Bytes that are not in the character set become U+FFFD.
fn converted(decoder: &mut Decoder, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let most = decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(usize::MAX / 2);
    let mut text = String::with_capacity(most);
    let _ = decoder.decode_to_string(bytes, &mut text, is_last);
    text.into_bytes()
}
