//! Masks the answers and errors that a plugin sees.

use crate::Error;
use crate::exchange::Raw;
use crate::message::Response;
use crate::secrets::Secrets;
use crate::tls::Certificate;

/// Returns the answer with all secrets masked.
pub(crate) async fn mask_response(secrets: &Secrets, raw: Raw) -> Response {
    let body = secrets.masked_body(raw.body).await;
    let mut headers = Vec::with_capacity(raw.headers.len());
    for (name, value) in raw.headers {
        // The length before masking would reveal how many characters of a secret are escaped.
        let is_length = name == "content-length" && !body.is_empty();
        let value = if is_length { body.len().to_string() } else { secrets.masked(value).await };
        headers.push((secrets.masked(name).await, value));
    }
    let tls = match raw.tls {
        Some(tls) => {
            let tls = Certificate::clone(&tls);
            let (subject, issuer) = (secrets.masked(tls.subject).await, secrets.masked(tls.issuer).await);
            Some(Certificate { subject, issuer, ..tls })
        }
        None => None,
    };
    let reason = secrets.masked(raw.reason).await;
    Response { status: raw.status, reason, headers, body, timing: raw.timing, tls, _held: raw.held }
}

/// Masks the parts of an error that a server can write, because they may contain a secret.
pub(crate) async fn mask_error(secrets: &Secrets, error: Error) -> Error {
    match error {
        Error::Protocol { name, why } => Error::Protocol { name, why: secrets.masked(why).await },
        Error::TlsFailed { name, why } => Error::TlsFailed { name, why: secrets.masked(why).await },
        Error::EncodedBody(encoding) => Error::EncodedBody(secrets.masked(encoding).await),
        other => other,
    }
}
