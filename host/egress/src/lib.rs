//! The only way out.
//!
//! Every request that leaves the process goes through here: the address is resolved once and checked, the connection is
//! made to an address that was checked, secrets are filled in on the way out and masked on the way back, and everything
//! has a cap. What this room decides: whether a request may leave, on which connection, and what of its answer is seen.
//! What it leaves out: when to ask, and what an answer means.
//!
//! - [`Egress`] is shared by the process: request slots for each host, coalescing, the budget of body bytes.
//! - [`Lane`] is a runtime's share of it, with connections of its own.
//! - [`Session`] is one poll's: a [`Grant`] (origins, TLS, secrets), limits, a deadline.
//!
//! Invariant: no connection is made to an address that [`address`] has not allowed.
//! Invariant: nothing that a [`Session`] returns depends on the value of an operator's secret, as far as the forms go that
//! the module `mask` names. (An origin that knows a secret can still send it back in a form that is not recognised, and
//! whoever guesses the first 8 bytes of a secret at once can see that.)
//!
//! # Error codes
//!
//! | code | retryable | what it means |
//! |---|---|---|
//! | `denied` | no | the request may not leave: origin, address or method is not the target's |
//! | `bad_request` | no | the plugin's request cannot be sent as it is |
//! | `capture_missing` | yes | the request names a secret that an answer before it was to hold, and did not |
//! | `capture_refused` | no | the answer holds a value to be captured that can be no secret |
//! | `secret_unknown` | no | the request names a secret that the target does not have |
//! | `too_many_requests_in_poll` | no | the poll has used up its requests |
//! | `too_much_sent_in_poll` | no | the poll's requests are longer than a poll's may be |
//! | `dns_not_found` | yes | nobody knows the host name |
//! | `dns_failed` | yes | the name could not be looked up |
//! | `connect_refused` | yes | nothing listens there |
//! | `connect_failed` | yes | no way there, or the connection broke while it was made |
//! | `tls_fingerprint_mismatch` | no | another certificate than the configured one |
//! | `tls_untrusted` | no | a certificate that no configured authority signed |
//! | `tls_name_mismatch` | no | a certificate for another name |
//! | `tls_expired` | no | a certificate whose time is over, or has not begun |
//! | `tls_certificate_version` | no | an X.509 version 1 certificate |
//! | `tls_failed` | yes | the handshake failed otherwise |
//! | `timeout` | yes | no whole answer in time |
//! | `poll_over` | yes | the poll's time was over before the time that the request was given |
//! | `closed` | yes | the connection ended before the answer did |
//! | `protocol` | yes | what came back is no HTTP |
//! | `headers_too_large` | no | more or longer headers than allowed |
//! | `body_too_large` | no | a longer body than allowed |
//! | `overloaded` | yes | the host holds as many bytes of answers as it may |
//! | `host_out_of_means` | yes | the host has no descriptor or memory left for a connection |
//! | `encoded_body` | no | a compressed body, which nobody asked for |
//! | `not_recorded` | no | a recording is replayed, and does not have the answer |

#![forbid(unsafe_code)]

pub mod address;
mod budget;
mod captures;
mod coalesce;
mod connect;
mod error;
mod exchange;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grant;
mod mask;
mod message;
mod patience;
mod pool;
mod recording;
mod secrets;
mod session;
mod tls;

pub use address::{Cidr, Reach};
pub use budget::Gauges;
pub use captures::Captured;
pub use connect::{Resolve, SystemResolver};
pub use error::Error;
pub use grant::{Grant, InvalidUrl, Narrowing, Origin, OriginGrant, host_header, requested};
pub use message::{BodyEncoding, Capture, CaptureSource, Method, Request, Response, Timing};
pub use recording::{Exchange, Player, RecordedError, RecordedRequest, RecordedResponse, RecordedTls, Recorder, Tape};
pub use secrets::{InvalidSecret, Secrets};
pub use session::{Config, Egress, Lane, Limits, Session, Usage};
pub use tls::{Certificate, Fingerprint, Tls, TlsError};

#[cfg(test)]
mod tests;
