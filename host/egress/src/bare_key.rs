//! Verifies the signature of a handshake by the key in a certificate, whatever else the certificate contains.
//!
//! A certificate with the configured fingerprint is trusted for that alone. The TLS library would refuse to read the
//! ones of old devices: those of X.509 version 1, with unknown critical extensions, or with short keys.

use ring::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, UnparsedPublicKey,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

/// The shortest RSA key that the TLS library verifies signatures with, in bits.
const SHORTEST_RSA: usize = 2048;

/// A version of TLS.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    Tls12,
    Tls13,
}

/// Returns the size of the RSA key of a certificate in bits, if it is too short for the TLS library.
pub(crate) fn short_rsa(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => Some(key.key_size()).filter(|size| *size < SHORTEST_RSA),
        _ => None,
    }
}

/// A signature of a handshake.
#[derive(Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub version: Version,
    pub message: &'a [u8],
    pub scheme: SignatureScheme,
    pub signature: &'a [u8],
}

/// Verifies the signature of a handshake by the key in a certificate.
///
/// # Errors
/// If the signature is wrong, or the key cannot be read or used.
pub(crate) fn verify(
    signed: Signed<'_>,
    certificate: &CertificateDer<'_>,
    supported: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let Signed { version, message, scheme, signature } = signed;
    let unreadable = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let info = parsed.public_key();
    let is_old_padding = matches!(
        scheme,
        SignatureScheme::RSA_PKCS1_SHA256 | SignatureScheme::RSA_PKCS1_SHA384 | SignatureScheme::RSA_PKCS1_SHA512
    );
    let is_verified = if version == Version::Tls13 && is_old_padding {
        // RFC 8446, section 4.2.3.
        false
    } else if short_rsa(certificate).is_some() {
        // Only the older padding is available for short keys.
        let algorithm = match scheme {
            SignatureScheme::RSA_PKCS1_SHA256 => Some(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
            SignatureScheme::RSA_PKCS1_SHA512 => Some(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
            _ => None,
        };
        let key = |algorithm| UnparsedPublicKey::new(algorithm, &info.subject_public_key.data);
        algorithm.is_some_and(|algorithm| key(algorithm).verify(message, signature).is_ok())
    } else {
        let key = SubjectPublicKeyInfoDer::from(info.raw);
        let entity = webpki::RawPublicKeyEntity::try_from(&key).map_err(|_| unreadable())?;
        let mut usable = supported.mapping.iter().filter(|(found, _)| *found == scheme);
        // In TLS 1.3, the scheme decides about the curve, too: the first algorithm.
        let most = if version == Version::Tls13 { 1 } else { usize::MAX };
        usable.any(|(_, algorithms)| {
            let mut algorithms = algorithms.iter().take(most);
            algorithms.any(|&algorithm| entity.verify_signature(algorithm, message, signature).is_ok())
        })
    };
    match is_verified {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_short_keys_are_verified_with_the_older_padding_only() {
        let short = CertificateDer::from(&include_bytes!("tests/data/rsa-1024.der")[..]);
        let signature = &include_bytes!("tests/data/rsa-1024.signature")[..];
        assert_eq!(short_rsa(&short), Some(1024));
        let supported = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let right = Signed {
            version: Version::Tls12,
            message: b"a handshake",
            scheme: SignatureScheme::RSA_PKCS1_SHA256,
            signature,
        };
        for (signed, expected) in [
            (right, true),
            (Signed { version: Version::Tls13, ..right }, false),
            (Signed { message: b"another one", ..right }, false),
            (Signed { signature: &signature[1..], ..right }, false),
            (Signed { scheme: SignatureScheme::RSA_PKCS1_SHA512, ..right }, false),
            (Signed { scheme: SignatureScheme::RSA_PSS_SHA256, ..right }, false),
            (Signed { scheme: SignatureScheme::ECDSA_NISTP256_SHA256, ..right }, false),
        ] {
            assert_eq!(verify(signed, &short, &supported).is_ok(), expected);
        }
        assert!(verify(right, &CertificateDer::from(&b"no certificate"[..]), &supported).is_err());
    }
}
