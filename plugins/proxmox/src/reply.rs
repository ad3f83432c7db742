//! Reading a server's replies.

use crate::error::Error;
use crate::product::Product;
use polliwog_sdk::http::Response;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The content of an answer to `path`, with or without its `{"data": …}`.
pub(crate) fn read<'a, T: Deserialize<'a>>(product: Product, path: &str, response: &'a Response) -> Result<T, Error> {
    #[derive(Deserialize)]
    struct Envelope<T> {
        data: T,
    }

    if !(200..300).contains(&response.status()) {
        return Err(Error::answered(product, path, response));
    }
    let body = response.body();
    let unreadable = |error: serde_json::Error| Error::unreadable(product, path, body, &error);
    // Serde reads a list of one item as a struct of one field.
    if !body.trim_ascii_start().starts_with(b"{") {
        return parse(body).map_err(unreadable);
    }
    if let Ok(Envelope { data }) = parse(body) {
        return Ok(data);
    }
    // Some proxies remove the envelope.
    let data = match parse::<Envelope<&RawValue>>(body) {
        Ok(envelope) => envelope.data.get().as_bytes(),
        Err(error) if error.is_data() => body,
        Err(error) => return Err(unreadable(error)),
    };
    parse(data).map_err(unreadable)
}

/// Parses JSON. The body is checked for UTF-8 once, instead of each text in it.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    std::str::from_utf8(body).map_or_else(|_| serde_json::from_slice(body), serde_json::from_str)
}

#[cfg(test)]
mod tests;
