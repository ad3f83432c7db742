//! Requests and responses.

use crate::budget::Held;
use crate::tls::Certificate;
use std::time::Duration;

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of HTTP")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 7] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options];

    pub(crate) fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }

    /// Returns the name of the method in HTTP, in upper case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }

    pub(crate) fn to_http(self) -> hyper::Method {
        match self {
            Self::Get => hyper::Method::GET,
            Self::Head => hyper::Method::HEAD,
            Self::Post => hyper::Method::POST,
            Self::Put => hyper::Method::PUT,
            Self::Patch => hyper::Method::PATCH,
            Self::Delete => hyper::Method::DELETE,
            Self::Options => hyper::Method::OPTIONS,
        }
    }
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
    /// The parts of the answer to store as secrets.
    pub captures: Vec<Capture>,
    /// The timeout of this request. The deadline of the poll applies as well.
    pub timeout: Option<Duration>,
}

impl Request {
    /// Returns a GET request without headers and body.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::Get,
            path: path.into(),
            headers: Vec::new(),
            body: None,
            body_encoding: BodyEncoding::Raw,
            captures: Vec::new(),
            timeout: None,
        }
    }
}

/// A part of a 2xx answer to store as a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The name of the secret, for use in `${secret.NAME}`.
    pub name: String,
    /// The place of the value in the answer.
    pub source: CaptureSource,
    /// The lifetime of the value, at most one day.
    pub ttl: Duration,
}

/// The place of a value in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureSource {
    /// The string at this JSON pointer (RFC 6901) in a JSON body.
    JsonPointer(String),
    /// The first header with this name. Case is ignored.
    Header(String),
    /// The cookie with this name that the answer sets.
    Cookie(String),
}

impl CaptureSource {
    /// Returns a description of the place for messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::JsonPointer(pointer) => format!("at {pointer:?}"),
            Self::Header(name) => format!("in a header {name:?}"),
            Self::Cookie(name) => format!("in a cookie {name:?}"),
        }
    }
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
    /// The HTTP status, any three digits.
    pub status: u16,
    /// The HTTP/1 reason phrase, or the canonical phrase of the status. It may be empty.
    pub reason: String,
    /// Header names and values. Bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The masked body.
    pub body: Vec<u8>,
    /// The duration of each phase.
    pub timing: Timing,
    /// The server's certificate. `None` without TLS.
    pub tls: Option<Certificate>,
    /// The budget share of the body.
    pub(crate) _held: Option<Held>,
}
