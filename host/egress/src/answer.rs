//! Masks the answers and errors that a plugin sees.

use crate::Error;
use crate::captures::Place;
use crate::exchange::Raw;
use crate::mask::Masker;
use crate::message::Response;
use crate::secrets::Secrets;
use crate::tls::Certificate;

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

    async fn body(&self, body: Vec<u8>) -> Vec<u8> {
        let masked = self.operators.body(body).await;
        match &self.derived {
            Some(derived) => derived.body(masked).await,
            None => masked,
        }
    }

    /// Returns the answer with all secrets masked.
    pub(crate) async fn response(&self, raw: Raw) -> Response {
        let body = self.body(raw.body).await;
        let mut headers = Vec::with_capacity(raw.headers.len());
        for (name, value) in raw.headers {
            headers.push((self.text(name).await, self.text(value).await));
        }
        let tls = match raw.tls {
            Some(tls) => {
                let tls = Certificate::clone(&tls);
                let (subject, issuer) = (self.text(tls.subject).await, self.text(tls.issuer).await);
                Some(Certificate { subject, issuer, ..tls })
            }
            None => None,
        };
        let reason = self.text(raw.reason).await;
        Response { status: raw.status, reason, headers, body, timing: raw.timing, tls, _held: raw.held }
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
    if !response.body.is_empty() {
        for (_, value) in response.headers.iter_mut().filter(|(name, _)| name == "content-length") {
            *value = response.body.len().to_string();
        }
    }
    response
}
