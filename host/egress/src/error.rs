//! What can go wrong with a request, in words that a person can act on.

use std::time::Duration;

/// Why there is no answer. Its text is one sentence for a person; [`Error::code`] is for programs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant's text says what it is")]
pub enum Error {
    #[error("{what}: {why}")]
    Denied { what: String, why: &'static str },
    #[error("the plugin's request cannot be sent: {0}")]
    BadRequest(String),
    #[error("the request names the secret {0:?}, which this target does not have: add it to the target's secrets")]
    SecretUnknown(String),
    #[error("the request names the secret {name:?}, which was to be captured from a request before it, {why}")]
    CaptureMissing { name: String, why: String },
    #[error("the answer's value for the captured secret {name:?} cannot be kept: {why}")]
    CaptureRefused { name: String, why: String },
    #[error("the poll has already made {0} requests, which is its limit")]
    TooManyRequests(u32),
    #[error("the poll's requests are longer than {limit} bytes in all, which is its limit")]
    TooMuchSent { limit: usize },
    #[error("the host name {0} does not exist: check its spelling and the DNS server")]
    DnsNotFound(String),
    #[error("the host name {name} could not be looked up ({why}): check the DNS server")]
    DnsFailed { name: String, why: String },
    #[error("nothing listens at {0}: check the port, and that the service runs")]
    ConnectRefused(String),
    #[error("no connection to {address} ({why}): check the network and any firewall between")]
    ConnectFailed { address: String, why: String },
    #[error(
        "the certificate of {name} has the fingerprint {found}, expected {expected}: somebody may stand \
         between; only when the server itself shows the new one, write it into the target's tls"
    )]
    FingerprintMismatch { name: String, found: String, expected: String },
    #[error(
        "the certificate of {name} is not signed by an authority that is trusted here: add the CA as tls.ca_file, or, \
         once you have checked it on the server, tls.fingerprint = \"{found}\""
    )]
    Untrusted { name: String, found: String },
    #[error(
        "the certificate is not for the name {name}: use a name that is in it, or pin tls.fingerprint = \"{found}\""
    )]
    NameMismatch { name: String, found: String },
    #[error("the certificate of {name} is not valid today ({why}): renew it, and check both clocks")]
    Expired { name: String, why: &'static str },
    #[error("the certificate of {name} is of X.509 version 1, which cannot be verified: make a version 3 certificate")]
    CertificateVersion { name: String },
    #[error("the TLS handshake with {name} failed ({why}): check that the port speaks TLS")]
    TlsFailed { name: String, why: String },
    #[error("no whole answer within {:.1} s; it ended while {phase}", .after.as_secs_f64())]
    Timeout { after: Duration, phase: &'static str },
    #[error("the poll's time was over after {:.1} s of this request; it ended while {phase}", .after.as_secs_f64())]
    PollOver { after: Duration, phase: &'static str },
    #[error("{0} closed the connection before its answer was complete")]
    Closed(String),
    #[error("{name} sent something that is no HTTP ({why}): check the port, and whether it wants https")]
    Protocol { name: String, why: String },
    #[error("the answer's headers are more or longer than allowed ({limit} bytes, {count} headers)")]
    HeadersTooLarge { limit: usize, count: usize },
    #[error("the answer's body is longer than the {limit} bytes that this poll may still read")]
    BodyTooLarge { limit: usize },
    #[error(
        "the host already holds as many bytes of answers as it may ({limit}): raise egress.max_body_bytes_in_flight, or \
         poll less at once"
    )]
    Overloaded { limit: usize },
    #[error("this host is out of {0}: raise its limit, or poll less at once")]
    OutOfMeans(&'static str),
    #[error("the answer's body is compressed ({0}) although nobody asked for that: turn it off for this path")]
    EncodedBody(String),
    #[error("the recording holds no {0}: record it anew")]
    NotRecorded(String),
    #[error("{message}")]
    Recorded { code: String, message: String, retryable: bool },
}

impl Error {
    /// The stable code; the crate's documentation lists them all.
    pub const fn code(&self) -> &str {
        match self {
            Self::NotRecorded(_) => "not_recorded",
            Self::Recorded { code, .. } => code.as_str(),
            Self::Denied { .. } => "denied",
            Self::BadRequest(_) => "bad_request",
            Self::SecretUnknown(_) => "secret_unknown",
            Self::CaptureMissing { .. } => "capture_missing",
            Self::CaptureRefused { .. } => "capture_refused",
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
            Self::CertificateVersion { .. } => "tls_certificate_version",
            Self::TlsFailed { .. } => "tls_failed",
            Self::Timeout { .. } => "timeout",
            Self::PollOver { .. } => "poll_over",
            Self::Closed(_) => "closed",
            Self::Protocol { .. } => "protocol",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::Overloaded { .. } => "overloaded",
            Self::OutOfMeans(_) => "host_out_of_means",
            Self::EncodedBody(_) => "encoded_body",
        }
    }

    /// Whether it was this host that could not, and not the target.
    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self, Self::Overloaded { .. } | Self::OutOfMeans(_))
    }

    /// Whether another try may help.
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::DnsNotFound(_)
                | Self::DnsFailed { .. }
                | Self::ConnectRefused(_)
                | Self::ConnectFailed { .. }
                | Self::TlsFailed { .. }
                | Self::Timeout { .. }
                | Self::PollOver { .. }
                | Self::Closed(_)
                | Self::Protocol { .. }
                | Self::CaptureMissing { .. }
                | Self::Overloaded { .. }
                | Self::OutOfMeans(_)
                | Self::Recorded { retryable: true, .. }
        )
    }
}
