//! What is asked, and what is answered.

use crate::budget::Held;
use crate::tls::Certificate;
use std::time::Duration;

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the words of HTTP")]
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
    /// Every method.
    pub const ALL: [Self; 7] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options];

    pub(crate) fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }

    /// The word of HTTP for it.
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

/// How secrets are escaped inside a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// Not at all.
    Raw,
    /// As in `application/x-www-form-urlencoded`.
    Form,
    /// As inside a JSON string.
    Json,
}

/// What a plugin asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// A path and query, resolved against the target's URL, or an absolute URL with one of the target's origins.
    pub path: String,
    /// Names and values; the values may name secrets.
    pub headers: Vec<(String, String)>,
    /// The body; it may name secrets.
    pub body: Option<Vec<u8>>,
    /// How secrets are escaped inside the body.
    pub body_encoding: BodyEncoding,
    /// What of the answer is to be kept as secrets.
    pub captures: Vec<Capture>,
    /// Less than what is left of the poll.
    pub timeout: Option<Duration>,
}

impl Request {
    /// A plain GET.
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

/// A part of a 2xx answer to be kept as a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// What it is called from then on, in `${secret.NAME}`.
    pub name: String,
    /// Where it stands.
    pub source: CaptureSource,
    /// For how long it is good; a day at most.
    pub ttl: Duration,
}

/// Where in an answer a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureSource {
    /// A string in a JSON body, by its JSON pointer (RFC 6901).
    JsonPointer(String),
    /// The first header of this name, in any case.
    Header(String),
    /// The cookie of this name that the answer sets.
    Cookie(String),
}

impl CaptureSource {
    /// Where it looks, in words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::JsonPointer(pointer) => format!("at {pointer:?}"),
            Self::Header(name) => format!("in a header {name:?}"),
            Self::Cookie(name) => format!("in a cookie {name:?}"),
        }
    }
}

/// How long each phase took, in milliseconds. Phases that a reused connection skips are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Looking up the name.
    pub dns_ms: f64,
    /// Connecting.
    pub connect_ms: f64,
    /// The TLS handshake.
    pub tls_ms: f64,
    /// From the beginning to the first byte of the answer.
    pub first_byte_ms: f64,
    /// From the beginning to its last byte.
    pub total_ms: f64,
}

/// An answer, with every secret masked. While it lives, its body counts in the budget of body bytes.
#[derive(Debug)]
pub struct Response {
    /// Any three digits.
    pub status: u16,
    /// The HTTP/1 reason phrase, or the canonical one; may be empty.
    pub reason: String,
    /// Names and values; bytes that are no UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long it took.
    pub timing: Timing,
    /// The certificate, when the connection was encrypted.
    pub tls: Option<Certificate>,
    /// The body's share of the budget.
    pub(crate) _held: Option<Held>,
}

impl Response {
    /// From a recording; it takes nothing of the budget.
    pub(crate) fn replayed(
        (status, reason): (u16, String),
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        (timing, tls): (Timing, Option<Certificate>),
    ) -> Self {
        Self { status, reason, headers, body, timing, tls, _held: None }
    }
}
