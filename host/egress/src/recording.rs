//! Exchanges as a plugin saw them, on their way into a file and out of it.
//!
//! What is recorded is what stands between plugin and host: requests with `${secret.NAME}` in them, and answers with
//! every secret masked. So a recording holds no secret, whatever was asked. The file's format is the SDK's: see
//! `polliwog_sdk::testing`.
//!
//! Replayed, a request is checked as ever, and then answered from the recording instead of the network.

use crate::message::Timing;
use crate::{Certificate, Error, Request, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether a poll's exchanges are recorded, or come from a recording.
#[derive(Clone, Debug, Default)]
pub enum Tape {
    /// Neither: the network answers.
    #[default]
    Off,
    /// The network answers, and what it answers is kept.
    Record(Arc<Recorder>),
    /// The recording answers.
    Replay(Arc<Player>),
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// What was asked.
    pub request: RecordedRequest,
    /// What was answered; nothing where `error` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<RecordedResponse>,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RecordedError>,
}

/// A request as the plugin made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// `GET`, ...
    pub method: String,
    /// Where it went; in a file also a path, resolved against the target's URL.
    pub url: String,
    /// Names and values, secrets by their names. Not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Its body, secrets by their names. Not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// An answer as the plugin saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordedResponse {
    /// Any three digits.
    pub status: u16,
    /// The reason phrase.
    #[serde(default)]
    pub reason: String,
    /// Names and values.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body, where it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// How long it took.
    #[serde(default)]
    pub total_ms: f64,
    /// The certificate, when the connection was encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RecordedTls>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the same as in `Certificate`")]
pub struct RecordedTls {
    pub fingerprint: String,
    pub subject: String,
    pub issuer: String,
    pub not_before: u64,
    pub not_after: u64,
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedError {
    /// One of the codes in this crate's documentation.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether another try may help.
    pub retryable: bool,
}

/// Keeps what passes.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<Option<Exchange>>>);

impl Recorder {
    /// What has passed so far, in the order of the requests.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// A request's place, before it is sent: answers come in any order.
    pub(crate) fn place(&self) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(None);
        all.len() - 1
    }

    pub(crate) fn keep(&self, place: usize, request: RecordedRequest, result: &Result<Response, Error>) {
        let (response, error) = match result {
            Ok(response) => (Some(RecordedResponse::of(response)), None),
            Err(error) => (None, Some(RecordedError::of(error))),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.get_mut(place) {
            *kept = Some(Exchange { request, response, error });
        }
    }
}

/// Answers from a recording: an exchange once, and the last of several with one method and URL again and again.
#[derive(Debug)]
pub struct Player(Mutex<Played>);

#[derive(Debug)]
struct Played {
    /// Each with whether it has answered.
    exchanges: Vec<(Exchange, bool)>,
    differences: Vec<String>,
}

impl Player {
    /// With these exchanges; each has either a response or an error, and an absolute URL.
    pub fn new(exchanges: Vec<Exchange>) -> Self {
        let exchanges = exchanges.into_iter().map(|exchange| (exchange, false)).collect();
        Self(Mutex::new(Played { exchanges, differences: Vec::new() }))
    }

    /// In which way what was asked is not what was recorded: other headers or another body, and what was never asked for. Where
    /// a recording has neither headers nor body of a request, they are not compared.
    pub fn differences(&self) -> Vec<String> {
        let played = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = played.exchanges.iter().filter(|(_, used)| !used);
        let unused = unused.map(|(exchange, _)| {
            format!("{} {} was recorded, and is not asked for", exchange.request.method, exchange.request.url)
        });
        played.differences.iter().cloned().chain(unused).collect()
    }

    pub(crate) fn answer(&self, asked: &RecordedRequest) -> Result<RecordedResponse, Error> {
        let RecordedRequest { method, url, .. } = asked;
        let mut played = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits =
            |(exchange, _): &(Exchange, bool)| exchange.request.method == *method && exchange.request.url == *url;
        let mut positions = (0..played.exchanges.len()).filter(|&index| fits(&played.exchanges[index]));
        let exchange = match (positions.next(), positions.next()) {
            (None, _) => return Err(Error::NotRecorded(format!("{method} {url}"))),
            (Some(last), None) => {
                played.exchanges[last].1 = true;
                played.exchanges[last].0.clone()
            }
            (Some(first), Some(_)) => played.exchanges.remove(first).0,
        };
        if let Some(difference) = asked.difference(&exchange.request) {
            played.differences.push(difference);
        }
        match (exchange.response, exchange.error) {
            (Some(response), _) => Ok(response),
            (None, Some(RecordedError { code, message, retryable })) => {
                Err(Error::Recorded { code, message, retryable })
            }
            (None, None) => Err(Error::NotRecorded(format!("an answer to {method} {url}"))),
        }
    }
}

impl RecordedRequest {
    /// In which way it is not what was recorded.
    fn difference(&self, recorded: &Self) -> Option<String> {
        let sorted = |request: &Self| {
            let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
            let mut headers: Vec<_> = request.headers.iter().map(lower).collect();
            headers.sort_unstable();
            headers
        };
        // Written by hand, a recording has neither.
        let says = |what: &str| Some(format!("{} {} is asked with {what} than was recorded", self.method, self.url));
        if recorded.body.is_some() && recorded.body != self.body {
            return says("another body");
        }
        let (mine, its) = (sorted(self), sorted(recorded));
        if !its.is_empty() && mine != its {
            let lacks =
                its.iter().find(|header| !mine.contains(header)).or_else(|| mine.iter().find(|h| !its.contains(h)));
            let name = lacks.map_or("", |(name, _)| name.as_str());
            return says(&format!("another header {name:?}"));
        }
        None
    }

    pub(crate) fn of(request: &Request, url: String) -> Self {
        let body = request.body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
        Self { method: request.method.as_str().to_owned(), url, headers: request.headers.clone(), body }
    }
}

impl RecordedResponse {
    fn of(response: &Response) -> Self {
        let (body, body_base64) = match std::str::from_utf8(&response.body) {
            Ok("") => (None, None),
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&response.body))),
        };
        let tls = response.tls.clone().map(|tls| {
            let Certificate { fingerprint, subject, issuer, not_before, not_after } = tls;
            RecordedTls { fingerprint, subject, issuer, not_before, not_after }
        });
        Self {
            status: response.status,
            reason: response.reason.clone(),
            headers: response.headers.clone(),
            body,
            body_base64,
            total_ms: response.timing.total_ms,
            tls,
        }
    }

    /// As the plugin saw it.
    pub(crate) fn replayed(self) -> Result<Response, Error> {
        let body = match (self.body, self.body_base64) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(encoded)) => STANDARD
                .decode(encoded)
                .map_err(|error| Error::NotRecorded(format!("a body, because its bodyBase64 is none ({error})")))?,
            (None, None) => Vec::new(),
        };
        let timing = Timing { first_byte_ms: self.total_ms, total_ms: self.total_ms, ..Timing::default() };
        let tls = self.tls.map(|tls| {
            let RecordedTls { fingerprint, subject, issuer, not_before, not_after } = tls;
            Certificate { fingerprint, subject, issuer, not_before, not_after }
        });
        Ok(Response::replayed((self.status, self.reason), self.headers, body, (timing, tls)))
    }
}

impl RecordedError {
    fn of(error: &Error) -> Self {
        Self { code: error.code().to_owned(), message: error.to_string(), retryable: error.retryable() }
    }
}
