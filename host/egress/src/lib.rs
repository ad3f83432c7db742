//! Outgoing HTTP, and connections of other protocols to configured servers.
//!
//! Every outgoing request passes through this crate. The host name is resolved once and each address is checked. The
//! connection is made to a checked address. Secrets are inserted into the request and masked in the answer. Every
//! resource has a cap.
//!
//! The crate decides whether a request may be sent, which connection it uses, and which parts of the answer are
//! visible. It does not decide when to send requests or what an answer means.
//!
//! - [`Egress`] is shared by the process: request slots for each host, coalescing, the budget of body bytes.
//! - [`Lane`] is the share of one runtime. It has its own connections.
//! - [`Session`] belongs to one poll. It has a [`Grant`] (origins, TLS, secrets), limits and a deadline.
//!
//! Invariant: connections are made only to addresses that [`address`] allows.
//! Invariant: nothing that a [`Session`] returns depends on the value of an operator's secret, for the encodings that
//! the module `mask` recognises. An origin that knows a secret can still send it back in an unrecognised encoding. A
//! plugin that guesses the first 8 bytes of a secret in one request can see whether the guess is right.
//!
//! # Error codes
//!
//! | code | class | retryable | meaning |
//! |---|---|---|---|
//! | `denied` | denied | no | the request is not allowed: its origin, address or method is not the target's |
//! | `bad_request` | invalid_argument | no | the plugin's request cannot be sent in this form |
//! | `capture_missing` | capture | yes | the answer lacks a value to capture, or the request uses one that an earlier answer lacked |
//! | `capture_refused` | capture | no | the answer contains a value to capture that cannot be a secret |
//! | `capture_too_short` | capture | no | the answer's value to capture has less than 8 bytes, and the operator does not permit that |
//! | `secret_unknown` | invalid_argument | no | the request uses a secret that the target does not have |
//! | `too_many_requests_in_poll` | limit | no | the poll has made the maximum number of requests |
//! | `too_much_sent_in_poll` | limit | no | the poll's requests exceed the maximum total size |
//! | `secret_unusable` | invalid_argument | no | a secret does not have the form that the request needs |
//! | `too_much_searched_in_poll` | limit | no | the patterns of captures, or the texts that end an answer, search too many bytes |
//! | `too_much_signed_in_poll` | limit | no | the poll's signatures exceed the maximum total work |
//! | `dns_not_found` | name_lookup | yes | the host name does not exist |
//! | `dns_failed` | name_lookup | yes | the name lookup failed |
//! | `connect_refused` | connection_refused | yes | nothing listens at the address |
//! | `connect_failed` | unreachable, connection_failed | yes | the address is unreachable, or the connection broke at once |
//! | `tls_fingerprint_mismatch` | certificate | no | the certificate does not have the configured fingerprint |
//! | `tls_untrusted` | certificate | no | no configured authority signed the certificate |
//! | `tls_name_mismatch` | certificate | no | the certificate is for a different name |
//! | `tls_expired` | certificate | no | the certificate has expired or is not valid yet |
//! | `tls_certificate_unusable` | certificate | no | the certificate or its key has a form that cannot be verified |
//! | `tls_refused` | protocol | yes | the server ended the TLS session with an alert, or has no version in common |
//! | `tls_failed` | protocol | yes | the handshake failed for another reason |
//! | `timeout` | timeout | yes | the answer was not complete in time |
//! | `call_over` | call_over | yes | the poll ended before the request's own timeout |
//! | `closed` | closed | yes | the connection ended before the answer did |
//! | `protocol` | protocol | yes | the answer is not HTTP, or a line of its head cannot be read |
//! | `headers_too_large` | other | no | the answer has longer headers than allowed |
//! | `body_too_large` | body_too_large | no | the answer has a longer body than allowed |
//! | `overloaded` | limit | yes | the host holds the maximum number of body bytes |
//! | `host_out_of_means` | limit | yes | the host has no descriptor or memory left for a connection |
//! | `authentication_unsupported` | other | no | the server asks for Digest in a form that the host does not have |
//! | `encoded_body` | other | no | the body has a compression that the host does not decode |
//! | `broken_encoding` | protocol | yes | the compressed body is incomplete or not correct |
//! | `not_recorded` | not_recorded | no | a recording is replayed and does not contain the answer |

#![forbid(unsafe_code)]

pub mod address;
mod answer;
mod authentication;
mod bare_key;
mod body;
mod broken;
mod budget;
mod captures;
mod coalesce;
mod connect;
mod cookie;
mod decoding;
mod dial;
mod ended;
mod error;
mod exchange;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grant;
mod handshake;
mod head;
mod headers;
mod http1;
mod in_flight;
mod mask;
mod maskers;
mod message;
mod peer;
mod plan;
mod pool;
mod private_key;
mod probe;
mod process;
mod reading;
mod recording;
mod references;
mod secrets;
mod session;
mod signatures;
mod signed;
mod tls;

pub use address::{Cidr, Reach};
pub use budget::Gauges;
pub use captures::{Captured, DurableStore, DurableValue};
pub use connect::{Resolve, SystemResolver};
pub use dial::secure;
pub use error::{Error, ErrorClass, Seen};
pub use grant::{Grant, InvalidUrl, Narrowing, Origin, OriginGrant, host_header, requested};
pub use headers::settable_header;
pub use message::{
    Authentication, BodyEncoding, BodyReading, Capture, CaptureSource, Credentials, Exchanged, Method, Request,
    Response, SecretEncoding, Signature, SignatureEncoding, SignaturePart, Timing, is_never_sent, method,
};
pub use peer::{Certificate, TlsSession};
pub use probe::ProbeStep;
pub use process::{Config, Egress, Lane};
pub use recording::{Exchange, Player, RecordedError, RecordedRequest, RecordedResponse, Recorder, Tape};
pub use references::{has_references, reference_problems, with_written_references};
pub use secrets::{InvalidSecret, SecretRules, Secrets};
pub use session::{Limits, Session, Usage};
pub use tls::{Fingerprint, Tls, TlsError};

#[cfg(test)]
mod tests;
