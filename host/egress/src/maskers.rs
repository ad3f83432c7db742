//! Masks what a server wrote: texts, errors and certificates.

use crate::mask::{Masker, Region};
use crate::peer::{Certificate, TlsSession};
use crate::{Error, Grant};
use std::sync::Arc;

/// Maximum length of a server's text in an error message in bytes.
const MAX_QUOTED: usize = 300;

/// Finds the texts to mask: the secrets of an operator, and the texts that the host derived from them for a request.
#[derive(Debug)]
pub(crate) struct Maskers {
    grant: Arc<Grant>,
    derived: Option<Masker>,
}

impl Maskers {
    pub(crate) fn new(grant: &Arc<Grant>, derived: &[String]) -> Self {
        let derived = (!derived.is_empty()).then(|| Masker::new(derived.iter().map(String::as_str)));
        Self { grant: grant.clone(), derived }
    }

    fn operators(&self) -> &Masker {
        self.grant.secrets.masker()
    }

    /// Returns whether there is nothing to find.
    pub(crate) fn is_empty(&self) -> bool {
        self.operators().is_empty() && self.derived.is_none()
    }

    /// Returns the parts of a body to replace.
    pub(crate) async fn regions(&self, body: &[u8]) -> Vec<Region> {
        let mut regions = self.operators().regions(body).await;
        if let Some(derived) = &self.derived {
            regions.extend(derived.regions(body).await);
        }
        regions
    }

    /// Masks a header, a reason phrase or another short text.
    pub(crate) async fn text(&self, text: String) -> String {
        let masked = self.operators().text(text).await;
        match &self.derived {
            Some(derived) => derived.text(masked).await,
            None => masked,
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
            Error::UnreadableHead { name, why } => Error::UnreadableHead { name, why: shortened(self.text(why).await) },
            Error::TlsFailed { name, why } => Error::TlsFailed { name, why: self.text(why).await },
            Error::IssuerMissing { name, issuer, found } => {
                Error::IssuerMissing { name, issuer: self.text(issuer).await, found }
            }
            Error::EncodedBody(encoding) => Error::EncodedBody(self.text(encoding).await),
            Error::Challenge(why) => Error::Challenge(self.text(why).await),
            other => other,
        }
    }
}

/// Shortens a text of a server that was masked. Before that, a part of a secret at the end would not be found.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_QUOTED {
        text.truncate(text.floor_char_boundary(MAX_QUOTED));
        text.push('…');
    }
    text
}
