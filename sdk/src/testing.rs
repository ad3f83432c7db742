//! Tests plugins natively with recorded exchanges.
//!
//! A recording is a JSON file with a list of exchanges. Each exchange has a request and its response or error.
//! `polliwog poll --record` writes an object with `kind`, `target` (the data of the target at that poll: `url`, `also`,
//! `labels`, `settings`, names of `secrets`, `now`, `timeoutMs`) and `exchanges`. `polliwog plugin send --record` adds
//! the `event` of the notification. With `--polls N`, `later` has the `now` and the `exchanges` of each further poll:
//! [`Recording::polls`].
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

mod recording;

use crate::bindings::exports::polliwog::plugin::definition::Guest as DefinitionGuest;
use crate::bindings::exports::polliwog::plugin::notifier::Guest as NotifierGuest;
use crate::bindings::exports::polliwog::plugin::poller::Guest as PollerGuest;
use crate::bindings::polliwog::plugin::http as contract;
use crate::http::TlsSession;
use crate::{
    Alert, CallError, Descriptor, Endpoint, Event, Exported, ExportedNotifier, Label, Notification, Notifier, Poller,
    Report, SettingsProblem, Status,
};
use contract::{Capture, CaptureSource, HttpError, HttpErrorClass};
use recording::{Exchange, RecordedError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

pub use recording::{Recording, target};

/// The time of calls unless [`set_time`] sets another: 20 July 2026, in milliseconds since the Unix epoch.
pub const TIME: i64 = 1_784_578_620_000;

/// The rest of the time of each call, in milliseconds.
const TIMEOUT_MS: u32 = 10_000;

/// Sets the time of the calls of this thread, in milliseconds since the Unix epoch. A recording of `poll --record` sets
/// its own.
pub fn set_time(now: i64) {
    NOW.set(now);
}

/// Runs one poll. The requests are answered from a recording.
///
/// # Errors
/// If the poll fails.
pub fn poll<P: Poller>(recording: Recording, target: Endpoint) -> Result<Report, CallError> {
    replayed(recording, &target.clone(), || <Exported<P> as PollerGuest>::poll(target))
}

/// Sends one notification. The requests are answered from a recording.
///
/// # Errors
/// If the receiver does not accept it.
pub fn send<N: Notifier>(recording: Recording, channel: Endpoint, notification: Notification) -> Result<(), CallError> {
    replayed(recording, &channel.clone(), || <ExportedNotifier<N> as NotifierGuest>::send(channel, notification))
}

fn replayed<T>(recording: Recording, endpoint: &Endpoint, call: impl FnOnce() -> T) -> T {
    if let Some(now) = recording.now() {
        set_time(now);
    }
    let mut replay = Replay::new(recording, &endpoint.url, &endpoint.secrets);
    CAPTURED.with_borrow(|captured| replay.secrets.extend_from_slice(captured));
    REPLAY.with(|slot| *slot.borrow_mut() = Some(replay));
    let result = call();
    if let Some(mut replay) = REPLAY.take() {
        replay.secrets.retain(|name| !endpoint.secrets.contains(name));
        CAPTURED.set(replay.secrets);
    }
    result
}

/// Creates a channel without settings and secrets and with the URL `http://127.0.0.1:8080/`. [`TIME`] is 12 min after
/// the start of the alerts of [`notification`].
pub fn channel() -> Endpoint {
    Endpoint { id: "ops".to_owned(), name: "Ops".to_owned(), ..target("{}") }
}

/// Creates a notification of one alert for each of these events.
pub fn notification(events: &[Event]) -> Notification {
    let alert = |event: &Event| Alert {
        fingerprint: "5f2a".to_owned(),
        event: event.as_str().to_owned(),
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
        object_link: None,
        suppresses: 2,
        extra: Vec::new(),
    };
    Notification {
        id: "polliwog-7".to_owned(),
        created_at: TIME,
        attempt: 1,
        group: vec![Label { name: "target".to_owned(), value: "shop".to_owned() }],
        alerts: events.iter().map(alert).collect(),
        omitted: 0,
        link: Some("http://polliwog.lan/alerts".to_owned()),
        extra: Vec::new(),
    }
}

/// Returns the plugin's descriptor.
pub fn describe<P: Poller>() -> Descriptor {
    <Exported<P> as DefinitionGuest>::describe()
}

/// Returns the problems that the plugin finds in settings (JSON text).
pub fn check_settings<P: Poller>(settings: &str) -> Vec<SettingsProblem> {
    <Exported<P> as DefinitionGuest>::check_settings(settings.to_owned())
}

struct Replay {
    recording: Recording,
    /// The indexes of the exchanges that have answered.
    used: BTreeSet<usize>,
    /// The TLS sessions of the requests so far.
    sessions: Vec<Option<TlsSession>>,
    base: String,
    secrets: Vec<String>,
}

impl Replay {
    fn new(recording: Recording, base: &str, secrets: &[String]) -> Self {
        Self {
            recording,
            used: BTreeSet::new(),
            sessions: Vec::new(),
            base: base.to_owned(),
            secrets: secrets.to_owned(),
        }
    }

    /// Answers a request as the host does: an exchange with its method, URL and body, else one with its method and URL.
    /// Each answers once, in the order of the recording, and the last one repeatedly.
    fn answer(&mut self, request: &contract::Request) -> Result<contract::Response, HttpError> {
        let (exchanges, base) = (self.recording.exchanges(), &self.base);
        let (method, wanted) = (request.method.as_str(), resolve(base, &request.path));
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
        let Exchange { response, error, tls, .. } = exchanges[chosen].clone();
        let exchange = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        self.sessions.push(tls.map(Into::into));
        match (response, error) {
            (Some(response), _) => Ok(contract::Response { exchange, ..response.into() }),
            (None, Some(error)) => {
                let RecordedError { status, class, code, message, retryable } = error;
                Err(HttpError { exchange: Some(exchange), status, class: class.into(), code, message, retryable })
            }
            (None, None) => unreachable!("checked when the recording was read"),
        }
    }
}

thread_local! {
    static REPLAY: RefCell<Option<Replay>> = const { RefCell::new(None) };
    static NOW: Cell<i64> = const { Cell::new(TIME) };
    /// The names of the secrets that the calls of this thread have captured.
    static CAPTURED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

pub(crate) mod clock {
    pub(crate) fn now() -> i64 {
        super::NOW.get()
    }

    pub(crate) fn utc_offset_minutes(_: i64) -> i32 {
        0
    }

    pub(crate) fn time_zone() -> String {
        "UTC".to_owned()
    }

    pub(crate) fn remaining_ms() -> u32 {
        super::TIMEOUT_MS
    }
}

/// The progress that the last notification of this thread recorded.
pub(crate) mod progress {
    use super::Recorded;
    use crate::Failure;
    use std::cell::RefCell;

    thread_local! {
        static RECORDED: RefCell<Vec<Recorded>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn sent(fingerprint: &str) {
        RECORDED.with_borrow_mut(|recorded| recorded.push((fingerprint.to_owned(), None)));
    }

    pub(crate) fn refused(fingerprint: &str, reason: Failure) {
        RECORDED.with_borrow_mut(|recorded| recorded.push((fingerprint.to_owned(), Some(reason))));
    }

    pub(crate) fn take() -> Vec<Recorded> {
        RECORDED.take()
    }
}

/// A fingerprint, and the reason if the receiver refuses the alert.
pub type Recorded = (String, Option<crate::Failure>);

/// Returns what the notifications of this thread have recorded with [`crate::progress`] since the last call.
pub fn recorded_progress() -> Vec<Recorded> {
    progress::take()
}

fn with_replay<T>(act: impl FnOnce(&mut Replay) -> T) -> T {
    REPLAY.with(|slot| {
        act(slot.borrow_mut().as_mut().expect("requests are made inside `testing::poll` or `testing::send`"))
    })
}

pub(crate) fn fetch(request: &contract::Request) -> Result<contract::Response, HttpError> {
    with_replay(|replay| {
        let response = replay.answer(request)?;
        let mut missing = None;
        for capture in request.captures.iter().filter(|capture| covers(capture, response.status)) {
            // A recording has stars in place of the value, which a pattern may not match.
            let is_pattern = matches!(capture.source, CaptureSource::Pattern(_));
            if holds(&response, &capture.source) || is_pattern && !capture.optional {
                replay.secrets.push(capture.name.clone());
            } else if !capture.optional {
                missing.get_or_insert(capture.name.as_str());
            }
        }
        match missing {
            None => Ok(response),
            Some(name) => Err(HttpError {
                exchange: Some(response.exchange),
                status: Some(response.status),
                class: HttpErrorClass::Capture,
                code: "capture_missing".to_owned(),
                message: format!("the answer has no value for the captured secret {name:?}"),
                retryable: true,
            }),
        }
    })
}

/// Returns whether responses with this status have the value of a capture.
fn covers(capture: &Capture, status: u16) -> bool {
    match capture.statuses.as_slice() {
        [] => (200..300).contains(&status),
        statuses => statuses.iter().any(|range| (range.lowest..=range.highest).contains(&status)),
    }
}

/// Returns whether a response contains the value to capture. In a recording, the value consists of stars.
fn holds(response: &contract::Response, source: &CaptureSource) -> bool {
    let mut headers = response.headers.iter();
    match source {
        CaptureSource::JsonPointer(pointer) => {
            serde_json::from_slice::<serde_json::Value>(&response.body).is_ok_and(|body| {
                body.pointer(pointer).is_some_and(|value| value.is_string() || value.is_number() || value.is_boolean())
            })
        }
        CaptureSource::Header(name) => headers.any(|header| header.name.eq_ignore_ascii_case(name)),
        CaptureSource::Pattern(pattern) => {
            let regex = regex_lite::Regex::new(pattern).expect("the pattern of a capture is a regular expression");
            let body = std::str::from_utf8(&response.body).unwrap_or_default();
            regex.captures(body).is_some_and(|found| found.get(1).is_some())
        }
        CaptureSource::Cookie(name) => headers.any(|header| {
            header.name.eq_ignore_ascii_case("set-cookie") && header.value.starts_with(&format!("{name}="))
        }),
    }
}

pub(crate) fn fetch_all(requests: &[contract::Request]) -> Vec<Result<contract::Response, HttpError>> {
    requests.iter().map(fetch).collect()
}

pub(crate) fn tls_of(exchange: u32) -> Option<TlsSession> {
    with_replay(|replay| replay.sessions.get(exchange as usize)?.clone())
}

/// A reference as recordings have it.
pub(crate) fn reference(name: &str) -> String {
    format!("${{{name}}}")
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
    use crate::cache::CacheError;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    const MAX_BYTES: usize = 1 << 20;
    const MAX_KEY_BYTES: usize = 256;
    const MAX_TTL_MS: u32 = 604_800_000;
    /// Counted for each entry in addition to its key and value.
    const OVERHEAD: usize = 128;

    thread_local! {
        static VALUES: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(crate) fn get(key: &str) -> Option<Vec<u8>> {
        VALUES.with(|values| values.borrow().get(key).cloned())
    }

    pub(crate) fn set(key: &str, value: &[u8], ttl_ms: u32) -> Result<(), CacheError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !(1..=MAX_TTL_MS).contains(&ttl_ms) {
            return Err(CacheError::InvalidArgument);
        }
        VALUES.with(|values| {
            let mut values = values.borrow_mut();
            values.remove(key);
            let size = |(key, value): (&String, &Vec<u8>)| key.len() + value.len() + OVERHEAD;
            if values.iter().map(size).sum::<usize>() + key.len() + value.len() + OVERHEAD > MAX_BYTES {
                return Err(CacheError::Full);
            }
            values.insert(key.to_owned(), value.to_owned());
            Ok(())
        })
    }

    pub(crate) fn remove(key: &str) {
        VALUES.with(|values| values.borrow_mut().remove(key));
    }

    pub(crate) fn clear() {
        VALUES.with(|values| values.borrow_mut().clear());
    }
}

/// The stored values of all calls of this thread, independent of their targets. The limits are those of the host.
pub(crate) mod store {
    use crate::store::StoreError;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    const MAX_BYTES: usize = 64 << 10;
    const MAX_KEYS: usize = 64;
    const MAX_KEY_BYTES: usize = 256;

    thread_local! {
        static VALUES: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(crate) fn get(key: &str) -> Option<Vec<u8>> {
        VALUES.with_borrow(|values| values.get(key).cloned())
    }

    pub(crate) fn set(key: &str, value: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(StoreError::InvalidArgument);
        }
        VALUES.with_borrow_mut(|values| {
            let others = values.iter().filter(|(other, _)| *other != key);
            let (count, bytes) = others.fold((1, key.len() + value.len()), |(count, bytes), (key, value)| {
                (count + 1, bytes + key.len() + value.len())
            });
            if count > MAX_KEYS || bytes > MAX_BYTES {
                return Err(StoreError::Full);
            }
            values.insert(key.to_owned(), value.to_owned());
            Ok(())
        })
    }

    pub(crate) fn remove(key: &str) {
        VALUES.with_borrow_mut(|values| values.remove(key));
    }

    pub(crate) fn keys() -> Vec<String> {
        VALUES.with_borrow(|values| values.keys().cloned().collect())
    }

    pub(crate) fn clear() {
        VALUES.with_borrow_mut(BTreeMap::clear);
    }
}

/// Forgets what the calls of this thread have captured, cached and stored, as for a new target.
pub fn forget() {
    CAPTURED.take();
    cache::clear();
    store::clear();
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
