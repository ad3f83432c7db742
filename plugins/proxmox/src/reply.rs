//! Reading a server's replies.

use crate::error::Error;
use crate::product::Product;
use polliwog_sdk::http::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The content of an answer to `path`, with or without its `{"data": …}`.
pub(crate) fn read<T: DeserializeOwned>(product: Product, path: &str, response: &Response) -> Result<T, Error> {
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
        return serde_json::from_slice(body).map_err(unreadable);
    }
    if let Ok(Envelope { data }) = serde_json::from_slice(body) {
        return Ok(data);
    }
    // Some proxies remove the envelope.
    let data = match serde_json::from_slice::<Envelope<&RawValue>>(body) {
        Ok(envelope) => envelope.data.get().as_bytes(),
        Err(error) if error.is_data() => body,
        Err(error) => return Err(unreadable(error)),
    };
    serde_json::from_slice(data).map_err(unreadable)
}

#[cfg(test)]
mod tests;
