//! Tests plugins natively with recorded exchanges.
//!
//! A recording is a JSON file with a list of exchanges. Each exchange has a request and its response or error.
//! `polliwog poll --record` writes an object with `kind`, `target` (the data of the target at that poll: `url`, `also`,
//! `labels`, `settings`, names of `secrets`, `now`, `timeoutMs`) and `exchanges`. `polliwog plugin send --record` adds
//! the `event` of the notification.
//!
//! ```json
//! [
//!   {
//!     "request": { "method": "GET", "url": "http://127.0.0.1:8080/health" },
//!     "response": { "status": 200, "reason": "OK", "headers": [["content-type", "application/json"]], "body": "{}" }
//!   },
//!   {
//!     "request": { "method": "GET", "url": "http://127.0.0.1:8080/logo" },
//!     "response": { "status": 200, "bodyBase64": "iVBORw0KGgo=" }
//!   },
//!   {
//!     "request": { "method": "GET", "url": "http://127.0.0.1:8080/slow" },
//!     "error": { "class": "timeout", "code": "timeout", "message": "no answer within 10 s", "retryable": true }
//!   }
//! ]
//! ```
//!
//! `request.url` is an absolute URL or a path. It is resolved against the target's URL and compared with the URL that
//! the plugin requests. Of several exchanges with a URL, one with the same `request.body` answers. `request.headers`
//! are not compared. In a `response`, these fields are optional: `reason`, `headers`, `body` (text) or `bodyBase64`,
//! `totalMs` and `tls` (`fingerprint`, `subject`, `issuer`, `notBefore`, `notAfter`; the last two in milliseconds since
//! the Unix epoch). Each exchange answers once. The last exchange with a URL answers repeatedly.

use crate::bindings::polliwog::poller::http as contract;
use crate::notifier_bindings::exports::polliwog::poller::notifier::Guest as NotifierGuest;
use crate::poller_bindings::exports::polliwog::poller::poller::Guest;
use crate::{
    Alert, Channel, Descriptor, Event, Exported, ExportedNotifier, Label, Notification, Notifier, PollError, Poller,
    Report, SendError, Status, Target,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::{CaptureSource, Header, HttpError, HttpErrorClass, Method, Timing, TlsInfo};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Recorded exchanges, and the target of the recorded poll.
#[derive(Clone, Debug)]
pub struct Recording {
    exchanges: Vec<Exchange>,
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
    now: u64,
    timeout_ms: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    request: RecordedRequest,
    response: Option<RecordedResponse>,
    error: Option<RecordedError>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRequest {
    method: String,
    url: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for information")]
    headers: Vec<(String, String)>,
    body: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordedResponse {
    status: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_base64: Option<String>,
    #[serde(default)]
    total_ms: f64,
    tls: Option<RecordedTls>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordedTls {
    fingerprint: String,
    subject: String,
    issuer: String,
    not_before: u64,
    not_after: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedError {
    #[serde(default)]
    class: RecordedClass,
    code: String,
    message: String,
    retryable: bool,
}

/// The names of the classes in a file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedClass {
    Refused,
    NameLookup,
    ConnectionRefused,
    ConnectionFailed,
    Certificate,
    Protocol,
    Closed,
    Timeout,
    PollOver,
    BodyTooLarge,
    /// A recording of a replay.
    NotRecorded,
    #[default]
    Other,
}

impl From<RecordedClass> for HttpErrorClass {
    fn from(class: RecordedClass) -> Self {
        match class {
            RecordedClass::Refused => Self::Refused,
            RecordedClass::NameLookup => Self::NameLookup,
            RecordedClass::ConnectionRefused => Self::ConnectionRefused,
            RecordedClass::ConnectionFailed => Self::ConnectionFailed,
            RecordedClass::Certificate => Self::Certificate,
            RecordedClass::Protocol => Self::Protocol,
            RecordedClass::Closed => Self::Closed,
            RecordedClass::Timeout => Self::Timeout,
            RecordedClass::PollOver => Self::PollOver,
            RecordedClass::BodyTooLarge => Self::BodyTooLarge,
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
        let (exchanges, target) = match serde_json::from_str(text) {
            Ok(File::Exchanges(exchanges)) => (exchanges, None),
            Ok(File::Whole(whole)) => (whole.exchanges, Some(whole.target)),
            Err(error) => panic!("this is not a recording: {error}"),
        };
        for exchange in &exchanges {
            let one = exchange.response.is_some() != exchange.error.is_some();
            assert!(one, "{}: an exchange must have either a response or an error", exchange.request.url);
        }
        Self { exchanges, target }
    }

    /// Returns the target of the recorded poll, or [`target`] if the recording does not contain one.
    pub fn target(&self) -> Target {
        let plain = target("{}");
        let Some(recorded) = self.target.clone() else { return plain };
        let settings = if recorded.settings.is_null() { plain.settings } else { recorded.settings.to_string() };
        let labels = recorded.labels.into_iter().map(|(name, value)| Label { name, value }).collect();
        Target {
            url: recorded.url,
            also: recorded.also,
            labels,
            settings,
            secrets: recorded.secrets,
            now: recorded.now,
            timeout_ms: recorded.timeout_ms,
            ..plain
        }
    }

    /// Creates a recording of one GET request to the target's URL, answered with status 200 and this body.
    pub fn of_body(body: impl AsRef<[u8]>) -> Self {
        let exchange = Exchange {
            request: RecordedRequest { method: "GET".to_owned(), url: String::new(), headers: Vec::new(), body: None },
            response: Some(RecordedResponse {
                status: 200,
                reason: "OK".to_owned(),
                headers: Vec::new(),
                body: None,
                body_base64: Some(STANDARD.encode(body)),
                total_ms: 1.0,
                tls: None,
            }),
            error: None,
        };
        Self { exchanges: vec![exchange], target: None }
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
            status: response.status,
            reason: response.reason,
            headers: response.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
            body,
            timing: Timing { dns_ms: 0.0, connect_ms: 0.0, tls_ms: 0.0, first_byte_ms: total_ms, total_ms },
            tls: response.tls.map(|tls| TlsInfo {
                fingerprint: tls.fingerprint,
                subject: tls.subject,
                issuer: tls.issuer,
                not_before: tls.not_before,
                not_after: tls.not_after,
            }),
        }
    }
}

/// Creates a target with these settings (JSON text) and the URL `http://127.0.0.1:8080/`. The time is fixed, on 20 July
/// 2026.
pub fn target(settings: &str) -> Target {
    Target {
        id: "test".to_owned(),
        name: "Test".to_owned(),
        url: "http://127.0.0.1:8080/".to_owned(),
        also: Vec::new(),
        labels: Vec::new(),
        settings: settings.to_owned(),
        secrets: Vec::new(),
        now: 1_784_578_620_000,
        timeout_ms: 10_000,
    }
}

/// Runs one poll. The requests are answered from a recording.
pub fn poll<P: Poller>(recording: Recording, target: Target) -> Result<Report, PollError> {
    let replay = Replay::new(recording, &target.url, &target.secrets);
    REPLAY.with(|slot| *slot.borrow_mut() = Some(replay));
    let result = Exported::<P>::poll(target);
    REPLAY.with(|slot| *slot.borrow_mut() = None);
    result
}

/// Sends one notification. The requests are answered from a recording.
pub fn send<N: Notifier>(recording: Recording, channel: Channel, notification: Notification) -> Result<(), SendError> {
    let replay = Replay::new(recording, &channel.url, &channel.secrets);
    REPLAY.with(|slot| *slot.borrow_mut() = Some(replay));
    let result = <ExportedNotifier<N> as NotifierGuest>::send(channel, notification);
    REPLAY.with(|slot| *slot.borrow_mut() = None);
    result
}

/// Creates a channel without settings and secrets and with the URL `http://127.0.0.1:8080/`. Its time is 12 min after
/// the start of the alerts of [`notification`].
pub fn channel() -> Channel {
    Channel {
        name: "ops".to_owned(),
        url: "http://127.0.0.1:8080/".to_owned(),
        settings: "{}".to_owned(),
        secrets: Vec::new(),
        now: 1_784_578_620_000,
        timeout_ms: 10_000,
    }
}

/// Creates a notification of one alert for each of these events.
pub fn notification(events: &[Event]) -> Notification {
    let alert = |event: &Event| Alert {
        fingerprint: "5f2a".to_owned(),
        event: *event,
        status: if *event == Event::Resolved { Status::Ok } else { Status::Critical },
        class: "dependency".to_owned(),
        target_id: Some("shop".to_owned()),
        target_name: "Shop".to_owned(),
        kind: "http".to_owned(),
        dependency: Some("db".to_owned()),
        title: "Database".to_owned(),
        summary: if *event == Event::Resolved { "recovered after 12 min" } else { "connection refused" }.to_owned(),
        since: 1_784_577_900_000,
        resolved_at: (*event == Event::Resolved).then_some(1_784_578_620_000),
        labels: vec![Label { name: "site".to_owned(), value: "zurich".to_owned() }],
        link: Some("http://polliwog.lan/targets/shop".to_owned()),
        suppresses: 2,
    };
    Notification {
        id: "polliwog-7".to_owned(),
        group: vec![Label { name: "target".to_owned(), value: "shop".to_owned() }],
        alerts: events.iter().map(alert).collect(),
        omitted: 0,
        link: Some("http://polliwog.lan/alerts".to_owned()),
    }
}

/// Returns the plugin's descriptor.
pub fn describe<P: Poller>() -> Descriptor {
    Exported::<P>::describe()
}

/// Returns the problems that the plugin finds in settings (JSON text).
pub fn check_settings<P: Poller>(settings: &str) -> Vec<String> {
    Exported::<P>::check_settings(settings.to_owned())
}

struct Replay {
    recording: Recording,
    /// The indexes of the exchanges that have answered.
    used: BTreeSet<usize>,
    base: String,
    secrets: Vec<String>,
}

impl Replay {
    fn new(recording: Recording, base: &str, secrets: &[String]) -> Self {
        Self { recording, used: BTreeSet::new(), base: base.to_owned(), secrets: secrets.to_owned() }
    }

    /// Answers a request as the host does: an exchange with its method, URL and body, else one with its method and URL.
    /// Each answers once, in the order of the recording, and the last one repeatedly.
    fn answer(&mut self, request: &contract::Request) -> Result<contract::Response, HttpError> {
        let (exchanges, base) = (&self.recording.exchanges, &self.base);
        let (method, wanted) = (method(request.method), resolve(base, &request.path));
        let body = request.body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
        let same: Vec<usize> = (0..exchanges.len())
            .filter(|&index| {
                let recorded = &exchanges[index].request;
                recorded.method == method && resolve(base, &recorded.url) == wanted
            })
            .collect();
        let with_body: Vec<usize> =
            same.iter().copied().filter(|&index| exchanges[index].request.body == body).collect();
        let same = if with_body.is_empty() { same } else { with_body };
        let unused = same.iter().find(|index| !self.used.contains(index));
        let Some(&chosen) = unused.or(same.last()) else { panic!("the recording does not contain {method} {wanted}") };
        self.used.insert(chosen);
        let Exchange { response, error, .. } = exchanges[chosen].clone();
        match (response, error) {
            (Some(response), _) => Ok(response.into()),
            (None, Some(error)) => {
                let RecordedError { class, code, message, retryable } = error;
                Err(HttpError { class: class.into(), code, message, retryable })
            }
            (None, None) => unreachable!("checked when the recording was read"),
        }
    }
}

thread_local! {
    static REPLAY: RefCell<Option<Replay>> = const { RefCell::new(None) };
}

fn with_replay<T>(act: impl FnOnce(&mut Replay) -> T) -> T {
    REPLAY.with(|slot| {
        act(slot.borrow_mut().as_mut().expect("requests are made inside `testing::poll` or `testing::send`"))
    })
}

pub(crate) fn fetch(request: &contract::Request) -> Result<contract::Response, HttpError> {
    with_replay(|replay| {
        let response = replay.answer(request)?;
        if (200..300).contains(&response.status) {
            let found = request.captures.iter().filter(|capture| holds(&response, &capture.source));
            replay.secrets.extend(found.map(|capture| capture.name.clone()));
        }
        Ok(response)
    })
}

/// Returns whether a response contains the value to capture. In a recording, the value consists of stars.
fn holds(response: &contract::Response, source: &CaptureSource) -> bool {
    let mut headers = response.headers.iter();
    match source {
        CaptureSource::JsonPointer(pointer) => serde_json::from_slice::<serde_json::Value>(&response.body)
            .is_ok_and(|body| body.pointer(pointer).is_some_and(serde_json::Value::is_string)),
        CaptureSource::Header(name) => headers.any(|header| header.name.eq_ignore_ascii_case(name)),
        CaptureSource::Cookie(name) => headers.any(|header| {
            header.name.eq_ignore_ascii_case("set-cookie") && header.value.starts_with(&format!("{name}="))
        }),
    }
}

pub(crate) fn fetch_all(requests: &[contract::Request]) -> Vec<Result<contract::Response, HttpError>> {
    requests.iter().map(fetch).collect()
}

pub(crate) fn forget_secret(name: &str) {
    with_replay(|replay| replay.secrets.retain(|known| known != name));
}

pub(crate) fn has_secret(name: &str) -> bool {
    with_replay(|replay| replay.secrets.iter().any(|known| known == name))
}

/// The cache of all polls of this thread, independent of their targets. Values do not expire. The limit is the host's
/// limit for one target.
pub(crate) mod cache {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    const MAX_BYTES: usize = 1 << 20;
    /// Counted for each entry in addition to its key and value.
    const OVERHEAD: usize = 128;

    thread_local! {
        static VALUES: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(crate) fn get(key: &str) -> Option<Vec<u8>> {
        VALUES.with(|values| values.borrow().get(key).cloned())
    }

    pub(crate) fn set(key: &str, value: &[u8], _ttl_ms: u32) -> Result<(), String> {
        VALUES.with(|values| {
            let mut values = values.borrow_mut();
            values.remove(key);
            let size = |(key, value): (&String, &Vec<u8>)| key.len() + value.len() + OVERHEAD;
            if values.iter().map(size).sum::<usize>() + key.len() + value.len() + OVERHEAD > MAX_BYTES {
                return Err(format!("a target can store at most {MAX_BYTES} bytes"));
            }
            values.insert(key.to_owned(), value.to_owned());
            Ok(())
        })
    }

    pub(crate) fn remove(key: &str) {
        VALUES.with(|values| values.borrow_mut().remove(key));
    }
}

/// Resolves `path` against `base`, for the few forms that occur in recordings.
fn resolve(base: &str, path: &str) -> String {
    let origin_end = base.find("://").map_or(0, |at| base[at + 3..].find('/').map_or(base.len(), |end| at + 3 + end));
    if path.is_empty() {
        base.to_owned()
    } else if path.contains("://") {
        path.to_owned()
    } else if path.starts_with('/') {
        format!("{}{path}", &base[..origin_end])
    } else {
        let folder = base.rfind('/').filter(|&at| at >= origin_end).unwrap_or(base.len());
        format!("{}/{path}", &base[..folder])
    }
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
        Method::Options => "OPTIONS",
    }
}
