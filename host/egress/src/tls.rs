//! Verifies the certificate of an origin and extracts its data.
//!
//! One verifier serves all policies. It computes the fingerprint of the leaf first, so that every error can print it.
//! Pinning replaces the checks of the chain and the name, but never the check of the handshake signature.

use crate::bare_key::{self, Signed, Version};
use data_encoding::HEXLOWER;
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

/// The SHA-256 fingerprint of a leaf certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Parses 64 hex digits, with or without colons, in upper or lower case.
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

    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Returns lower-case hex without colons.
    pub fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

/// Prints upper-case hex with colons, like other tools.
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

/// An error in the TLS settings.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant documents it")]
pub enum TlsError {
    #[error("{0:?} is not a SHA-256 fingerprint: write 64 hex digits, with or without colons")]
    Fingerprint(String),
    #[error("the CA file {file} cannot be read: {why}")]
    CaFile { file: String, why: String },
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// How the certificate of an origin is verified. Cheap to clone. Equal settings share connections.
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
    /// Trusts the certificate authorities of this machine.
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

    /// Trusts the authorities in a PEM file. A server certificate in the file is trusted too, for its name and while it
    /// is valid. A self-signed certificate is both.
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
            return Err(unreadable("it contains no certificate in PEM format".to_owned()));
        }
        let identity = format!("ca:{}", Fingerprint::of(&pem).to_hex());
        Self::new(identity, Trust::Roots { chain: chain(roots)?, own })
    }

    /// Trusts leaf certificates with one of these fingerprints.
    pub fn pinned(fingerprints: BTreeSet<Fingerprint>) -> Result<Self, TlsError> {
        let identity = format!("pin:{fingerprints:?}");
        Self::new(identity, Trust::Pinned(fingerprints))
    }

    /// Trusts every certificate.
    pub fn insecure() -> Result<Self, TlsError> {
        Self::new("insecure".to_owned(), Trust::Anything)
    }

    /// Returns the same settings, but uses HTTP/2 if the origin offers it.
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
        // A resumed session reuses the certificate of the earlier session without calling the verifier.
        config.resumption = Resumption::disabled();
        Ok(Self { identity: identity.into(), config: config.into() })
    }

    /// Returns the settings for a connection that does not speak HTTP.
    pub fn for_other_protocols(&self) -> ClientConfig {
        let mut config = (*self.config).clone();
        config.alpn_protocols.clear();
        config
    }

    /// Returns a text that is equal for equal settings. Connections are shared by it.
    pub(crate) fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    /// Whether certificates are verified.
    pub(crate) fn verifies(&self) -> bool {
        !self.identity.starts_with("insecure")
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Builds the chain verifier. `None` if there are no authorities: then every certificate is refused as untrusted.
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
        /// `None` if there are no authorities.
        chain: Option<Arc<WebPkiServerVerifier>>,
        /// Fingerprints of certificates that are trusted without a chain.
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

/// Why a certificate was refused. rustls returns it to the connecting code inside its own error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the certificate with the fingerprint {found} is refused: {refusal:?}")]
pub(crate) struct Refused {
    pub found: Fingerprint,
    pub refusal: Refusal,
    /// The certificates that the server sent, the leaf first.
    pub chain: Arc<[CertificateDer<'static>]>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    Fingerprint {
        expected: Vec<Fingerprint>,
    },
    Untrusted,
    Name,
    Expired,
    NotYetValid,
    /// It cannot be verified by an authority, for this reason.
    Unusable(String),
    /// It is trusted, and the signature of its key cannot be verified, for this reason.
    Key(String),
}

impl Refused {
    pub(crate) fn of(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => inner.downcast_ref(),
            _ => None,
        }
    }
}

impl Verifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        (name, ocsp, now): (&ServerName<'_>, &[u8], UnixTime),
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(leaf);
        let refuse = |refusal| Err(refused(found, refusal));
        match &self.trust {
            Trust::Anything => Ok(ServerCertVerified::assertion()),
            Trust::Pinned(expected) if expected.contains(&found) => Ok(ServerCertVerified::assertion()),
            Trust::Pinned(expected) => refuse(Refusal::Fingerprint { expected: expected.iter().copied().collect() }),
            Trust::Roots { chain: None, .. } => refuse(Refusal::Untrusted),
            Trust::Roots { chain: Some(chain), own } => {
                let verdict = chain.verify_server_cert(leaf, intermediates, name, ocsp, now);
                // The library never accepts an authority's certificate as a server certificate, even if it is in the CA
                // file.
                match verdict.map_err(|error| with_fingerprint(error, found)) {
                    Err(error) if is_untrusted(&error) && own.contains(&found) => {
                        verify_without_chain(leaf, name, now, found)
                    }
                    verdict => verdict,
                }
            }
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
        self.verify(leaf, intermediates, (name, ocsp, now)).map_err(|error| match Refused::of(&error) {
            None => error,
            Some(Refused { found, refusal, .. }) => {
                let chain = [leaf].into_iter().chain(intermediates).map(|sent| sent.clone().into_owned()).collect();
                refusal_error(Refused { found: *found, refusal: refusal.clone(), chain })
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(Version::Tls12, message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(Version::Tls13, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        match self.trust {
            Trust::Roots { .. } => {}
            // Servers choose the first that they have. Short keys can be verified with the older padding only.
            Trust::Pinned(_) => {
                schemes.sort_by_key(|scheme| !matches!(scheme, SignatureScheme::RSA_PKCS1_SHA256));
            }
            Trust::Anything => schemes.extend(UNVERIFIED),
        }
        schemes
    }
}

/// Signatures that cannot be verified, and need not be where no certificate is verified.
const UNVERIFIED: [SignatureScheme; 4] = [
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED448,
    SignatureScheme::RSA_PKCS1_SHA1,
    SignatureScheme::ECDSA_SHA1_Legacy,
];

impl Verifier {
    fn verify_signature(
        &self,
        version: Version,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let supported = &self.provider.signature_verification_algorithms;
        let verified = match (&self.trust, version) {
            // An attacker who intercepts the connection can sign with another certificate, which is accepted as well.
            (Trust::Anything, _) => return Ok(HandshakeSignatureValid::assertion()),
            (Trust::Pinned(_), _) => {
                let (scheme, signature) = (signature.scheme, signature.signature());
                bare_key::verify(Signed { version, message, scheme, signature }, certificate, supported)
            }
            (Trust::Roots { .. }, Version::Tls12) => verify_tls12_signature(message, certificate, signature, supported),
            (Trust::Roots { .. }, Version::Tls13) => verify_tls13_signature(message, certificate, signature, supported),
        };
        verified.map_err(|error| {
            let why = match (bare_key::short_rsa(certificate), &error) {
                (Some(bits), _) => format!("its RSA key has {bits} bits, which is too short"),
                (None, rustls::Error::InvalidCertificate(CertificateError::BadEncoding)) => {
                    "its key cannot be read".to_owned()
                }
                _ => return error,
            };
            let found = Fingerprint::of(certificate);
            let chain = [certificate.clone().into_owned()].into();
            refusal_error(Refused { found, refusal: Refusal::Key(why), chain })
        })
    }
}

fn refused(found: Fingerprint, refusal: Refusal) -> rustls::Error {
    refusal_error(Refused { found, refusal, chain: Arc::default() })
}

fn refusal_error(refused: Refused) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused))))
}

fn is_untrusted(error: &rustls::Error) -> bool {
    Refused::of(error).is_some_and(|refused| refused.refusal == Refusal::Untrusted)
}

/// Verifies a certificate that is trusted without a chain. Its name and its dates are still checked.
fn verify_without_chain(
    leaf: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
    found: Fingerprint,
) -> Result<ServerCertVerified, rustls::Error> {
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| with_fingerprint(error, found))?;
    verify_server_name(&parsed, name).map_err(|error| with_fingerprint(error, found))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match X509Certificate::from_der(leaf).map(|(_, parsed)| parsed.validity().clone()) {
        Ok(validity) if now > validity.not_after.timestamp() => Err(refused(found, Refusal::Expired)),
        Ok(validity) if now < validity.not_before.timestamp() => Err(refused(found, Refusal::NotYetValid)),
        Ok(_) => Ok(ServerCertVerified::assertion()),
        Err(_) => Err(refused(found, Refusal::Untrusted)),
    }
}

/// Adds the fingerprint to an error of rustls.
fn with_fingerprint(error: rustls::Error, found: Fingerprint) -> rustls::Error {
    let rustls::Error::InvalidCertificate(certificate) = &error else { return error };
    let refusal = match certificate {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Refusal::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Refusal::NotYetValid,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Refusal::Name,
        CertificateError::UnknownIssuer => Refusal::Untrusted,
        CertificateError::Other(OtherError(cause)) => match cause.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::UnsupportedCertVersion) => Refusal::Unusable("it has X.509 version 1".to_owned()),
            Some(webpki::Error::UnsupportedCriticalExtension) => {
                Refusal::Unusable("it has a critical extension that is not known here".to_owned())
            }
            _ => Refusal::Untrusted,
        },
        CertificateError::BadEncoding => Refusal::Unusable("its encoding is not correct".to_owned()),
        CertificateError::BadSignature => {
            Refusal::Unusable("its signature, or that of its issuer, is wrong".to_owned())
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            Refusal::Unusable("it is signed with an algorithm that is not secure or not known here".to_owned())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Refusal::Unusable("it is not for servers".to_owned())
        }
        _ => return error,
    };
    refused(found, refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_parsed_in_every_notation() {
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
