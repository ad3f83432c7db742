//! Masks the answers and errors that a plugin sees.

use crate::Error;
use crate::captures::Place;
use crate::exchange::Raw;
use crate::mask::{Masker, replaced};
use crate::message::Response;
use crate::peer::{Certificate, TlsSession};
use crate::reading::Partial;
use crate::secrets::Secrets;
use std::sync::Arc;

/// Finds the texts to mask: the secrets of an operator, and the texts that the host derived from them for a request.
pub(crate) struct Maskers<'a> {
    operators: &'a Masker,
    derived: Option<Masker>,
    /// The end of the body; `None` if it is read as a whole.
    partial: Option<Arc<Partial>>,
}

impl<'a> Maskers<'a> {
    pub(crate) fn new(secrets: &'a Secrets, derived: &[String], partial: Option<Arc<Partial>>) -> Self {
        let derived = (!derived.is_empty()).then(|| Masker::new(derived.iter().map(String::as_str)));
        Self { operators: secrets.masker(), derived, partial }
    }

    async fn text(&self, text: String) -> String {
        let masked = self.operators.text(text).await;
        match &self.derived {
            Some(derived) => derived.text(masked).await,
            None => masked,
        }
    }

    /// Masks the part of a body that the plugin sees. Returns it, and whether it is all of the body.
    pub(crate) async fn body(&self, body: Vec<u8>, is_complete: bool) -> (Vec<u8>, bool) {
        let mut regions = self.operators.regions(&body).await;
        if let Some(derived) = &self.derived {
            regions.extend(derived.regions(&body).await);
        }
        match &self.partial {
            Some(partial) => partial.seen(body, regions, is_complete),
            None => (replaced(body, regions), is_complete),
        }
    }

    /// Returns the answer to an exchange with all secrets masked.
    pub(crate) async fn response(&self, exchange: u32, raw: Raw) -> Response {
        let (body, is_complete) = self.body(raw.body, raw.is_complete).await;
        let mut headers = Vec::with_capacity(raw.headers.len());
        for (name, value) in raw.headers {
            headers.push((self.text(name).await, self.text(value).await));
        }
        let reason = self.text(raw.reason).await;
        let has_secrets = !self.operators.is_empty() || self.derived.is_some();
        if has_secrets && (body.is_empty() || !is_complete) {
            // The length of a body that the plugin does not see would reveal how many characters of a secret are
            // escaped.
            headers.retain(|(name, value)| name != "content-length" || value == "0");
        }
        Response {
            exchange,
            status: raw.status,
            reason,
            headers,
            body,
            is_complete,
            timing: raw.timing,
            _held: raw.held,
        }
    }

    /// Returns a TLS session with all secrets masked.
    pub(crate) async fn session(&self, mut session: TlsSession) -> TlsSession {
        for Certificate { subject, issuer, serial, names, .. } in &mut session.chain {
            for text in [subject, issuer, serial].into_iter().chain(names) {
                *text = self.text(std::mem::take(text)).await;
            }
        }
        session
    }

    /// Masks the parts of an error that a server can write, because they may contain a secret.
    pub(crate) async fn error(&self, error: Error) -> Error {
        match error {
            Error::Protocol { name, why } => Error::Protocol { name, why: self.text(why).await },
            Error::TlsFailed { name, why } => Error::TlsFailed { name, why: self.text(why).await },
            Error::EncodedBody(encoding) => Error::EncodedBody(self.text(encoding).await),
            Error::Challenge(why) => Error::Challenge(self.text(why).await),
            other => other,
        }
    }
}

/// Replaces captured values by stars, and corrects the length: the one before masking would reveal how many characters
/// of a secret are escaped.
pub(crate) fn finished(mut response: Response, captured: Vec<Place>) -> Response {
    Place::star(captured, &mut response.headers, &mut response.body);
    if response.is_complete && !response.body.is_empty() {
        for (_, value) in response.headers.iter_mut().filter(|(name, _)| name == "content-length") {
            *value = response.body.len().to_string();
        }
    }
    response
}
