//! How an origin's certificate is judged, and what is told of it.
//!
//! One verifier for all policies: it takes the leaf's fingerprint first, so that every refusal can print it. Pinning
//! replaces the chain and the name, never the handshake's signature.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The SHA-256 of a leaf certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Reads 64 hex digits, with or without colons, in any case.
    pub fn parse(text: &str) -> Result<Self, TlsError> {
        let digits: Vec<u32> =
            text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)).collect::<Option<_>>().unwrap_or_default();
        if digits.len() != 64 {
            return Err(TlsError::Fingerprint(text.to_owned()));
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = (pair[0] * 16 + pair[1]) as u8;
        }
        Ok(Self(bytes))
    }

    fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Lower-case hex without colons.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Upper-case hex with colons, as other tools print it.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A TLS setting that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's text says what it is")]
pub enum TlsError {
    #[error("{0:?} is no SHA-256 fingerprint: it has 64 hex digits, with or without colons")]
    Fingerprint(String),
    #[error("the CA file {file} cannot be read: {why}")]
    CaFile { file: String, why: String },
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// How an origin's certificate is judged. Cheap to clone; equal settings share connections.
#[derive(Clone)]
pub struct Tls {
    identity: Arc<str>,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.identity)
    }
}

impl Tls {
    /// By the authorities that this machine trusts.
    pub fn system() -> Result<Self, TlsError> {
        static SYSTEM: OnceLock<Tls> = OnceLock::new();
        if let Some(tls) = SYSTEM.get() {
            return Ok(tls.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let made = Self::new("system".into(), Trust::Roots { chain: chain(roots)?, own: BTreeSet::new() })?;
        Ok(SYSTEM.get_or_init(|| made).clone())
    }

    /// By the authorities in a PEM file. A server's own certificate that stands in it is trusted too, for its name and while it
    /// is valid: self-signed ones are both.
    pub fn ca_file(file: &Path) -> Result<Self, TlsError> {
        let unreadable = |why: String| TlsError::CaFile { file: file.display().to_string(), why };
        let pem = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
        let (mut roots, mut own) = (RootCertStore::empty(), BTreeSet::new());
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            own.insert(Fingerprint::of(&certificate));
            roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unreadable("it holds no certificate in PEM form".to_owned()));
        }
        let identity = format!("ca:{}", Fingerprint::of(&pem).to_hex());
        Self::new(identity, Trust::Roots { chain: chain(roots)?, own })
    }

    /// By the fingerprint of the leaf: any of these.
    pub fn pinned(fingerprints: BTreeSet<Fingerprint>) -> Result<Self, TlsError> {
        let identity = format!("pin:{fingerprints:?}");
        Self::new(identity, Trust::Pinned(fingerprints))
    }

    /// Not at all.
    pub fn insecure() -> Result<Self, TlsError> {
        Self::new("insecure".to_owned(), Trust::Anything)
    }

    /// The same, and HTTP/2 where the origin offers it.
    #[must_use]
    pub fn with_http2(self) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { identity: format!("{}+h2", self.identity).into(), config: config.into() }
    }

    fn new(identity: String, trust: Trust) -> Result<Self, TlsError> {
        let provider = provider();
        let verifier = Verifier { trust, provider: provider.clone() };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed session brings back the certificate of the one before it, unseen by the verifier.
        config.resumption = Resumption::disabled();
        Ok(Self { identity: identity.into(), config: config.into() })
    }

    /// What connections may be shared by.
    pub(crate) fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// A machine without authorities trusts nobody; that is found out when a certificate is to be judged.
fn chain(roots: RootCertStore) -> Result<Option<Arc<WebPkiServerVerifier>>, TlsError> {
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    verifier.map(Some).map_err(|error| TlsError::Setup(error.to_string()))
}

#[derive(Debug)]
enum Trust {
    Roots {
        /// None where there are no authorities.
        chain: Option<Arc<WebPkiServerVerifier>>,
        /// Certificates that are trusted by themselves.
        own: BTreeSet<Fingerprint>,
    },
    Pinned(BTreeSet<Fingerprint>),
    Anything,
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Why a certificate was refused; it travels inside rustls's error to whoever connects.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the certificate with the fingerprint {found} is refused: {refusal:?}")]
pub(crate) struct Refused {
    pub found: Fingerprint,
    pub refusal: Refusal,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    Fingerprint { expected: Vec<Fingerprint> },
    Untrusted,
    Name,
    Expired,
    NotYetValid,
    Version1,
}

impl Refused {
    pub(crate) fn of(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => inner.downcast_ref(),
            _ => None,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(leaf);
        let refuse = |refusal| Err(refused(found, refusal));
        if X509Certificate::from_der(leaf).is_ok_and(|(_, parsed)| parsed.version.0 == 0) {
            return refuse(Refusal::Version1);
        }
        match &self.trust {
            Trust::Anything => Ok(ServerCertVerified::assertion()),
            Trust::Pinned(expected) if expected.contains(&found) => Ok(ServerCertVerified::assertion()),
            Trust::Pinned(expected) => refuse(Refusal::Fingerprint { expected: expected.iter().copied().collect() }),
            Trust::Roots { chain: None, .. } => refuse(Refusal::Untrusted),
            Trust::Roots { chain: Some(chain), own } => {
                let verdict = chain.verify_server_cert(leaf, intermediates, name, ocsp, now);
                // An authority's certificate is not taken for a server's by the library, even where it is meant.
                match verdict.map_err(|error| judged(error, found)) {
                    Err(error) if is_untrusted(&error) && own.contains(&found) => by_itself(leaf, name, now, found),
                    verdict => verdict,
                }
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn refused(found: Fingerprint, refusal: Refusal) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Refused { found, refusal }))))
}

fn is_untrusted(error: &rustls::Error) -> bool {
    Refused::of(error).is_some_and(|refused| refused.refusal == Refusal::Untrusted)
}

/// A certificate that is trusted for what it is: its name and its dates still count.
fn by_itself(
    leaf: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
    found: Fingerprint,
) -> Result<ServerCertVerified, rustls::Error> {
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| judged(error, found))?;
    verify_server_name(&parsed, name).map_err(|error| judged(error, found))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match X509Certificate::from_der(leaf).map(|(_, parsed)| parsed.validity().clone()) {
        Ok(validity) if now > validity.not_after.timestamp() => Err(refused(found, Refusal::Expired)),
        Ok(validity) if now < validity.not_before.timestamp() => Err(refused(found, Refusal::NotYetValid)),
        Ok(_) => Ok(ServerCertVerified::assertion()),
        Err(_) => Err(refused(found, Refusal::Untrusted)),
    }
}

/// rustls's verdict with the fingerprint beside it.
fn judged(error: rustls::Error, found: Fingerprint) -> rustls::Error {
    let rustls::Error::InvalidCertificate(certificate) = &error else { return error };
    let refusal = match certificate {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Refusal::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Refusal::NotYetValid,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Refusal::Name,
        CertificateError::UnknownIssuer => Refusal::Untrusted,
        CertificateError::Other(_) => Refusal::Untrusted,
        _ => return error,
    };
    refused(found, refusal)
}

/// What is told of a leaf certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// SHA-256, lower-case hex without colons.
    pub fingerprint: String,
    /// Its subject, as RFC 4514 writes it; empty when the certificate cannot be read.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Milliseconds since the Unix epoch; 0 when the certificate cannot be read, or before 1970.
    pub not_before: u64,
    /// Milliseconds since the Unix epoch.
    pub not_after: u64,
}

impl Certificate {
    pub(crate) fn of(leaf: &[u8]) -> Self {
        let millis = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
        let parsed = X509Certificate::from_der(leaf).ok().map(|(_, parsed)| parsed);
        Self {
            fingerprint: Fingerprint::of(leaf).to_hex(),
            subject: parsed.as_ref().map(|c| c.subject().to_string()).unwrap_or_default(),
            issuer: parsed.as_ref().map(|c| c.issuer().to_string()).unwrap_or_default(),
            not_before: parsed.as_ref().map_or(0, |c| millis(c.validity().not_before.timestamp())),
            not_after: parsed.as_ref().map_or(0, |c| millis(c.validity().not_after.timestamp())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_in_every_notation() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        let parsed = Fingerprint::parse(&colons).unwrap();
        assert_eq!(Fingerprint::parse(&plain).unwrap(), parsed);
        assert_eq!((parsed.to_string(), parsed.to_hex()), (colons, plain));
        let short = "ab".repeat(31);
        for bad in ["", "xyz", short.as_str(), &"zz".repeat(32)] {
            assert!(Fingerprint::parse(bad).is_err(), "{bad}");
        }
    }
}
