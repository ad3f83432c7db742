//! HTTP requests to the target's own origins.
//!
//! The host inserts secrets, applies limits, and refuses requests to other origins. See the `http` interface of the
//! contract.

mod cached;
mod fetched;
use self::cached::CONDITIONS;
use crate::bindings::polliwog::plugin::http as contract;
use crate::report::millis;
use crate::{CallError, SettingsProblem};
use serde::Deserialize;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, UNIX_EPOCH};

mod signature;
mod status;

pub use crate::bindings::polliwog::plugin::tls::{Certificate, TlsSession};
pub use contract::{BodyEncoding, CaptureSource, Header, HttpError, HttpErrorClass, SecretEncoding};
pub use fetched::{Fetched, fetch_all};
pub use signature::{Key, Part, Signature};
pub use status::ExpectedStatus;

/// A request builder.
///
/// ```no_run
/// # use polliwog_sdk::http::{BodyEncoding, Request, secret};
/// # use std::time::Duration;
/// let request = Request::new("POST", "/login").timeout(Duration::from_secs(5));
/// let response = request.body(format!("password={}", secret("password")), BodyEncoding::Form).send()?;
/// # Ok::<(), polliwog_sdk::http::HttpError>(())
/// ```
#[derive(Clone)]
pub struct Request(contract::Request);

/// A response with any status.
///
/// ```no_run
/// # use polliwog_sdk::{Dependency, http};
/// let response = http::get("/health")?;
/// let health: polliwog_sdk::serde_json::Value = response.json()?;
/// let itself = Dependency::ok("health").with_code(response.status().into()).with_latency(response.latency());
/// # Ok::<(), polliwog_sdk::CallError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Response {
    inner: contract::Response,
    /// The path of the request, as the plugin wrote it.
    path: String,
    /// The body without what JSON does not have, once it was needed.
    readable: OnceCell<String>,
}

impl Request {
    /// Creates a request. `method` is in upper case, for example "POST". `path` is a path and query, resolved against
    /// the target's URL (`""` is the URL itself), or an absolute URL with one of the target's origins.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self(contract::Request {
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            body: None,
            body_encoding: BodyEncoding::Raw,
            response_body: contract::BodyReading::Whole,
            captures: Vec::new(),
            signatures: Vec::new(),
            authentication: None,
            timeout_ms: None,
            extra: Vec::new(),
        })
    }

    /// Creates a GET request.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// Creates a GET request that accepts JSON, with headers that the operator configured. Those that ask whether the
    /// answer has changed are left out: its body is needed each time.
    pub fn get_json<'a>(path: impl Into<String>, headers: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let is_condition = |name: &str| CONDITIONS.iter().any(|condition| name.eq_ignore_ascii_case(condition));
        let headers = headers.into_iter().filter(|(name, _)| !is_condition(name));
        Self::get(path).header("accept", "application/json").configured_headers(headers)
    }

    /// Creates a POST request with a JSON body. The host replaces references to secrets in it: see [`secret`].
    pub fn post_json(path: impl Into<String>, body: &serde_json::Value) -> Self {
        let plain = Self::new("POST", path).header("content-type", "application/json");
        plain.body(body.to_string(), BodyEncoding::Json)
    }

    /// Adds headers that the operator configured. They replace those of the same name.
    #[must_use]
    pub fn configured_headers<'a>(mut self, headers: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        for (name, value) in headers {
            self.0.headers.retain(|header| !header.name.eq_ignore_ascii_case(name));
            self = self.header(name, value);
        }
        self
    }

    /// Adds a header. The host replaces references to secrets in the value: see [`secret`] and [`basic`].
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// Sets the body. The host replaces references to secrets in it, and escapes their values for `encoding`.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>, encoding: BodyEncoding) -> Self {
        self.0.body = Some(body.into());
        self.0.body_encoding = encoding;
        self
    }

    /// Captures a part of a 2xx response as a secret of this name, for this target and this version of the plugin. The
    /// host stores it for `ttl`, at most a week. The plugin sees asterisks instead. See [`has_secret`] and
    /// [`forget_secret`]. If the response lacks the value, the request fails with the class
    /// [`HttpErrorClass::Capture`].
    #[must_use]
    pub fn capture(self, name: impl Into<String>, source: CaptureSource, ttl: Duration) -> Self {
        self.capture_where(name, source, ttl, |_| {})
    }

    /// Like [`Self::capture`], and the value survives restarts of the host and later versions of the plugin, encrypted
    /// on disk. For refresh tokens that replace each other: the value is stored before [`Self::send`] returns.
    #[must_use]
    pub fn capture_durable(self, name: impl Into<String>, source: CaptureSource, ttl: Duration) -> Self {
        self.capture_where(name, source, ttl, |capture| capture.durable = true)
    }

    /// Like [`Self::capture`], but a response may lack the value.
    #[must_use]
    pub fn capture_optional(self, name: impl Into<String>, source: CaptureSource, ttl: Duration) -> Self {
        self.capture_where(name, source, ttl, |capture| capture.optional = true)
    }

    /// Like [`Self::capture`], from responses with other statuses than 2xx, for example the challenge of a 401.
    #[must_use]
    pub fn capture_from(
        self,
        statuses: RangeInclusive<u16>,
        name: impl Into<String>,
        source: CaptureSource,
        ttl: Duration,
    ) -> Self {
        let (lowest, highest) = statuses.into_inner();
        let range = contract::StatusRange { lowest, highest };
        self.capture_where(name, source, ttl, |capture| capture.statuses.push(range))
    }

    fn capture_where(
        mut self,
        name: impl Into<String>,
        source: CaptureSource,
        ttl: Duration,
        change: impl FnOnce(&mut contract::Capture),
    ) -> Self {
        let (name, ttl_ms) = (name.into(), millis(ttl));
        let (statuses, extra) = (Vec::new(), Vec::new());
        let (optional, durable) = (false, false);
        let mut capture = contract::Capture { name, source, ttl_ms, statuses, optional, durable, extra };
        change(&mut capture);
        self.0.captures.push(capture);
        self
    }

    /// Reads nothing of the response's body, and does not wait for it.
    #[must_use]
    pub fn read_nothing(self) -> Self {
        self.reading(contract::BodyReading::None)
    }

    /// Reads the first bytes of the response's body: 1 to 8,388,608.
    #[must_use]
    pub fn read_first(self, bytes: u32) -> Self {
        self.reading(contract::BodyReading::First(bytes))
    }

    /// Reads the response's body to the end of the first occurrence of one of these texts, for example the first event
    /// of a stream. At most 16 texts, each of 1 to 256 bytes. See [`Response::is_complete`].
    ///
    /// ```
    /// # use polliwog_sdk::http::Request;
    /// let first_event = Request::get("/events").read_until(["\n\n"]);
    /// ```
    #[must_use]
    pub fn read_until<T: Into<Vec<u8>>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        self.reading(contract::BodyReading::Until(texts.into_iter().map(Into::into).collect()))
    }

    fn reading(mut self, reading: contract::BodyReading) -> Self {
        self.0.response_body = reading;
        self
    }

    /// Lets the host compute a signature, whose result [`signature`] refers to. Signatures are computed in the order in
    /// which they are added.
    #[must_use]
    pub fn sign(mut self, name: impl Into<String>, signature: Signature) -> Self {
        self.0.signatures.push(signature.named(name.into()));
        self
    }

    /// Lets the host log in with Basic authentication. `password` is the name of a secret.
    #[must_use]
    pub fn basic_auth(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = contract::Credentials { user: user.into(), password: password.into() };
        self.authentication(contract::Authentication::Basic(credentials))
    }

    /// Lets the host log in with Digest authentication. `password` is the name of a secret. The host sends the request
    /// twice if it has no challenge of this origin yet.
    #[must_use]
    pub fn digest_auth(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = contract::Credentials { user: user.into(), password: password.into() };
        self.authentication(contract::Authentication::Digest(credentials))
    }

    /// Lets the host send a secret as a bearer token. `token` is the name of the secret.
    #[must_use]
    pub fn bearer_auth(self, token: impl Into<String>) -> Self {
        self.authentication(contract::Authentication::Bearer(token.into()))
    }

    fn authentication(mut self, authentication: contract::Authentication) -> Self {
        self.0.authentication = Some(authentication);
        self
    }

    /// Sets the timeout of this request, at most 49 days. The deadline of the poll applies as well.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = Some(millis(timeout));
        self
    }

    /// Sends the request. A response with any status is `Ok`.
    ///
    /// # Errors
    /// If there is no response.
    pub fn send(self) -> Result<Response, HttpError> {
        transport::fetch(&self.0).map(|response| Response::new(response, self.0.path))
    }
}

/// Sends several requests concurrently, within the host's limits. Returns the results in the order of the requests.
pub fn send_all(requests: Vec<Request>) -> Vec<Result<Response, HttpError>> {
    let requests: Vec<_> = requests.into_iter().map(|request| request.0).collect();
    let results = transport::fetch_all(&requests).into_iter();
    results
        .zip(requests)
        .map(|(result, request)| result.map(|response| Response::new(response, request.path)))
        .collect()
}

/// Sends a GET request.
///
/// # Errors
/// If there is no 2xx response. The guide of the SDK lists the failure of each status.
pub fn get(path: impl Into<String>) -> Result<Response, CallError> {
    Request::get(path).send().map_err(CallError::from)?.success()
}

/// Sends a GET request whose answer is kept for `ttl` and requested again only if it changed: see
/// [`Request::send_cached`].
///
/// # Errors
/// If there is no 2xx response.
pub fn get_cached(path: impl Into<String>, ttl: Duration) -> Result<Response, CallError> {
    Request::get(path).send_cached(ttl).map_err(CallError::from)?.success()
}

/// Returns a reference to a secret, which the host replaces by the value when it sends the request: in a header, in a
/// body, and in the path of a notifier's request, or of one that the operator permits (`secrets_in_path`). It is valid
/// in this call only.
///
/// ```
/// # use polliwog_sdk::http::{Request, secret};
/// let request = Request::get("/status").header("authorization", format!("Bearer {}", secret("token")));
/// ```
pub fn secret(name: &str) -> String {
    transport::reference(&format!("secret.{name}"))
}

/// Returns a reference to the base64 of a secret of the form `user:password`, for a header.
///
/// ```
/// # use polliwog_sdk::http::{Request, basic};
/// let request = Request::get("/status").header("authorization", format!("Basic {}", basic("login")));
/// ```
pub fn basic(name: &str) -> String {
    transport::reference(&format!("basic.{name}"))
}

/// Returns a reference to the result of a signature of the same request: see [`Request::sign`]. It can be in a header,
/// the body, the path and the query.
pub fn signature(name: &str) -> String {
    transport::reference(&format!("signature.{name}"))
}

/// Returns a text in which references are the same in each call, to compare or hash it: settings and headers with
/// references differ from call to call.
pub fn stable(text: &str) -> String {
    const NAME: &str = "secret.x";
    let sample = transport::reference(NAME);
    match sample.strip_suffix('.').and_then(|sample| sample.strip_suffix(NAME)) {
        Some(mark) if text.contains(mark) => text.replace(mark, ""),
        _ => text.to_owned(),
    }
}

/// Returns whether a text contains a reference to a secret, for example a header that an operator configured. A plugin
/// that follows a redirect to another host leaves such headers out.
pub fn has_reference(text: &str) -> bool {
    const NAME: &str = "secret.x";
    let sample = transport::reference(NAME);
    let mark = sample.split(NAME).next().unwrap_or_default();
    ["secret.", "basic."].iter().any(|scheme| text.contains(&format!("{mark}{scheme}")))
}

/// Returns the problems of the setting `headers`: names that differ only in case, of which a server would get two.
///
/// ```
/// # use std::collections::BTreeMap;
/// let headers = ["Accept", "accept"].map(|name| (name.to_owned(), "text/plain".to_owned()));
/// assert_eq!(polliwog_sdk::http::header_problems(&BTreeMap::from(headers)).len(), 1);
/// ```
pub fn header_problems(headers: &BTreeMap<String, String>) -> Vec<SettingsProblem> {
    let mut seen = BTreeMap::new();
    let twice = headers.keys().filter_map(|name| Some((name, seen.insert(name.to_ascii_lowercase(), name)?)));
    let problem = |(name, other): (&String, &String)| {
        SettingsProblem::at("/headers", format!("{other:?} and {name:?} are the same header: remove one of them"))
    };
    twice.map(problem).collect()
}

/// Returns whether a secret is configured, or was captured and has not expired.
pub fn has_secret(name: &str) -> bool {
    transport::has_secret(name)
}

/// Deletes a captured secret, for example because the server no longer accepts it.
pub fn forget_secret(name: &str) {
    transport::forget_secret(name);
}

impl HttpError {
    /// Returns the TLS session, if the handshake came to the server's certificate: also one that was refused, with the
    /// reason in `problem`.
    pub fn tls(&self) -> Option<TlsSession> {
        self.exchange.and_then(transport::tls_of)
    }
}

impl TlsSession {
    /// Returns the server's own certificate.
    pub fn leaf(&self) -> Option<&Certificate> {
        self.chain.first()
    }
}

impl Response {
    fn new(inner: contract::Response, path: String) -> Self {
        Self { inner, path, readable: OnceCell::new() }
    }

    /// Returns the HTTP status, any three digits.
    pub fn status(&self) -> u16 {
        self.inner.status
    }

    /// Returns the HTTP/1 reason phrase. It may be empty.
    pub fn reason(&self) -> &str {
        &self.inner.reason
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.inner.body
    }

    /// Returns the body as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.inner.body).into_owned()
    }

    /// Returns the first words of the body for a message, those of HTML and XML without tags. `None` for a body without
    /// words.
    pub fn first_words(&self) -> Option<String> {
        status::first_words(&self.inner.body)
    }

    /// Returns the first header with this name. Case is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value.as_str())
    }

    /// Returns the time from the start of the request to the last byte of the response.
    pub fn latency(&self) -> Duration {
        Duration::try_from_secs_f64(self.inner.timing.total_ms / 1000.0).unwrap_or_default()
    }

    /// Returns whether the body was read to its end. `false` if [`Request::read_first`] or the like ended the reading.
    pub fn is_complete(&self) -> bool {
        self.inner.body_complete
    }

    /// Returns the TLS session. `None` without TLS.
    pub fn tls(&self) -> Option<TlsSession> {
        transport::tls_of(self.inner.exchange)
    }

    /// Parses the body as JSON. Numbers that JSON does not have (`NaN`, `1e400`) are texts, and bytes that are not
    /// UTF-8 are replaced, so that a field that is not read does not fail the poll.
    ///
    /// # Errors
    /// As [`crate::json`].
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, CallError> {
        crate::json::tolerant(&self.inner.body, &self.readable)
    }

    /// Returns the response if its status is 2xx.
    ///
    /// # Errors
    /// The error for the status, if it is another one.
    pub fn success(self) -> Result<Self, CallError> {
        if (200..300).contains(&self.inner.status) { Ok(self) } else { Err(status::error(&self)) }
    }

    /// Returns the delay that the server requests with `Retry-After`. A date is converted with the `Date` of the
    /// response, or with the clock of the host. `None` if the header is missing or not valid.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
        let since_epoch = |text| httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok();
        let now = || Duration::from_millis(u64::try_from(crate::clock::now()).unwrap_or_default());
        let date = self.header("date").and_then(since_epoch).unwrap_or_else(now);
        Some(since_epoch(value)?.saturating_sub(date))
    }
}

/// The codes of errors that an operator can correct, in addition to those of their classes.
const OF_OPERATORS: [&str; 4] =
    ["secret_unknown", "secret_unusable", "capture_too_short", "authentication_unsupported"];

impl From<HttpError> for CallError {
    fn from(error: HttpError) -> Self {
        // A body that cannot be read must not hide the status.
        if let Some(status) = error.status.filter(|status| !(200..300).contains(status)) {
            return status::unread(status, &error);
        }
        match error.class {
            _ if error.retryable => Self::transient(error.code, error.message),
            HttpErrorClass::Denied | HttpErrorClass::Certificate => Self::misconfigured(error.code, error.message),
            _ if OF_OPERATORS.contains(&error.code.as_str()) => Self::misconfigured(error.code, error.message),
            _ => Self::permanent(error.code, error.message),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing as transport;
#[cfg(target_family = "wasm")]
use contract as transport;
