//! Reading a server's replies.
//!
//! A type is deserialized by one function from one kind of input, a `&str`. Each other combination would compile all
//! its fields again, which makes a plugin larger and its build longer.

use crate::error::Error;
use crate::product::Product;
use polliwog_sdk::http::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The start of most replies.
const ENVELOPE: &str = "{\"data\":";

/// A body as text. Bytes that are not UTF-8 are replaced, because one name must not make a whole list unreadable.
pub(crate) fn text(response: &Response) -> Cow<'_, str> {
    // Checking a body for UTF-8 is several times faster than replacing in it.
    std::str::from_utf8(response.body()).map_or_else(|_| String::from_utf8_lossy(response.body()), Cow::Borrowed)
}

/// The content of an answer to `path`, with or without its `{"data": …}`. `text` is the body.
pub(crate) fn read<'a, T: Deserialize<'a>>(
    product: Product,
    path: &str,
    response: &Response,
    text: &'a str,
) -> Result<T, Error> {
    if !(200..300).contains(&response.status()) {
        return Err(Error::answered(product, path, response));
    }
    let content = content(text).and_then(|content| {
        let mut values = serde_json::Deserializer::from_str(content.start).into_iter();
        let value = values.next().unwrap_or_else(|| serde_json::from_str(""));
        content.check_end(value.is_ok().then(|| values.byte_offset()))?;
        value
    });
    content.map_err(|error| Error::unreadable(product, path, text.as_bytes(), &error))
}

/// The place of the content in a body.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Content<'a> {
    /// The content, and the rest of the body.
    start: &'a str,
    /// Whether the rest closes an envelope.
    is_enveloped: bool,
}

/// Finds the content of a body.
fn content(text: &str) -> serde_json::Result<Content<'_>> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }

    let bare = |start| Content { start, is_enveloped: false };
    if let Some(start) = text.strip_prefix(ENVELOPE) {
        return Ok(Content { start, is_enveloped: true });
    }
    // Some proxies remove the envelope. Serde reads a list of one item as a struct of one field.
    if !text.trim_ascii_start().starts_with('{') {
        return Ok(bare(text));
    }
    match serde_json::from_str::<Envelope<'_>>(text) {
        Ok(envelope) => Ok(bare(envelope.data.get())),
        // Without an envelope.
        Err(error) if error.is_data() => serde_json::from_str::<OneContent>(text).map(|_| bare(text)),
        Err(error) => Err(error),
    }
}

impl Content<'_> {
    /// Checks what follows the content. `length` is the length of the content; `None` if it could not be read.
    ///
    /// A body that is not JSON fails as such, whatever its content is.
    fn check_end(self, length: Option<usize>) -> serde_json::Result<()> {
        let envelope = if self.is_enveloped { ENVELOPE } else { "" };
        let whole = match length.map(|length| &self.start[length..]) {
            Some(rest) if rest.trim_ascii_end() == if self.is_enveloped { "}" } else { "" } => return Ok(()),
            Some(rest) => format!("{envelope}null{rest}"),
            None => format!("{envelope}{}", self.start),
        };
        match self.is_enveloped {
            true => serde_json::from_str::<OneContent>(&whole).map(drop),
            false => serde_json::from_str::<IgnoredAny>(&whole).map(drop),
        }
    }
}

/// An object in which `data` is once at most: of two contents, one would hide the other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OneContent {
    #[serde(rename = "data")]
    _data: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests;
