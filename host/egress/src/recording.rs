//! Recorded exchanges: requests and answers as the plugin saw them.
//!
//! A recording is made between plugin and host: requests contain `${secret.NAME}`, and answers have every secret
//! masked. So a recording contains no secret. The values of cookies are masked also where the plugin saw them, because
//! a cookie may be a session. The SDK defines the file format: see `polliwog_sdk::testing`.
//!
//! During a replay, a request is checked in the usual way, and then answered from the recording instead of the network.

use crate::cookie;
use crate::message::{Authentication, Credentials, Signature, SignaturePart, Timing};
use crate::references::with_written_references;
use crate::{Error, ErrorClass, Exchanged, Request, Response, TlsSession};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the exchanges of a poll are recorded or replayed.
#[derive(Clone, Debug, Default)]
pub enum Tape {
    /// No recording: the network answers.
    #[default]
    Off,
    /// The network answers, and the exchanges are recorded.
    Record(Arc<Recorder>),
    /// A recording answers.
    Replay(Arc<Player>),
}

/// One recorded request with its response or error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The request.
    pub request: RecordedRequest,
    /// The response. `None` if `error` is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<RecordedResponse>,
    /// The reason why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RecordedError>,
    /// The TLS session. `None` without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSession>,
}

/// A request as the plugin wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// The method in upper case, for example `GET`.
    pub method: String,
    /// The absolute URL. A file may also contain a path, which is resolved against the target's URL.
    pub url: String,
    /// Header names and values, with references to secrets. They do not select the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body, with references to secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The signatures, with the names of their secrets. They do not select the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Value>,
    /// The authentication that the host does. It does not select the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Value>,
}

/// A response as the plugin saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordedResponse {
    /// The HTTP status, any three digits.
    pub status: u16,
    /// The reason phrase.
    #[serde(default)]
    pub reason: String,
    /// Header names and values.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64 if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Whether the body was read to its end.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub body_complete: bool,
    /// The total duration in milliseconds.
    #[serde(default)]
    pub total_ms: f64,
}

fn yes() -> bool {
    true
}

/// A recorded error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedError {
    /// The status of the answer, if it began and could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The kind of the error.
    #[serde(default)]
    pub class: ErrorClass,
    /// One of the error codes in the crate documentation.
    pub code: String,
    /// The error message for users.
    pub message: String,
    /// Whether a retry may succeed.
    pub retryable: bool,
}

/// Records exchanges. An entry is `None` while its request is in flight.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<Option<Exchange>>>);

impl Recorder {
    /// Returns the finished exchanges, in the order of the requests.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// Reserves the position of a request before it is sent, because answers arrive in any order.
    pub(crate) fn place(&self) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(None);
        all.len() - 1
    }

    pub(crate) fn keep(
        &self,
        place: usize,
        request: RecordedRequest,
        (exchanged, tls): (&Exchanged, Option<TlsSession>),
    ) {
        let (response, error) = match &exchanged.result {
            Ok(response) => (Some(RecordedResponse::of(response)), None),
            Err(error) => (None, Some(RecordedError::of(error, exchanged.status))),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.get_mut(place) {
            *kept = Some(Exchange { request, response, error, tls });
        }
    }
}

/// Answers requests from a recording. An exchange with the method, URL and body of the request answers; if none has the
/// body, one with the method and URL. Each exchange answers once, in the order of the recording, and the last one
/// repeatedly.
#[derive(Debug)]
pub struct Player(Mutex<Played>);

#[derive(Debug)]
struct PlayedExchange {
    exchange: Exchange,
    /// Whether the exchange has answered a request.
    used: bool,
}

#[derive(Debug)]
struct Played {
    exchanges: Vec<PlayedExchange>,
    differences: Vec<String>,
}

impl Played {
    /// Returns the index of the exchange that answers a request. APIs with a single URL, such as JSON-RPC and GraphQL,
    /// differ in their bodies only, and a later poll with a session leaves out the log-in.
    fn chosen(&self, requested: &RecordedRequest) -> Option<usize> {
        let RecordedRequest { method, url, body, .. } = requested;
        let indexes = |has_body: bool| {
            let matches = move |played: &PlayedExchange| {
                let recorded = &played.exchange.request;
                recorded.method == *method && recorded.url == *url && (!has_body || recorded.body == *body)
            };
            self.exchanges.iter().enumerate().filter(move |(_, played)| matches(played))
        };
        let has_body = indexes(true).next().is_some();
        let unused = indexes(has_body).find(|(_, played)| !played.used);
        unused.or_else(|| indexes(has_body).next_back()).map(|(index, _)| index)
    }
}

impl Player {
    /// Creates a player. Each exchange must have a response or an error, and an absolute URL.
    pub fn new(exchanges: Vec<Exchange>) -> Self {
        let played = |mut exchange: Exchange| {
            exchange.request.url = with_written_references(&exchange.request.url);
            PlayedExchange { exchange, used: false }
        };
        let exchanges = exchanges.into_iter().map(played).collect();
        Self(Mutex::new(Played { exchanges, differences: Vec::new() }))
    }

    /// Returns the differences between the requests and the recording: different headers or bodies, requests that the
    /// recording does not contain, and recorded requests that were not made. Headers and bodies are compared only if
    /// the recording has them.
    pub fn differences(&self) -> Vec<String> {
        let played = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = played.exchanges.iter().filter(|played| !played.used);
        let unused = unused.map(|PlayedExchange { exchange, .. }| {
            format!("{} {} was recorded but not requested", exchange.request.method, exchange.request.url)
        });
        played.differences.iter().cloned().chain(unused).collect()
    }

    /// Notes a request that was refused before the recording could answer it, as it was when it was recorded.
    pub(crate) fn refused(&self, method: &str, url: &str) {
        let mut played = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |played: &&mut PlayedExchange| {
            let Exchange { request, error, .. } = &played.exchange;
            !played.used && error.is_some() && request.method == method && request.url == url
        };
        if let Some(played) = played.exchanges.iter_mut().find(same) {
            played.used = true;
        }
    }

    /// Returns the recorded answer to a request, and its TLS session.
    pub(crate) fn answer(&self, requested: &RecordedRequest) -> (Result<RecordedResponse, Error>, Option<TlsSession>) {
        let RecordedRequest { method, url, .. } = requested;
        let mut played = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(chosen) = played.chosen(requested) else {
            played.differences.push(format!("{method} {url} was requested but not recorded"));
            return (Err(Error::NotRecorded(format!("{method} {url}"))), None);
        };
        played.exchanges[chosen].used = true;
        let exchange = played.exchanges[chosen].exchange.clone();
        if let Some(difference) = requested.difference(&exchange.request) {
            played.differences.push(difference);
        }
        let answer = match (exchange.response, exchange.error) {
            (Some(response), _) => Ok(response),
            (None, Some(RecordedError { status, class, code, message, retryable })) => {
                Err(Error::Recorded { status, class, code, message, retryable })
            }
            (None, None) => Err(Error::NotRecorded(format!("an answer to {method} {url}"))),
        };
        (answer, exchange.tls)
    }
}

impl RecordedRequest {
    /// Returns how the request differs from the recorded one. `None` if it does not differ.
    fn difference(&self, recorded: &Self) -> Option<String> {
        let sorted = |request: &Self| {
            let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
            let mut headers: Vec<_> = without_sessions(&request.headers).iter().map(lower).collect();
            headers.sort_unstable();
            headers
        };
        // A recording written by hand has neither headers nor body.
        let differs = |part: &str| Some(format!("{} {} has {part} than recorded", self.method, self.url));
        if recorded.body.is_some() && recorded.body != self.body {
            return differs("a different body");
        }
        let unequal = recorded.signatures.iter().find(|signature| !self.signatures.contains(signature));
        if let Some(name) = unequal.map(|signature| signature["name"].as_str().unwrap_or_default()) {
            return differs(&format!("a different signature {name:?}"));
        }
        if recorded.authentication.is_some() && recorded.authentication != self.authentication {
            return differs("a different authentication");
        }
        let (own, theirs) = (sorted(self), sorted(recorded));
        if !theirs.is_empty() && own != theirs {
            let missing = theirs.iter().find(|header| !own.contains(header));
            let different = missing.or_else(|| own.iter().find(|header| !theirs.contains(header)));
            let name = different.map_or("", |(name, _)| name.as_str());
            return differs(&format!("a different header {name:?}"));
        }
        None
    }

    pub(crate) fn of(request: &Request, url: String) -> Self {
        let body = request.body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
        Self {
            method: request.method.as_str().to_owned(),
            url,
            headers: without_sessions(&request.headers),
            body,
            signatures: request.signatures.iter().map(signature).collect(),
            authentication: request.authentication.as_ref().map(authentication),
        }
    }
}

/// A signature in a recording. Texts of the plugin are texts, and its bytes are in base64.
fn signature(signature: &Signature) -> Value {
    let parts = |parts: &[SignaturePart]| parts.iter().map(part).collect::<Vec<_>>();
    let mut recorded = json!({
        "name": signature.name, "algorithm": signature.algorithm, "key": parts(&signature.key),
        "input": parts(&signature.input), "encoding": signature.encoding.word(),
    });
    if let Some(iterations) = signature.iterations {
        recorded["iterations"] = iterations.into();
    }
    recorded
}

fn part(part: &SignaturePart) -> Value {
    match part {
        SignaturePart::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
        },
        SignaturePart::Body => json!({ "body": true }),
        SignaturePart::Secret(name, encoding) => json!({ "secret": name, "encoding": encoding.word() }),
        SignaturePart::Signature(name) => json!({ "signature": name }),
    }
}

fn authentication(authentication: &Authentication) -> Value {
    let login = |login: &Credentials| json!({ "user": login.user, "password": login.password });
    match authentication {
        Authentication::Basic(credentials) => json!({ "basic": login(credentials) }),
        Authentication::Digest(credentials) => json!({ "digest": login(credentials) }),
        Authentication::Bearer(token) => json!({ "bearer": token }),
    }
}

/// Returns headers with stars in place of the values of cookies. References to secrets stay.
fn without_sessions(headers: &[(String, String)]) -> Vec<(String, String)> {
    let starred = |(name, value): &(String, String)| {
        let places = match name.to_ascii_lowercase().as_str() {
            "set-cookie" => vec![cookie::set_by(value).1],
            "cookie" => cookie::sent_in(value),
            _ => Vec::new(),
        };
        let places = places.into_iter().filter(|place| !value[place.clone()].contains("${"));
        let starred = places.fold(value.clone(), |mut starred, place| {
            // As many stars as bytes, so that the other places stay valid.
            starred.replace_range(place.clone(), &"*".repeat(place.len()));
            starred
        });
        (name.clone(), starred)
    };
    headers.iter().map(starred).collect()
}

impl RecordedResponse {
    fn of(response: &Response) -> Self {
        let (body, body_base64) = match std::str::from_utf8(&response.body) {
            Ok("") => (None, None),
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&response.body))),
        };
        Self {
            status: response.status,
            reason: response.reason.clone(),
            headers: without_sessions(&response.headers),
            body,
            body_base64,
            body_complete: response.is_complete,
            total_ms: response.timing.total_ms,
        }
    }

    /// Returns the response as the plugin saw it. It takes no budget share.
    pub(crate) fn replayed(self, exchange: u32) -> Result<Response, Error> {
        let body = match (self.body, self.body_base64) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(encoded)) => STANDARD
                .decode(encoded)
                .map_err(|error| Error::NotRecorded(format!("a valid body: bodyBase64 is not base64 ({error})")))?,
            (None, None) => Vec::new(),
        };
        let timing = Timing { first_byte_ms: self.total_ms, total_ms: self.total_ms, ..Timing::default() };
        let Self { status, reason, headers, body_complete: is_complete, .. } = self;
        Ok(Response { exchange, status, reason, headers, body, is_complete, timing, _held: None })
    }
}

impl RecordedError {
    fn of(error: &Error, status: Option<u16>) -> Self {
        let (class, code, retryable) = (error.class(), error.code().to_owned(), error.retryable());
        Self { status, class, code, message: error.to_string(), retryable }
    }
}
