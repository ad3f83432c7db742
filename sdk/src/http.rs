//! Requests to the target's own origins.
//!
//! The host adds what is secret, limits, and refuses everything else; see the contract's `http` interface.

use crate::bindings::polliwog::poller::http as contract;
use crate::{Dependency, Failure, PollError, Report};
use serde::Deserialize;
use std::time::{Duration, UNIX_EPOCH};

pub use contract::{BodyEncoding, CaptureSource, Header, HttpError, Method, TlsInfo};

/// A request, made step by step.
#[derive(Clone)]
pub struct Request(contract::Request);

/// An answer, whatever its status.
#[derive(Clone, PartialEq)]
pub struct Response(contract::Response, String);

impl Request {
    /// A request for a path and query, resolved against the target's URL (`""` is that URL itself), or for an absolute
    /// URL with one of the target's origins.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self(contract::Request {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: None,
            body_encoding: BodyEncoding::Raw,
            captures: Vec::new(),
            timeout_ms: None,
        })
    }

    /// A GET.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path)
    }

    /// A GET that asks for JSON, with an operator's own headers.
    pub fn get_json<'a>(path: impl Into<String>, headers: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let plain = Self::get(path).header("accept", "application/json");
        headers.into_iter().fold(plain, |request, (name, value)| request.header(name, value))
    }

    /// Adds a header. `${secret.NAME}` and `${basic.NAME}` in its value are filled in by the host.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// Sets the body. `${secret.NAME}` in it is filled in by the host, escaped as `encoding` says.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>, encoding: BodyEncoding) -> Self {
        self.0.body = Some(body.into());
        self.0.body_encoding = encoding;
        self
    }

    /// Keeps a part of a 2xx answer as `${secret.NAME}`, for this target and this version of the plugin, for so long (a day
    /// at most). The host keeps it, and the plugin sees stars where it stands. See [`has_secret`] and [`forget_secret`].
    #[must_use]
    pub fn capture(mut self, name: impl Into<String>, source: CaptureSource, ttl: Duration) -> Self {
        let ttl_ms = u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX);
        self.0.captures.push(contract::Capture { name: name.into(), source, ttl_ms });
        self
    }

    /// Gives the request less time than is left of the poll. Milliseconds.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u32) -> Self {
        self.0.timeout_ms = Some(timeout_ms);
        self
    }

    /// Sends it. Any status is an answer; only having none is an error.
    pub fn send(self) -> Result<Response, HttpError> {
        transport::fetch(&self.0).map(|response| Response(response, self.0.path))
    }
}

/// Sends all at once, within the host's limits; results in the order of the requests.
pub fn send_all(requests: Vec<Request>) -> Vec<Result<Response, HttpError>> {
    let requests: Vec<_> = requests.into_iter().map(|request| request.0).collect();
    let results = transport::fetch_all(&requests).into_iter();
    results.zip(requests).map(|(result, request)| result.map(|response| Response(response, request.path))).collect()
}

/// What came of several requests at once: some answered, some failed. A report of what is there is worth more than none.
#[derive(Clone)]
pub struct Fetched<K> {
    /// Those with a 2xx answer, in the order of the requests.
    pub answered: Vec<(K, Response)>,
    /// The others, with the failure that stands for what happened.
    pub failed: Vec<(K, PollError)>,
}

/// Sends all at once, each with a key that says which it is, and parts those with a 2xx answer from the others.
pub fn fetch_all<K>(requests: impl IntoIterator<Item = (K, Request)>) -> Fetched<K> {
    let (keys, requests): (Vec<K>, Vec<Request>) = requests.into_iter().unzip();
    let mut fetched = Fetched { answered: Vec::new(), failed: Vec::new() };
    for (key, result) in keys.into_iter().zip(send_all(requests)) {
        match result.map_err(PollError::from).and_then(Response::success) {
            Ok(response) => fetched.answered.push((key, response)),
            Err(error) => fetched.failed.push((key, error)),
        }
    }
    fetched
}

impl<K> Fetched<K> {
    /// Fails when nothing was answered, with the failure that says most: a permanent one before a transient one.
    pub fn or_fail(mut self) -> Result<Self, PollError> {
        match self.worst() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Gives each answer to `read`; one that it cannot read is a failure of that part alone, and no longer among the answered.
    /// Fails when nothing is left.
    pub fn read(&mut self, mut read: impl FnMut(&K, &Response) -> Result<(), PollError>) -> Result<(), PollError> {
        for (key, response) in std::mem::take(&mut self.answered) {
            match read(&key, &response) {
                Ok(()) => self.answered.push((key, response)),
                Err(error) => self.failed.push((key, error)),
            }
        }
        self.worst().map_or(Ok(()), Err)
    }

    /// Where nothing was answered: the failure that says most, a permanent one before a transient one.
    fn worst(&mut self) -> Option<PollError> {
        if !self.answered.is_empty() || self.failed.is_empty() {
            return None;
        }
        let permanent = self.failed.iter().position(|(_, error)| matches!(error, PollError::Permanent(_)));
        Some(self.failed.swap_remove(permanent.unwrap_or(0)).1)
    }

    /// Notes in a report what was not answered, or could not be read: it is unknown, and never as good as it was.
    ///
    /// `name` gives the dependency that a part stands for, or, ending in `/`, the beginning of the names of those that it holds.
    /// What is known of those stands, and a dependency named after the part says how the part itself is, each time: `queue` for
    /// `queue/`.
    pub fn note(&self, report: &mut Report, name: impl Fn(&K) -> String) {
        for (key, _) in &self.answered {
            if let Some(part) = name(key).strip_suffix('/') {
                report.dependencies.push(Dependency::ok(part));
            }
        }
        for (key, error) in &self.failed {
            let name = name(key);
            let message = error.failure().message.as_str();
            report.warn(format!("{name}: {message}"));
            report.dependencies.push(Dependency::unknown(name.strip_suffix('/').unwrap_or(&name), message));
            if name.ends_with('/') {
                report.keep(name);
            }
        }
    }
}

/// GETs a path and expects a 2xx answer; anything else is the [`PollError`] that DESIGN's table gives it.
pub fn get(path: impl Into<String>) -> Result<Response, PollError> {
    Request::get(path).send().map_err(PollError::from)?.success()
}

/// Whether a secret is configured, or was captured and has not expired.
pub fn has_secret(name: &str) -> bool {
    transport::has_secret(name)
}

/// Drops a captured secret: it is no longer good.
pub fn forget_secret(name: &str) {
    transport::forget_secret(name);
}

impl Response {
    /// The status: any three digits.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// The HTTP/1 reason phrase; may be empty.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.0.body
    }

    /// The body as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.body).into_owned()
    }

    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value.as_str())
    }

    /// From sending the request to the last byte, in milliseconds.
    pub fn total_ms(&self) -> f64 {
        self.0.timing.total_ms
    }

    /// The certificate, when the connection was encrypted.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.0.tls.as_ref()
    }

    /// The body as JSON of a known shape; see [`crate::json`].
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, PollError> {
        crate::json(&self.0.body)
    }

    /// The answer itself when its status is 2xx, else the error that stands for its status.
    pub fn success(self) -> Result<Self, PollError> {
        if (200..300).contains(&self.0.status) { Ok(self) } else { Err(self.status_error()) }
    }

    /// What `read` makes of the answer, whatever its status: health endpoints answer 503 with the whole report when a part is
    /// down (Spring Boot Actuator and ASP.NET do). Where the status is not 2xx and `read` finds no dependency, the error
    /// that stands for the status.
    pub fn report(&self, read: impl FnOnce(&Self) -> Result<Report, PollError>) -> Result<Report, PollError> {
        let report = read(self);
        let is_success = (200..300).contains(&self.0.status);
        match report {
            Err(_) if !is_success => Err(self.status_error()),
            Ok(report) if !is_success && report.dependencies.is_empty() => Err(self.status_error()),
            report => report,
        }
    }

    /// Which request it answers, where that is not the target's own URL, and where it sends that.
    fn which(&self) -> String {
        let to = if self.1.is_empty() { String::new() } else { format!(" to {}", self.1) };
        let location = self.header("location").filter(|_| (300..400).contains(&self.0.status));
        format!("{to}{}", location.map_or_else(String::new, |location| format!(", leading to {location}")))
    }

    fn status_error(&self) -> PollError {
        let status = self.0.status;
        let reason = if self.0.reason.is_empty() { String::new() } else { format!(" {}", self.0.reason) };
        let (code, advice) = match status {
            401 => ("unauthorized", "check the target's secret"),
            403 => ("forbidden", "the target's secret lacks rights for this, or is wrong, or there is none"),
            404 => ("not_found", "check the path in the target's URL"),
            300..=399 => ("redirect", "write the address that it leads to as the target's URL"),
            408 => ("request_timeout", "the server took too long to read the request"),
            429 => ("too_many_requests", "the server asks for fewer requests"),
            500..=599 => ("server_error", "look at the server's log"),
            _ => ("unexpected_status", "check the target's URL"),
        };
        let failure = Failure {
            code: code.to_owned(),
            message: format!("the server answered {status}{reason}{}: {advice}", self.which()),
            retry_after_ms: self.retry_after_ms(),
        };
        match status {
            408 | 425 | 429 | 500.. => PollError::Transient(failure),
            _ => PollError::Permanent(failure),
        }
    }

    /// How long the server asks to be left alone, in milliseconds: `Retry-After` as seconds, or as a date counted from the
    /// answer's own `Date`.
    pub fn retry_after_ms(&self) -> Option<u32> {
        let value = self.header("retry-after")?.trim();
        let wait = match value.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let since_epoch = |text| httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok();
                since_epoch(value)?.saturating_sub(since_epoch(self.header("date")?)?)
            }
        };
        Some(u32::try_from(wait.as_millis()).unwrap_or(u32::MAX))
    }
}

impl From<HttpError> for PollError {
    fn from(error: HttpError) -> Self {
        if error.retryable {
            Self::transient(error.code, error.message)
        } else {
            Self::permanent(error.code, error.message)
        }
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing as transport;
#[cfg(target_family = "wasm")]
use contract as transport;
