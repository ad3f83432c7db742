//! Masks the answers and errors that a plugin sees.

use crate::Error;
use crate::captures::Place;
use crate::exchange::Raw;
use crate::mask::{Masker, replaced};
use crate::message::Response;
use crate::peer::{Certificate, TlsSession};
use crate::reading::Partial;
use crate::secrets::Secrets;

/// Finds the texts to mask: the secrets of an operator, and the texts that the host derived from them for a request.
pub(crate) struct Maskers<'a> {
    operators: &'a Masker,
    derived: Option<Masker>,
}

impl<'a> Maskers<'a> {
    pub(crate) fn new(secrets: &'a Secrets, derived: &[String]) -> Self {
        let derived = (!derived.is_empty()).then(|| Masker::new(derived.iter().map(String::as_str)));
        Self { operators: secrets.masker(), derived }
    }

    async fn text(&self, text: String) -> String {
        let masked = self.operators.text(text).await;
        match &self.derived {
            Some(derived) => derived.text(masked).await,
            None => masked,
        }
    }

    /// Masks the part of a body that the plugin sees. Returns it, and whether it is all of the body.
    pub(crate) async fn body(&self, mut body: Vec<u8>, partial: Option<&Partial>) -> (Vec<u8>, bool) {
        let mut regions = self.operators.regions(&body).await;
        if let Some(derived) = &self.derived {
            regions.extend(derived.regions(&body).await);
        }
        let Some((partial, end)) = partial.and_then(|partial| Some((partial, partial.end(&body, &regions)?))) else {
            return (replaced(body, regions), true);
        };
        // A secret that begins in the seen part is replaced as a whole, whatever its length.
        regions.retain(|region| region.source.start < end);
        let end = regions.iter().map(|region| region.source.end).fold(end, usize::max);
        body.truncate(end);
        let mut seen = replaced(body, regions);
        seen.truncate(partial.most());
        (seen, false)
    }

    /// Returns the answer to an exchange with all secrets masked.
    pub(crate) async fn response(&self, exchange: u32, raw: Raw, partial: Option<&Partial>) -> Response {
        let (body, is_whole) = self.body(raw.body, partial).await;
        let mut headers = Vec::with_capacity(raw.headers.len());
        for (name, value) in raw.headers {
            headers.push((self.text(name).await, self.text(value).await));
        }
        let reason = self.text(raw.reason).await;
        let is_complete = is_whole && raw.is_complete;
        let has_secrets = !self.operators.is_empty() || self.derived.is_some();
        if has_secrets && (body.is_empty() || !is_complete) {
            // The length of a body that the plugin does not see would reveal how many characters of a secret are escaped.
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
