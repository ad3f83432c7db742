//! The format of recordings.

use crate::bindings::polliwog::plugin::http as contract;
use crate::http::{Certificate, TlsSession};
use crate::{Endpoint, Label};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::{Header, HttpErrorClass, Timing};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Recorded exchanges, and the target of the recorded poll.
///
/// ```
/// # use polliwog_sdk::testing::Recording;
/// let recording = Recording::of_body(r#"{"mail": 12}"#);
/// assert_eq!(recording.target().url, "http://127.0.0.1:8080/");
/// ```
#[derive(Clone, Debug)]
pub struct Recording {
    exchanges: Vec<Exchange>,
    /// Further polls of the target.
    later: Vec<LaterPoll>,
    /// `None` if the recording does not contain its target.
    target: Option<RecordedTarget>,
}

/// The contents of a recording's file.
#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Exchanges(Vec<Exchange>),
    Whole(Box<Whole>),
}

/// The format of `polliwog poll --record`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[expect(dead_code, reason = "for information")]
    kind: String,
    #[expect(dead_code, reason = "for information")]
    #[serde(default)]
    event: Option<String>,
    target: RecordedTarget,
    exchanges: Vec<Exchange>,
    #[serde(default)]
    later: Vec<LaterPoll>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaterPoll {
    now: i64,
    exchanges: Vec<Exchange>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordedTarget {
    url: String,
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    settings: serde_json::Value,
    #[serde(default)]
    secrets: Vec<String>,
    now: i64,
    timeout_ms: u32,
    #[expect(dead_code, reason = "for information")]
    #[serde(default)]
    time_zone: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub request: RecordedRequest,
    pub response: Option<RecordedResponse>,
    pub error: Option<RecordedError>,
    pub tls: Option<RecordedTls>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedRequest {
    pub method: String,
    pub url: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for information")]
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "for information")]
    signatures: Vec<serde_json::Value>,
    #[expect(dead_code, reason = "for information")]
    authentication: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RecordedResponse {
    pub status: u16,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    body_base64: Option<String>,
    #[serde(default = "yes")]
    pub body_complete: bool,
    #[serde(default)]
    pub total_ms: f64,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RecordedTls {
    protocol: Option<String>,
    cipher: Option<String>,
    alpn: Option<String>,
    server_name: String,
    chain: Vec<RecordedCertificate>,
    problem: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RecordedCertificate {
    fingerprint: String,
    subject: String,
    issuer: String,
    serial: String,
    not_before: i64,
    not_after: i64,
    names: Vec<String>,
    key: String,
    signature_algorithm: String,
    is_authority: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedError {
    pub status: Option<u16>,
    #[serde(default)]
    pub class: RecordedClass,
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

/// The names of the classes in a file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedClass {
    Denied,
    InvalidArgument,
    NameLookup,
    ConnectionRefused,
    Unreachable,
    ConnectionFailed,
    Certificate,
    Protocol,
    Closed,
    Timeout,
    CallOver,
    BodyTooLarge,
    Capture,
    Limit,
    /// A recording of a replay.
    NotRecorded,
    #[default]
    Other,
}

impl From<RecordedClass> for HttpErrorClass {
    fn from(class: RecordedClass) -> Self {
        match class {
            RecordedClass::Denied => Self::Denied,
            RecordedClass::InvalidArgument => Self::InvalidArgument,
            RecordedClass::NameLookup => Self::NameLookup,
            RecordedClass::ConnectionRefused => Self::ConnectionRefused,
            RecordedClass::Unreachable => Self::Unreachable,
            RecordedClass::ConnectionFailed => Self::ConnectionFailed,
            RecordedClass::Certificate => Self::Certificate,
            RecordedClass::Protocol => Self::Protocol,
            RecordedClass::Closed => Self::Closed,
            RecordedClass::Timeout => Self::Timeout,
            RecordedClass::CallOver => Self::CallOver,
            RecordedClass::BodyTooLarge => Self::BodyTooLarge,
            RecordedClass::Capture => Self::Capture,
            RecordedClass::Limit => Self::Limit,
            RecordedClass::NotRecorded | RecordedClass::Other => Self::Other,
        }
    }
}

impl Recording {
    /// Parses a recording.
    ///
    /// # Panics
    /// Panics if the text is not a recording, because this is for tests.
    pub fn parse(text: &str) -> Self {
        let (exchanges, later, target) = match serde_json::from_str(text) {
            Ok(File::Exchanges(exchanges)) => (exchanges, Vec::new(), None),
            Ok(File::Whole(whole)) => (whole.exchanges, whole.later, Some(whole.target)),
            Err(error) => panic!("this is not a recording: {error}"),
        };
        for exchange in exchanges.iter().chain(later.iter().flat_map(|poll| &poll.exchanges)) {
            let one = exchange.response.is_some() != exchange.error.is_some();
            assert!(one, "{}: an exchange must have either a response or an error", exchange.request.url);
        }
        Self { exchanges, later, target }
    }

    /// Returns a recording of each poll, in order (`polliwog poll --record FILE --polls N`). Poll them one after the
    /// other in the same thread: captured secrets, the cache and the store are those of the poll before.
    pub fn polls(&self) -> Vec<Self> {
        let first = Self { later: Vec::new(), ..self.clone() };
        let later = self.later.iter().map(|poll| {
            let target = self.target.clone().map(|target| RecordedTarget { now: poll.now, ..target });
            Self { exchanges: poll.exchanges.clone(), later: Vec::new(), target }
        });
        [first].into_iter().chain(later).collect()
    }

    /// Returns the target of the recorded poll, or [`target`] if the recording does not contain one.
    pub fn target(&self) -> Endpoint {
        let plain = target("{}");
        let Some(recorded) = self.target.clone() else { return plain };
        let settings = if recorded.settings.is_null() { plain.settings } else { recorded.settings.to_string() };
        let labels = recorded.labels.into_iter().map(|(name, value)| Label { name, value }).collect();
        Endpoint {
            url: recorded.url,
            also: recorded.also,
            labels,
            settings,
            secrets: recorded.secrets,
            timeout_ms: recorded.timeout_ms,
            ..plain
        }
    }

    /// Returns the time of the recorded poll.
    pub(super) fn now(&self) -> Option<i64> {
        self.target.as_ref().map(|target| target.now)
    }

    pub(super) fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Creates a recording of one GET request to the target's URL, answered with status 200 and this body.
    pub fn of_body(body: impl AsRef<[u8]>) -> Self {
        let exchange = Exchange {
            request: RecordedRequest {
                method: "GET".to_owned(),
                url: String::new(),
                headers: Vec::new(),
                body: None,
                signatures: Vec::new(),
                authentication: None,
            },
            response: Some(RecordedResponse {
                status: 200,
                reason: "OK".to_owned(),
                headers: Vec::new(),
                body: None,
                body_base64: Some(STANDARD.encode(body)),
                body_complete: true,
                total_ms: 1.0,
            }),
            error: None,
            tls: None,
        };
        Self { exchanges: vec![exchange], later: Vec::new(), target: None }
    }
}

impl From<RecordedResponse> for contract::Response {
    fn from(response: RecordedResponse) -> Self {
        let body = match (response.body, response.body_base64) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_else(|error| panic!("bodyBase64: {error}")),
            (None, None) => Vec::new(),
        };
        let total_ms = response.total_ms;
        Self {
            exchange: 0,
            status: response.status,
            reason: response.reason,
            headers: response.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
            body,
            body_complete: response.body_complete,
            timing: Timing { dns_ms: 0.0, connect_ms: 0.0, tls_ms: 0.0, first_byte_ms: total_ms, total_ms },
        }
    }
}

impl From<RecordedTls> for TlsSession {
    fn from(tls: RecordedTls) -> Self {
        let RecordedTls { protocol, cipher, alpn, server_name, chain, problem } = tls;
        let certificate = |certificate: RecordedCertificate| Certificate {
            fingerprint: certificate.fingerprint,
            subject: certificate.subject,
            issuer: certificate.issuer,
            serial: certificate.serial,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            names: certificate.names,
            key: certificate.key,
            signature_algorithm: certificate.signature_algorithm,
            is_authority: certificate.is_authority,
        };
        let chain = chain.into_iter().map(certificate).collect();
        Self { protocol, cipher, alpn, server_name, chain, problem }
    }
}

/// Creates a target with these settings (JSON text) and the URL `http://127.0.0.1:8080/`.
pub fn target(settings: &str) -> Endpoint {
    Endpoint {
        id: "test".to_owned(),
        name: "Test".to_owned(),
        url: "http://127.0.0.1:8080/".to_owned(),
        also: Vec::new(),
        labels: Vec::new(),
        settings: settings.to_owned(),
        secrets: Vec::new(),
        timeout_ms: 10_000,
        extra: Vec::new(),
    }
}
