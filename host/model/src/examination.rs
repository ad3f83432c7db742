//! The test of a target, step by step.

use crate::Timestamp;
use std::time::Duration;

/// One step of the test of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestStep {
    /// The name: `name look-up`, `address`, `connect`, `TLS`, `log-in`, `request`, `report` or `dependency`.
    pub name: &'static str,
    /// The object of the step: a host name, an address, a request, a dependency.
    pub subject: String,
    /// The duration; `None` if the step takes no time.
    pub took: Option<Duration>,
    /// The stable code of the error; `None` if the step passed.
    pub code: Option<String>,
    /// The result for users; for an error also the remedy.
    pub text: String,
    /// The certificate of the server, also if it was refused.
    pub certificate: Option<TestedCertificate>,
}

/// The certificate that a server has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedCertificate {
    /// SHA-256 in upper-case hex with colons, as it is written in the configuration.
    pub fingerprint: String,
    /// The subject.
    pub subject: String,
    /// The issuer.
    pub issuer: String,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// The target to test.
#[derive(Clone, Debug)]
pub enum Tested {
    /// A target that is polled, with its id.
    Known(crate::TargetId),
    /// A target that does not exist yet: its id, and its definition as JSON with the keys of a `[[target]]`.
    Defined(crate::TargetId, String),
}
