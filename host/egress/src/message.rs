//! Requests and responses.

use crate::Error;
use crate::budget::Held;
use std::ops::RangeInclusive;
use std::time::Duration;

pub use hyper::Method;

/// Parses the method of a request: 1 to 16 upper-case letters. The error is one sentence.
pub fn method(text: &str) -> Result<Method, String> {
    let is_valid = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase());
    let parsed = Method::from_bytes(text.as_bytes()).ok().filter(|_| is_valid);
    parsed.ok_or_else(|| {
        let shown: String = text.chars().take(32).collect();
        format!("{shown:?} is not a method: write 1 to 16 upper-case letters, for example GET")
    })
}

/// Returns whether requests with this method are never sent: they would leave the protection of secrets.
pub fn is_never_sent(method: &Method) -> bool {
    matches!(*method, Method::CONNECT | Method::TRACE)
}

/// Returns whether a request with this method can be sent twice, or once for several callers, without a difference.
pub(crate) fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// How inserted secrets are escaped in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// No escaping.
    Raw,
    /// As in `application/x-www-form-urlencoded`.
    Form,
    /// As inside a JSON string.
    Json,
}

/// How much of an answer's body to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyReading {
    /// All of it.
    Whole,
    /// Nothing.
    None,
    /// The first bytes: 1 to 8,388,608.
    First(usize),
    /// To the end of the first occurrence of one of these texts, or of the body. At most 16, each of 1 to 256 bytes.
    Until(Vec<Vec<u8>>),
}

/// A request of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// A path and query, resolved against the target's URL, or an absolute URL with one of the target's origins.
    pub path: String,
    /// Header names and values. Values may contain references to secrets.
    pub headers: Vec<(String, String)>,
    /// The body. It may contain references to secrets.
    pub body: Option<Vec<u8>>,
    /// How inserted secrets are escaped in the body.
    pub body_encoding: BodyEncoding,
    /// How much of the answer's body to read.
    pub reading: BodyReading,
    /// The parts of the answer to store as secrets.
    pub captures: Vec<Capture>,
    /// The signatures to compute, in this order.
    pub signatures: Vec<Signature>,
    /// The authentication that the host does.
    pub authentication: Option<Authentication>,
    /// The timeout of this request. The deadline of the poll applies as well.
    pub timeout: Option<Duration>,
}

impl Request {
    /// Returns a GET request without headers and body.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            headers: Vec::new(),
            body: None,
            body_encoding: BodyEncoding::Raw,
            reading: BodyReading::Whole,
            captures: Vec::new(),
            signatures: Vec::new(),
            authentication: None,
            timeout: None,
        }
    }
}

impl Request {
    /// Returns the names of the secrets of its signatures and its authentication.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let parts = self.signatures.iter().flat_map(|signature| signature.key.iter().chain(&signature.input));
        let signed = parts.filter_map(|part| match part {
            SignaturePart::Secret(name, _) => Some(name.as_str()),
            _ => None,
        });
        let proof = self.authentication.iter().map(|authentication| match authentication {
            Authentication::Basic(login) | Authentication::Digest(login) => login.password.as_str(),
            Authentication::Bearer(name) => name.as_str(),
        });
        signed.chain(proof)
    }
}

/// A part of an answer to store as a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The name of the secret.
    pub name: String,
    /// The place of the value in the answer.
    pub source: CaptureSource,
    /// The lifetime of the value, at most one week.
    pub ttl: Duration,
    /// The statuses of the answers that have the value. Empty stands for 200 to 299.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Whether an answer with such a status may lack the value.
    pub optional: bool,
    /// Whether the value survives restarts of the host and later versions of the plugin.
    pub durable: bool,
}

impl Capture {
    /// Returns a capture of a value that each answer with a status of 200 to 299 has.
    pub fn new(name: impl Into<String>, source: CaptureSource, ttl: Duration) -> Self {
        Self { name: name.into(), source, ttl, statuses: Vec::new(), optional: false, durable: false }
    }

    /// Returns whether answers with this status have the value.
    pub(crate) fn covers(&self, status: u16) -> bool {
        match self.statuses.as_slice() {
            [] => (200..300).contains(&status),
            statuses => statuses.iter().any(|range| range.contains(&status)),
        }
    }
}

/// The place of a value in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureSource {
    /// The string, number or bool at this JSON pointer (RFC 6901) in a JSON body.
    JsonPointer(String),
    /// The first header with this name. Case is ignored.
    Header(String),
    /// The cookie with this name that the answer sets.
    Cookie(String),
    /// The first group of the first match of this regular expression in the body.
    Pattern(String),
}

impl CaptureSource {
    /// Returns a description of the place for messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::JsonPointer(pointer) => format!("at {pointer:?}"),
            Self::Header(name) => format!("in a header {name:?}"),
            Self::Cookie(name) => format!("in a cookie {name:?}"),
            Self::Pattern(pattern) => format!("by the pattern {pattern:?}"),
        }
    }
}

/// A part of the key or the input of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignaturePart {
    /// Bytes of the plugin.
    Bytes(Vec<u8>),
    /// The body of the request, with its secrets inserted.
    Body,
    /// A whole secret in an encoding.
    Secret(String, SecretEncoding),
    /// The result of an earlier signature of the request.
    Signature(String),
}

/// How a secret becomes bytes of a signature's key or input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, little-endian.
    Utf16Le,
    /// Decoded from base64, standard or URL-safe.
    Base64,
    /// Decoded from base32 (RFC 4648), in upper or lower case. Spaces and hyphens are ignored.
    Base32,
    /// Decoded from hex digits.
    Hex,
}

/// How the result of a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureEncoding {
    /// The bytes, for other signatures only.
    Raw,
    /// Lower-case hex digits.
    Hex,
    /// Base64 with padding.
    Base64,
    /// URL-safe base64 without padding.
    Base64Url,
}

impl SecretEncoding {
    /// Returns its name in a recording.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8",
            Self::Utf16Le => "utf16le",
            Self::Base64 => "base64",
            Self::Base32 => "base32",
            Self::Hex => "hex",
        }
    }
}

impl SignatureEncoding {
    /// Returns its name in a recording.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Hex => "hex",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
        }
    }
}

/// A signature that the host computes for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The NAME in `signature.NAME`.
    pub name: String,
    /// The function, for example `hmac-sha256`.
    pub algorithm: String,
    /// The key: the concatenation of these parts.
    pub key: Vec<SignaturePart>,
    /// The input: the concatenation of these parts.
    pub input: Vec<SignaturePart>,
    /// How the result is written.
    pub encoding: SignatureEncoding,
    /// The number of iterations of PBKDF2.
    pub iterations: Option<u32>,
}

/// A user name, and the name of the secret that is the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user name. It may contain references to secrets.
    pub user: String,
    /// The name of the secret.
    pub password: String,
}

/// An authentication that the host does (RFC 7617, RFC 7616, RFC 6750).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// Basic.
    Basic(Credentials),
    /// Digest.
    Digest(Credentials),
    /// Bearer, with the name of the secret.
    Bearer(String),
}

/// The duration of each phase in milliseconds. A phase that a reused connection skips is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// The name lookup.
    pub dns_ms: f64,
    /// The TCP connect.
    pub connect_ms: f64,
    /// The TLS handshake.
    pub tls_ms: f64,
    /// From the start of the request to the first byte of the answer.
    pub first_byte_ms: f64,
    /// From the start of the request to the last byte of the answer.
    pub total_ms: f64,
}

impl Timing {
    /// Adds the duration of each phase of another exchange.
    pub(crate) fn add(&mut self, other: &Self) {
        self.dns_ms += other.dns_ms;
        self.connect_ms += other.connect_ms;
        self.tls_ms += other.tls_ms;
        self.first_byte_ms += other.first_byte_ms;
        self.total_ms += other.total_ms;
    }
}

/// An answer with every secret masked. Its body counts in the budget of body bytes until the drop.
#[derive(Debug)]
pub struct Response {
    /// The number of the exchange in its session, from 0.
    pub exchange: u32,
    /// The HTTP status, any three digits.
    pub status: u16,
    /// The HTTP/1 reason phrase, or the canonical phrase of the status. It may be empty.
    pub reason: String,
    /// Header names and values. Bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The masked body.
    pub body: Vec<u8>,
    /// Whether the body was read to its end.
    pub is_complete: bool,
    /// The duration of each phase.
    pub timing: Timing,
    /// The budget share of the body.
    pub(crate) _held: Option<Held>,
}

/// A request that ended.
#[derive(Debug)]
pub struct Exchanged {
    /// The number of the exchange in its session, from 0. `None` if no request was sent.
    pub number: Option<u32>,
    /// The status of the answer. `None` if no answer began.
    pub status: Option<u16>,
    /// The answer.
    pub result: Result<Response, Error>,
}
