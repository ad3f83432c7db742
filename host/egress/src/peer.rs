//! The server of a TLS handshake, and its certificates.

use crate::tls::{Fingerprint, Refusal, Refused};
use data_encoding::HEXLOWER;
use rustls::ClientConnection;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::OnceLock;
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Maximum number of certificates of a chain that are shown.
const MAX_CHAIN: usize = 16;
/// Maximum number of names of a certificate that are shown.
const MAX_NAMES: usize = 1_000;
/// Maximum length of a subject or issuer in bytes.
const MAX_TEXT: usize = 1 << 10;

/// A TLS session as plugins see it, with every secret masked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TlsSession {
    /// `TLSv1.2` or `TLSv1.3`. `None` if the certificate was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The IANA name of the cipher suite. `None` if the certificate was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// The protocol that ALPN chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The host name or address that the certificate has to be for.
    pub server_name: String,
    /// The certificates as the server sent them, the leaf first.
    pub chain: Vec<Certificate>,
    /// Why the chain is not accepted; `None` if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The data of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Certificate {
    /// SHA-256, lower-case hex without colons.
    pub fingerprint: String,
    /// The subject in the format of RFC 4514. Empty if the certificate cannot be parsed, as the other texts.
    pub subject: String,
    /// The issuer in the same format.
    pub issuer: String,
    /// The serial number, lower-case hex without colons.
    pub serial: String,
    /// Start of the validity in milliseconds since the Unix epoch. 0 if the certificate cannot be parsed.
    pub not_before: i64,
    /// End of the validity in milliseconds since the Unix epoch.
    pub not_after: i64,
    /// The subject alternative names: host names and IP addresses.
    pub names: Vec<String>,
    /// The kind and size of the public key, for example `rsa-2048` or `ecdsa-p256`.
    pub key: String,
    /// The signature algorithm as in OpenSSL, or its object identifier.
    pub signature_algorithm: String,
    /// Whether the certificate may sign others.
    pub is_authority: bool,
}

/// The server of a TLS handshake. Its certificates are parsed when they are used for the first time.
#[derive(Debug)]
pub(crate) struct Peer {
    protocol: Option<&'static str>,
    cipher: Option<&'static str>,
    alpn: Option<String>,
    server_name: String,
    problem: Option<&'static str>,
    sent: Vec<CertificateDer<'static>>,
    chain: OnceLock<Vec<Certificate>>,
}

impl Peer {
    /// The server of an accepted handshake.
    pub(crate) fn of(session: &ClientConnection, server_name: &str) -> Self {
        let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        Self {
            protocol: session.protocol_version().and_then(|version| version.as_str()).map(dotted),
            // The names of the library and of IANA differ in the suites of TLS 1.3.
            cipher: cipher.map(|name| CIPHERS.iter().find(|(own, _)| *own == name).map_or(name, |(_, iana)| iana)),
            alpn: session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            server_name: server_name.to_owned(),
            problem: None,
            sent: session.peer_certificates().unwrap_or_default().to_vec(),
            chain: OnceLock::new(),
        }
    }

    /// The server of a handshake whose certificate was refused.
    pub(crate) fn refused(refused: &Refused, server_name: &str) -> Self {
        let problem = match refused.refusal {
            Refusal::Fingerprint { .. } => "fingerprint_mismatch",
            Refusal::Untrusted => "unknown_issuer",
            Refusal::Name => "name_mismatch",
            Refusal::Expired => "expired",
            Refusal::NotYetValid => "not_yet_valid",
            Refusal::Unusable(_) | Refusal::Key(_) => "other",
        };
        Self {
            protocol: None,
            cipher: None,
            alpn: None,
            server_name: server_name.to_owned(),
            problem: Some(problem),
            sent: refused.chain.to_vec(),
            chain: OnceLock::new(),
        }
    }

    /// Returns the certificates, the leaf first.
    pub(crate) fn chain(&self) -> &[Certificate] {
        self.chain.get_or_init(|| self.sent.iter().take(MAX_CHAIN).map(|sent| Certificate::of(sent)).collect())
    }

    /// Returns what plugins see, with the texts of the server as they are.
    pub(crate) fn shown(&self) -> TlsSession {
        TlsSession {
            protocol: self.protocol.map(str::to_owned),
            cipher: self.cipher.map(str::to_owned),
            alpn: self.alpn.clone(),
            server_name: self.server_name.clone(),
            chain: self.chain().to_vec(),
            problem: self.problem.map(str::to_owned),
        }
    }
}

/// Names of cipher suites of TLS 1.3, in the library and at IANA.
const CIPHERS: [(&str, &str); 3] = [
    ("TLS13_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS13_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS13_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
];

/// Returns the usual name of a version of TLS.
fn dotted(name: &'static str) -> &'static str {
    match name {
        "TLSv1_2" => "TLSv1.2",
        "TLSv1_3" => "TLSv1.3",
        other => other,
    }
}

impl Certificate {
    pub(crate) fn of(der: &[u8]) -> Self {
        let fingerprint = Fingerprint::of(der).to_hex();
        let Ok((_, parsed)) = X509Certificate::from_der(der) else {
            return Self { fingerprint, ..Self::default() };
        };
        let millis = |time: ASN1Time| time.timestamp().saturating_mul(1000);
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|found| &found.value.general_names);
        Self {
            fingerprint,
            subject: shortened(parsed.subject().to_string()),
            issuer: shortened(parsed.issuer().to_string()),
            serial: HEXLOWER.encode(parsed.raw_serial()),
            not_before: millis(parsed.validity().not_before),
            not_after: millis(parsed.validity().not_after),
            names: names.filter_map(name).take(MAX_NAMES).collect(),
            key: key(parsed.public_key()),
            signature_algorithm: algorithm(&parsed.signature_algorithm.algorithm.to_id_string()),
            is_authority: parsed.is_ca(),
        }
    }
}

/// Shortens a text to the limit of the contract.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// Returns a subject alternative name that is a host name or an IP address.
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(shortened((*name).to_owned())),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(short), _) => Some(IpAddr::from(short).to_string()),
            (_, Ok(long)) => Some(IpAddr::from(long).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the kind and size of a public key. Source of the identifiers: RFC 5480, RFC 8410.
fn key(info: &SubjectPublicKeyInfo<'_>) -> String {
    let algorithm = info.algorithm.algorithm.to_id_string();
    match info.parsed() {
        Ok(PublicKey::RSA(key)) => format!("rsa-{}", key.key_size()),
        Ok(PublicKey::EC(_)) => {
            let parameters = info.algorithm.parameters.as_ref();
            let curve = parameters.and_then(|any| any.as_oid().ok()).map(|oid| oid.to_id_string());
            match curve.as_deref() {
                Some("1.2.840.10045.3.1.7") => "ecdsa-p256".to_owned(),
                Some("1.3.132.0.34") => "ecdsa-p384".to_owned(),
                Some("1.3.132.0.35") => "ecdsa-p521".to_owned(),
                Some(other) => format!("ecdsa-{other}"),
                None => "ecdsa".to_owned(),
            }
        }
        _ => match algorithm.as_str() {
            "1.3.101.112" => "ed25519".to_owned(),
            "1.3.101.113" => "ed448".to_owned(),
            _ => algorithm,
        },
    }
}

/// Returns the name of a signature algorithm in OpenSSL. Source of the identifiers: RFC 4055, RFC 5758, RFC 8410.
fn algorithm(id: &str) -> String {
    let name = match id {
        "1.2.840.113549.1.1.4" => "md5WithRSAEncryption",
        "1.2.840.113549.1.1.5" => "sha1WithRSAEncryption",
        "1.2.840.113549.1.1.10" => "rsassaPss",
        "1.2.840.113549.1.1.11" => "sha256WithRSAEncryption",
        "1.2.840.113549.1.1.12" => "sha384WithRSAEncryption",
        "1.2.840.113549.1.1.13" => "sha512WithRSAEncryption",
        "1.2.840.10045.4.1" => "ecdsa-with-SHA1",
        "1.2.840.10045.4.3.2" => "ecdsa-with-SHA256",
        "1.2.840.10045.4.3.3" => "ecdsa-with-SHA384",
        "1.2.840.10045.4.3.4" => "ecdsa-with-SHA512",
        "1.3.101.112" => "ED25519",
        "1.3.101.113" => "ED448",
        other => other,
    };
    name.to_owned()
}
