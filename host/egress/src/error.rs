//! The errors of a request. Each message says how to solve the problem.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The reason why a request has no answer. The text is one sentence for users, [`Error::code`] is for programs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each variant documents it")]
pub enum Error {
    #[error("{what}: {why}")]
    Denied { what: String, why: &'static str },
    #[error("the plugin's request cannot be sent: {0}")]
    BadRequest(String),
    #[error("the request uses the secret {0:?}, which this target does not have: add it to the target's secrets")]
    SecretUnknown(String),
    #[error("the request uses the captured secret {name:?}, but the earlier request {why}")]
    CaptureMissing { name: String, why: String },
    #[error("the answer's value for the captured secret {name:?} cannot be stored: {why}")]
    CaptureRefused { name: String, why: String },
    #[error(
        "the answer's value for the captured secret {name:?} has less than 8 bytes, too short to be masked in other \
         answers: if that may be, set short_captures = true for this target"
    )]
    CaptureTooShort { name: String },
    #[error("the answer has no value for the captured secret {name:?}: it {why}")]
    CaptureNotFound { name: String, why: String },
    #[error("the server asks for Digest authentication in a form that Polliwog does not have: {0}")]
    Challenge(String),
    #[error(
        "the poll's signatures take more work than one poll may: use fewer iterations, shorter inputs or fewer requests"
    )]
    TooMuchSigned,
    #[error(
        "the patterns of captures, or the texts that end an answer, search more than {limit} bytes: use fewer, or shorter answers"
    )]
    TooMuchSearched { limit: usize },
    #[error("the request cannot use the secret {name:?}: {why}")]
    SecretUnusable { name: String, why: String },
    #[error("the poll has already made {0} requests, which is the limit")]
    TooManyRequests(u32),
    #[error("the poll's requests exceed the limit of {limit} bytes in total")]
    TooMuchSent { limit: usize },
    #[error("the host name {0} does not exist: check its spelling and the DNS server")]
    DnsNotFound(String),
    #[error("the lookup of the host name {name} failed ({why}): check the DNS server")]
    DnsFailed { name: String, why: String },
    #[error("nothing listens at {0}: check the port and whether the service runs")]
    ConnectRefused(String),
    #[error("no connection to {address} ({why}): check the network and any firewall")]
    ConnectFailed { address: String, why: String, unreachable: bool },
    #[error(
        "the certificate of {name} has the fingerprint {found}, expected {expected}: the connection may \
         be intercepted; write the new fingerprint into the target's tls only if the server itself shows it"
    )]
    FingerprintMismatch { name: String, found: String, expected: String },
    #[error(
        "the certificate of {name} is not signed by an authority that is trusted here: add the CA as tls.ca_file, or \
         check the fingerprint on the server and set tls.fingerprint = \"{found}\""
    )]
    Untrusted { name: String, found: String },
    #[error(
        "the certificate is not for the name {name}: use a name that is in the certificate, or set tls.fingerprint = \"{found}\""
    )]
    NameMismatch { name: String, found: String },
    #[error("the certificate of {name} is not valid now ({why}): renew it and check the clocks of both machines")]
    Expired { name: String, why: &'static str },
    #[error(
        "the certificate of {name} is signed by {issuer:?}, which is not trusted here, and whose certificate the server does \
         not send: if it is an intermediate authority, have the server send its whole chain; if it is your own, add it as \
         tls.ca_file, or check the fingerprint on the server and set tls.fingerprint = \"{found}\""
    )]
    IssuerMissing { name: String, issuer: String, found: String },
    #[error(
        "the certificate of {name} cannot be verified ({why}): create a new one, or check the fingerprint on the server and \
         set tls.fingerprint = \"{found}\""
    )]
    CertificateUnusable { name: String, why: String, found: String },
    #[error(
        "the handshake with {name} cannot be verified by the key of its certificate ({why}): create a new key and \
         certificate, or set tls.insecure = true if the network may be trusted"
    )]
    KeyUnusable { name: String, why: String },
    #[error("{name} ended the TLS session: {why}")]
    TlsRefused { name: String, why: String },
    #[error("the TLS handshake with {name} failed ({why}): check that the port speaks TLS")]
    TlsFailed { name: String, why: String },
    #[error("no whole answer within {:.1} s; the request timed out while {phase}", .after.as_secs_f64())]
    Timeout { after: Duration, phase: &'static str },
    #[error("the poll ended {:.1} s after the start of this request, while {phase}", .after.as_secs_f64())]
    CallOver { after: Duration, phase: &'static str },
    #[error("{0} closed the connection before its answer was complete")]
    Closed(String),
    #[error("{name} sent an answer that is not HTTP ({why}): check the port and whether it needs https")]
    Protocol { name: String, why: String },
    #[error("{name} sent an answer that is not HTTP: {why}")]
    UnreadableHead { name: String, why: String },
    #[error("the answer's headers exceed the limit of {limit} bytes")]
    HeadersTooLarge { limit: usize },
    #[error("the answer's body is longer than the {limit} bytes that this poll may still read")]
    BodyTooLarge { limit: usize },
    #[error(
        "the host already holds the maximum of {limit} bytes of answers: raise egress.max_body_bytes_in_flight or poll \
         fewer targets at once"
    )]
    Overloaded { limit: usize },
    #[error("this host has run out of {0}: raise its limit or poll fewer targets at once")]
    OutOfMeans(&'static str),
    #[error(
        "the answer's body is compressed ({0}), which the request did not ask for and Polliwog does not decode: disable it \
         for this path, or use gzip alone"
    )]
    EncodedBody(String),
    #[error("the answer's compressed body cannot be decoded: {0}")]
    BrokenEncoding(String),
    #[error("the recording does not contain {0}: record it again")]
    NotRecorded(String),
    #[error("{message}")]
    Recorded { status: Option<u16>, class: ErrorClass, code: String, message: String, retryable: bool },
}

/// The kind of an error, for decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The rules of the host or the operator do not permit it. It was not sent.
    Denied,
    /// It is a mistake of the plugin. It was not sent.
    InvalidArgument,
    /// The lookup of the host name failed.
    NameLookup,
    /// Nothing listens at the address.
    ConnectionRefused,
    /// The network reports that the address cannot be reached.
    Unreachable,
    /// The connection failed for another reason.
    ConnectionFailed,
    /// The certificate is not accepted.
    Certificate,
    /// The server does not speak TLS or HTTP, or not correctly.
    Protocol,
    /// The server closed the connection before its answer was complete.
    Closed,
    /// The request timed out.
    Timeout,
    /// The poll's time ended before the request's.
    CallOver,
    /// The answer's body is longer than the limit.
    BodyTooLarge,
    /// A value to capture was not found, or cannot be a secret.
    Capture,
    /// A limit of the poll or of this host is reached.
    Limit,
    /// A recording is replayed and does not contain the answer.
    NotRecorded,
    /// Any other error.
    #[default]
    Other,
}

impl Error {
    /// Returns the stable error code. The crate documentation lists all codes.
    pub const fn code(&self) -> &str {
        match self {
            Self::NotRecorded(_) => "not_recorded",
            Self::Recorded { code, .. } => code.as_str(),
            Self::Denied { .. } => "denied",
            Self::BadRequest(_) => "bad_request",
            Self::SecretUnknown(_) => "secret_unknown",
            Self::CaptureMissing { .. } => "capture_missing",
            Self::CaptureRefused { .. } => "capture_refused",
            Self::CaptureNotFound { .. } => "capture_missing",
            Self::CaptureTooShort { .. } => "capture_too_short",
            Self::Challenge(_) => "authentication_unsupported",
            Self::TooMuchSigned => "too_much_signed_in_poll",
            Self::TooMuchSearched { .. } => "too_much_searched_in_poll",
            Self::SecretUnusable { .. } => "secret_unusable",
            Self::TooManyRequests(_) => "too_many_requests_in_poll",
            Self::TooMuchSent { .. } => "too_much_sent_in_poll",
            Self::DnsNotFound(_) => "dns_not_found",
            Self::DnsFailed { .. } => "dns_failed",
            Self::ConnectRefused(_) => "connect_refused",
            Self::ConnectFailed { .. } => "connect_failed",
            Self::FingerprintMismatch { .. } => "tls_fingerprint_mismatch",
            Self::Untrusted { .. } => "tls_untrusted",
            Self::NameMismatch { .. } => "tls_name_mismatch",
            Self::Expired { .. } => "tls_expired",
            Self::IssuerMissing { .. } => "tls_untrusted",
            Self::CertificateUnusable { .. } | Self::KeyUnusable { .. } => "tls_certificate_unusable",
            Self::TlsRefused { .. } => "tls_refused",
            Self::TlsFailed { .. } => "tls_failed",
            Self::Timeout { .. } => "timeout",
            Self::CallOver { .. } => "call_over",
            Self::Closed(_) => "closed",
            Self::Protocol { .. } | Self::UnreadableHead { .. } => "protocol",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::Overloaded { .. } => "overloaded",
            Self::OutOfMeans(_) => "host_out_of_means",
            Self::EncodedBody(_) => "encoded_body",
            Self::BrokenEncoding(_) => "broken_encoding",
        }
    }

    /// Returns the kind of the error.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Denied { .. } => ErrorClass::Denied,
            Self::BadRequest(_) | Self::SecretUnknown(_) | Self::SecretUnusable { .. } => ErrorClass::InvalidArgument,
            Self::DnsNotFound(_) | Self::DnsFailed { .. } => ErrorClass::NameLookup,
            Self::ConnectRefused(_) => ErrorClass::ConnectionRefused,
            Self::ConnectFailed { unreachable: true, .. } => ErrorClass::Unreachable,
            Self::ConnectFailed { .. } => ErrorClass::ConnectionFailed,
            Self::FingerprintMismatch { .. }
            | Self::Untrusted { .. }
            | Self::NameMismatch { .. }
            | Self::Expired { .. }
            | Self::IssuerMissing { .. }
            | Self::CertificateUnusable { .. }
            | Self::KeyUnusable { .. } => ErrorClass::Certificate,
            Self::TlsFailed { .. }
            | Self::TlsRefused { .. }
            | Self::Protocol { .. }
            | Self::UnreadableHead { .. }
            | Self::BrokenEncoding(_) => ErrorClass::Protocol,
            Self::Closed(_) => ErrorClass::Closed,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::CallOver { .. } => ErrorClass::CallOver,
            Self::BodyTooLarge { .. } => ErrorClass::BodyTooLarge,
            Self::NotRecorded(_) => ErrorClass::NotRecorded,
            Self::Recorded { class, .. } => *class,
            Self::CaptureMissing { .. }
            | Self::CaptureRefused { .. }
            | Self::CaptureNotFound { .. }
            | Self::CaptureTooShort { .. } => ErrorClass::Capture,
            Self::TooManyRequests(_)
            | Self::TooMuchSent { .. }
            | Self::TooMuchSigned
            | Self::TooMuchSearched { .. }
            | Self::Overloaded { .. }
            | Self::OutOfMeans(_) => ErrorClass::Limit,
            Self::HeadersTooLarge { .. } | Self::EncodedBody(_) | Self::Challenge(_) => ErrorClass::Other,
        }
    }

    /// Returns whether this host lacks a resource. Such an error says nothing about the target.
    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self, Self::Overloaded { .. } | Self::OutOfMeans(_))
    }

    /// Returns whether a retry may succeed.
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::DnsNotFound(_)
                | Self::DnsFailed { .. }
                | Self::ConnectRefused(_)
                | Self::ConnectFailed { .. }
                | Self::TlsFailed { .. }
                | Self::TlsRefused { .. }
                | Self::Timeout { .. }
                | Self::CallOver { .. }
                | Self::Closed(_)
                | Self::Protocol { .. }
                | Self::UnreadableHead { .. }
                | Self::BrokenEncoding(_)
                | Self::CaptureMissing { .. }
                | Self::CaptureNotFound { .. }
                | Self::Overloaded { .. }
                | Self::OutOfMeans(_)
                | Self::Recorded { retryable: true, .. }
        )
    }
}

/// Returns the text of an error in lower case, without the suffix "(os error N)".
pub(crate) fn without_os_number(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// How the finished requests of a poll ended: the set of their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(u32);

impl Seen {
    const ANSWER: Self = Self(1 << 31);

    pub(crate) fn of<T>(result: &Result<T, Error>) -> Self {
        result.as_ref().err().map_or(Self::ANSWER, |error| Self::class(error.class()))
    }

    const fn class(class: ErrorClass) -> Self {
        Self(1 << class as u8)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns whether a request was answered, with whatever status.
    pub const fn has_answer(self) -> bool {
        self.0 & Self::ANSWER.0 != 0
    }

    /// Returns whether a request failed with an error of this class.
    pub const fn has(self, class: ErrorClass) -> bool {
        self.0 & Self::class(class).0 != 0
    }

    /// Returns whether requests failed, all of them before a connection was established: no server has seen one.
    pub const fn is_unsent(self) -> bool {
        const BEFORE_SENDING: u32 = Seen::class(ErrorClass::Denied).0
            | Seen::class(ErrorClass::NameLookup).0
            | Seen::class(ErrorClass::ConnectionRefused).0
            | Seen::class(ErrorClass::Unreachable).0
            | Seen::class(ErrorClass::ConnectionFailed).0
            | Seen::class(ErrorClass::Certificate).0;
        self.0 != 0 && self.0 & !BEFORE_SENDING == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_before_a_connection_was_established_is_unsent() {
        use ErrorClass::{Certificate, Closed, ConnectionRefused, NameLookup, Protocol, Timeout};
        let seen = |classes: &[ErrorClass]| {
            Seen::from_bits(classes.iter().fold(0, |bits, class| bits | Seen::class(*class).bits()))
        };
        for (classes, is_unsent) in [
            (&[][..], false),
            (&[ConnectionRefused], true),
            (&[NameLookup, Certificate], true),
            (&[Timeout], false),
            (&[Closed], false),
            (&[ConnectionRefused, Protocol], false),
        ] {
            assert_eq!(seen(classes).is_unsent(), is_unsent, "{classes:?}");
        }
        let answered = Seen::from_bits(seen(&[ConnectionRefused]).bits() | Seen::ANSWER.bits());
        assert!(!answered.is_unsent());
    }
}
