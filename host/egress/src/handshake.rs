//! Why TLS handshakes fail, for users.

use crate::Error;
use crate::error::without_os_number;
use crate::tls::{Refusal, Refused};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, PeerIncompatible};
use std::io;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns why a handshake refused the certificate; `None` if it failed for another reason.
pub(crate) fn refusal(error: &io::Error) -> Option<&Refused> {
    Refused::of(cause(error)?)
}

fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns the error for a handshake that failed. `name` is the server, `certified` the name that its certificate has
/// to be for.
pub(crate) fn handshake_error(name: String, certified: &str, error: &io::Error) -> Error {
    let Some(Refused { found, refusal, chain }) = refusal(error) else {
        return match stopped(error, &name, certified) {
            Some(error) => error,
            None => {
                let why = cause(error).map_or_else(|| without_os_number(error), ToString::to_string);
                Error::TlsFailed { name, why }
            }
        };
    };
    let found = found.to_string();
    match refusal {
        Refusal::Fingerprint { expected } => {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            Error::FingerprintMismatch { name, found, expected: expected.join(" or ") }
        }
        Refusal::Untrusted => match missing_issuer(chain) {
            Some(issuer) => Error::IssuerMissing { name, issuer, found },
            None => Error::Untrusted { name, found },
        },
        Refusal::Name => Error::NameMismatch { name: certified.to_owned(), found },
        Refusal::Expired => Error::Expired { name, why: "it has expired" },
        Refusal::NotYetValid => Error::Expired { name, why: "it is not valid yet" },
        Refusal::Unusable(why) => Error::CertificateUnusable { name, why: why.clone(), found },
        Refusal::Key(why) => Error::KeyUnusable { name, why: why.clone() },
    }
}

/// Returns the error for a session that the server ended with an alert of TLS, at any time, or that cannot begin
/// because the server is too old.
pub(crate) fn stopped(error: &io::Error, name: &str, certified: &str) -> Option<Error> {
    let why = match cause(error)? {
        rustls::Error::AlertReceived(alert) => alerted(*alert, certified),
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOffered,
        ) => TOO_OLD.to_owned(),
        rustls::Error::PeerIncompatible(_) => NOTHING_SHARED.to_owned(),
        _ => return None,
    };
    Some(Error::TlsRefused { name: name.to_owned(), why })
}

const TOO_OLD: &str =
    "it offers no TLS 1.2 or 1.3, and Polliwog speaks nothing older: update it, or put a proxy in front of it";
const NOTHING_SHARED: &str = "it shares no cipher suite, key exchange or signature with Polliwog (it may have only ciphers without forward \
     secrecy, only CBC, or a key on the curve P-521), or it wants a client certificate: change its TLS settings";
const NO_CLIENT_CERTIFICATE: &str =
    "it wants a client certificate, which Polliwog does not present: permit this path or address without one";

/// Says what an alert means (RFC 8446, section 6.2).
fn alerted(alert: AlertDescription, certified: &str) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::ProtocolVersion => TOO_OLD.to_owned(),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => NOTHING_SHARED.to_owned(),
        Alert::UnrecognisedName => format!(
            "it has no site of the name {certified}: write the name of the site into the URL, or set host_header"
        ),
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => NO_CLIENT_CERTIFICATE.to_owned(),
        Alert::NoApplicationProtocol => {
            "it speaks neither HTTP/1.1 nor, if http2 is set, HTTP/2 there: check the port".to_owned()
        }
        Alert::InternalError => "it reports an internal error: see its log".to_owned(),
        Alert::CloseNotify | Alert::UserCanceled => "it closed the connection: see its log".to_owned(),
        other => format!("it sent the alert {other:?}: see its log"),
    }
}

/// Returns the authority that signed the last certificate of a chain and is not in it. `None` if the chain ends with an
/// authority that signed itself.
fn missing_issuer(chain: &[CertificateDer<'static>]) -> Option<String> {
    let (_, last) = X509Certificate::from_der(chain.last()?).ok()?;
    (last.subject() != last.issuer()).then(|| last.issuer().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_named() {
        for (alert, part) in [
            (AlertDescription::ProtocolVersion, "no TLS 1.2 or 1.3"),
            (AlertDescription::HandshakeFailure, "no cipher suite"),
            (AlertDescription::UnrecognisedName, "no site of the name app.example"),
            (AlertDescription::CertificateRequired, "client certificate"),
            (AlertDescription::UnknownCA, "client certificate"),
            (AlertDescription::DecodeError, "DecodeError"),
        ] {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            let Error::TlsRefused { why, .. } = handshake_error("a:1".to_owned(), "app.example", &error) else {
                panic!("{alert:?}")
            };
            assert!(why.contains(part), "{why}");
        }
        let other = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(handshake_error("a".to_owned(), "a", &other).code(), "tls_failed");
    }
}
