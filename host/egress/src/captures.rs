//! Secrets captured from answers, for example the ticket of a login.
//!
//! A plugin names the place of the value in an answer. The host keeps the value in memory only, for this target and
//! this version of its plugin. The plugin sees stars in that place and uses the value by its name, like any other
//! secret.
//!
//! A captured value is masked by its place in the answer that contains it, together with the values of all cookies of
//! that answer. It
//! is not searched by value: servers derive tickets from what they receive, so a plugin that chooses what it sends
//! could learn an operator's secret from the positions of the stars.

use crate::Error;
use crate::authentication::Challenges;
use crate::cookie;
use crate::mask::{self, Region, SHORTEST};
use crate::message::{Capture, CaptureSource, Request};
use crate::references::is_name;
use crate::secrets::{Secrets, Values, check_characters};
use regex_lite::{Regex, RegexBuilder};
use secrecy::SecretString;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::time::Instant;

mod pointer;
use pointer::Found;

/// Maximum number of captures of one request, and of stored values of one target.
const MAX_CAPTURES: usize = 16;
/// Maximum length of a value in bytes. A Proxmox ticket has about 400.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// Maximum length of the name of a header or cookie, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length of a JSON pointer in bytes.
const MAX_POINTER_BYTES: usize = 256;
/// Maximum length of a pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 10;
/// Maximum size of a compiled pattern in bytes. A search takes time in proportion to this size and the body's.
const MAX_COMPILED_BYTES: usize = 8 << 10;
/// Maximum length in bytes of a body that is searched by a pattern.
const MAX_SEARCHED_BYTES: usize = 256 << 10;
/// Maximum number of bytes that the patterns of one poll search.
const MAX_POLL_SEARCHED_BYTES: usize = 2 << 20;
/// Maximum number of ranges of statuses of one capture.
const MAX_STATUSES: usize = 16;
/// Maximum number of steps of a JSON pointer.
const MAX_POINTER_STEPS: usize = 8;
/// Maximum length in bytes of a body that is searched by a JSON pointer. Answers to a log-in are short.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum lifetime of a captured value.
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The captured values of one target and one version of its plugin. They are never printed.
#[derive(Debug, Default)]
pub struct Captured {
    state: Mutex<State>,
    /// `None` if all values are kept in memory only.
    durable: Mutex<Option<Arc<dyn DurableStore>>>,
    /// Held by the calls that use the values, so that the end of the session can wait for them.
    calls: Arc<RwLock<()>>,
    /// Held while durable values are stored.
    storing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) challenges: Challenges,
}

/// Stores the durable values of a target, so that they survive a restart.
pub trait DurableStore: fmt::Debug + Send + Sync {
    /// Stores the values in place of the earlier ones. May block.
    ///
    /// # Errors
    /// Why they cannot be stored, to complete "it cannot be stored: ".
    fn store(&self, values: &[DurableValue]) -> Result<(), String>;

    /// From now on, nothing is stored, also by a call of [`Self::store`] that has begun.
    fn close(&self);
}

/// A captured value that survives a restart.
#[derive(Clone, Debug)]
pub struct DurableValue {
    /// The name of the secret.
    pub name: String,
    /// The value.
    pub value: SecretString,
    /// The time until it expires.
    pub left: Duration,
}

/// A captured value.
#[derive(Clone, Debug)]
struct Value {
    text: SecretString,
    expires: Instant,
    is_durable: bool,
}

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<String, Value>,
    /// Whether the durable values differ from the stored ones.
    is_unstored: bool,
    /// A copy of the values that have not expired, ready for use.
    valid: Arc<Values>,
    /// Names of captures whose value was missing in the answer, with the reason.
    missed: BTreeMap<String, String>,
}

impl Captured {
    /// Restores stored values.
    pub fn restored(durable: Arc<dyn DurableStore>, stored: Vec<DurableValue>) -> Self {
        let now = Instant::now();
        let value = |DurableValue { name, value, left }| {
            (name, Value { text: value, expires: now + left.min(MAX_TTL), is_durable: true })
        };
        let mut state = State { values: stored.into_iter().map(value).collect(), ..State::default() };
        state.update_valid();
        Self { state: Mutex::new(state), durable: Mutex::new(Some(durable)), ..Self::default() }
    }

    /// From now on, nothing is stored: the values belong to a target that is gone.
    pub fn disconnect(&self) {
        if let Some(durable) = self.durable.lock().unwrap_or_else(PoisonError::into_inner).take() {
            durable.close();
        }
    }

    /// Returns whether there are values that have not expired.
    pub fn has_values(&self) -> bool {
        !self.valid().is_empty()
    }

    /// Waits until no call uses the values.
    pub async fn unused(&self) {
        let _calls = self.calls.write().await;
    }

    /// Returns the values that do not survive a restart.
    #[must_use]
    pub fn passing(&self) -> Self {
        let held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passing = held.values.iter().filter(|(_, value)| !value.is_durable);
        let values = passing.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut state = State { values, ..State::default() };
        state.update_valid();
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Begins a call that uses the values.
    pub(crate) fn used(&self) -> Option<OwnedRwLockReadGuard<()>> {
        self.calls.clone().try_read_owned().ok()
    }

    /// Stores the durable values if they changed. `name` is that of the latest change, for the error.
    pub(crate) async fn store_changed(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(durable) = durable.filter(|_| self.state().is_unstored) else { return Ok(()) };
        // The turn ends with the write, although the caller may not wait for it.
        let turn = self.storing.clone().lock_owned().await;
        let Some(values) = self.state().unstored() else { return Ok(()) };
        let captured = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let stored = durable.store(&values);
            captured.state().is_unstored |= stored.is_err();
            drop(turn);
            stored
        });
        writing
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
            .map_err(|why| Error::CaptureRefused { name: name.to_owned(), why: format!("it cannot be stored: {why}") })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the values that have not expired.
    pub(crate) fn valid(&self) -> Arc<Values> {
        let mut state = self.state();
        if !state.values.is_empty() {
            let now = Instant::now();
            if state.values.values().any(|value| value.expires <= now) {
                state.values.retain(|_, value| value.expires > now);
                state.update_valid();
            }
        }
        state.valid.clone()
    }

    /// Returns why the capture of this name found no value. `None` if no capture failed.
    pub(crate) fn missed(&self, name: &str) -> Option<String> {
        self.state().missed.get(name).cloned()
    }

    pub(crate) fn forget(&self, name: &str) {
        let mut state = self.state();
        if let Some(removed) = state.values.remove(name) {
            state.is_unstored |= removed.is_durable;
            state.update_valid();
        }
    }

    /// Stores the values that the answer contains and returns their places.
    ///
    /// Fails if the answer has a status with which it should contain a value that it lacks, if a value cannot be a
    /// secret, or if the plugin itself sent it. The other values are stored.
    pub(crate) fn keep(&self, captures: &[Capture], sent: &Sent, answer: &Answer<'_>) -> Result<Vec<Place>, Error> {
        if captures.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.state();
        let mut places = answer.cookies();
        let mut result = Ok(());
        for capture in captures {
            if !capture.covers(answer.status) {
                state.miss(capture, format!("was answered with status {}", answer.status));
                continue;
            }
            let kept = match answer.find(capture) {
                Ok(Some((value, place))) => {
                    places.extend(place);
                    state.keep(capture, value, (sent, answer))
                }
                Ok(None) => {
                    let why = format!("has none {}", capture.source.place());
                    state.miss(capture, format!("had no value {}", capture.source.place()));
                    if capture.optional {
                        Ok(())
                    } else {
                        Err(Error::CaptureNotFound { name: capture.name.clone(), why })
                    }
                }
                Err(error) => Err(error),
            };
            result = result.and(kept);
        }
        state.update_valid();
        result.map(|()| places)
    }
}

impl State {
    /// Records that the answer lacks a value. The number of names has the same bound as the number of values.
    fn miss(&mut self, capture: &Capture, why: String) {
        if self.missed.len() < MAX_CAPTURES || self.missed.contains_key(&capture.name) {
            self.missed.insert(capture.name.clone(), why);
        }
    }

    fn keep(&mut self, capture: &Capture, value: String, (sent, answer): (&Sent, &Answer<'_>)) -> Result<(), Error> {
        let Capture { name, ttl, durable, .. } = capture;
        let refused = |why: String| Error::CaptureRefused { name: name.clone(), why };
        if value.len() > MAX_VALUE_BYTES {
            return Err(refused(format!("it is longer than {MAX_VALUE_BYTES} bytes")));
        }
        if self.values.len() >= MAX_CAPTURES && !self.values.contains_key(name) {
            return Err(refused(format!("{MAX_CAPTURES} values are already stored")));
        }
        if value.len() < SHORTEST && (!answer.permits_short || value.is_empty()) {
            return Err(Error::CaptureTooShort { name: name.clone() });
        }
        check_characters(name, &value).map_err(|error| refused(error.to_string()))?;
        // A short value can be a part of anything.
        if value.len() >= SHORTEST && sent.contains(&value) {
            return Err(refused("the plugin itself sent this value".to_owned()));
        }
        self.missed.remove(name);
        let expires = Instant::now() + (*ttl).min(MAX_TTL);
        let value = Value { text: SecretString::from(value), expires, is_durable: *durable };
        let replaced = self.values.insert(name.clone(), value);
        self.is_unstored |= *durable || replaced.is_some_and(|replaced| replaced.is_durable);
        Ok(())
    }

    fn update_valid(&mut self) {
        self.valid = Arc::new(self.values.iter().map(|(name, value)| (name.clone(), value.text.clone())).collect());
    }

    /// Returns the durable values if they differ from the stored ones, which they now count as.
    fn unstored(&mut self) -> Option<Vec<DurableValue>> {
        let now = Instant::now();
        let durable = self.values.iter().filter(|(_, value)| value.is_durable);
        let durable = durable.map(|(name, value)| DurableValue {
            name: name.clone(),
            value: value.text.clone(),
            left: value.expires.saturating_duration_since(now),
        });
        std::mem::take(&mut self.is_unstored).then(|| durable.collect())
    }
}

/// The texts of a request with captures, before secrets are inserted.
#[derive(Default)]
pub(crate) struct Sent(Vec<String>);

impl Sent {
    /// Returns the texts of a request. Empty if the request has no captures, because they are not needed then.
    pub(crate) fn of(request: &Request) -> Self {
        if request.captures.is_empty() {
            return Self::default();
        }
        let headers = request.headers.iter().map(|(_, value)| value.clone());
        let body = request.body.iter().map(|body| String::from_utf8_lossy(body).into_owned());
        Self([request.path.clone()].into_iter().chain(headers).chain(body).collect())
    }

    fn contains(&self, value: &str) -> bool {
        self.0.iter().any(|text| text.contains(value))
    }
}

/// Checks the captures of a request. A capture must not use the name of a secret in `operators`.
pub(crate) fn check(request: &Request, operators: &Secrets) -> Result<(), Error> {
    let bad = |why: String| Err(Error::BadRequest(why));
    if request.captures.len() > MAX_CAPTURES {
        return bad(format!("it captures more than {MAX_CAPTURES} values"));
    }
    for Capture { name, source, statuses, .. } in &request.captures {
        if statuses.len() > MAX_STATUSES {
            return bad(format!("it captures {name:?} with more than {MAX_STATUSES} ranges of statuses"));
        }
        if !is_name(name) {
            return bad("the name of a capture is not 1 to 64 letters, digits, _ and -".to_owned());
        }
        if operators.contains(name) {
            return bad(format!(
                "it captures {name:?}, which is already the name of a configured secret of the target"
            ));
        }
        match source {
            CaptureSource::JsonPointer(pointer)
                if pointer.len() > MAX_POINTER_BYTES || pointer.matches('/').count() > MAX_POINTER_STEPS =>
            {
                return bad(format!(
                    "it captures {name:?} by a JSON pointer of more than {MAX_POINTER_BYTES} bytes or \
                     {MAX_POINTER_STEPS} steps"
                ));
            }
            CaptureSource::Header(of) | CaptureSource::Cookie(of) if of.len() > MAX_NAME_BYTES => {
                return bad(format!(
                    "it captures {name:?} from a header or cookie of more than {MAX_NAME_BYTES} bytes"
                ));
            }
            CaptureSource::Pattern(pattern) => {
                compiled(pattern)
                    .map_err(|why| Error::BadRequest(format!("it captures {name:?} by a pattern {why}")))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compiles the pattern of a capture. The error completes "a pattern".
fn compiled(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("of more than {MAX_PATTERN_BYTES} bytes"));
    }
    let built = RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build();
    let regex = built.map_err(|error| format!("that cannot be compiled: {error}"))?;
    if regex.captures_len() < 2 { Err("without a group: put the value into parentheses".to_owned()) } else { Ok(regex) }
}

/// The places of patterns in a body. `None` for one that does not match.
pub(crate) type Matches = BTreeMap<String, Option<Range<usize>>>;

/// Searches a body for the patterns of captures, on another thread, because a search can take a second. `searched` has
/// the bytes that the poll has searched so far.
pub(crate) async fn matches(
    captures: &[Capture],
    (status, body): (u16, &[u8]),
    searched: &AtomicUsize,
) -> Result<Matches, Error> {
    let pattern = |capture: &Capture| match &capture.source {
        CaptureSource::Pattern(pattern) if capture.covers(status) => Some(pattern.clone()),
        _ => None,
    };
    let patterns: BTreeSet<String> = captures.iter().filter_map(pattern).collect();
    if patterns.is_empty() || body.len() > MAX_SEARCHED_BYTES {
        return Ok(Matches::new());
    }
    let work = patterns.len() * body.len();
    if searched.fetch_add(work, Ordering::Relaxed).saturating_add(work) > MAX_POLL_SEARCHED_BYTES {
        return Err(Error::TooMuchSearched { limit: MAX_POLL_SEARCHED_BYTES });
    }
    let body = body.to_vec();
    let searching = tokio::task::spawn_blocking(move || {
        let Ok(body) = std::str::from_utf8(&body) else { return Matches::new() };
        let place = |pattern: &str| Some(compiled(pattern).ok()?.captures(body)?.get(1)?.range());
        patterns.into_iter().map(|pattern| (pattern.clone(), place(&pattern))).collect()
    });
    Ok(searching.await.unwrap_or_default())
}

/// The parts of a masked answer that can contain a value to capture.
pub(crate) struct Answer<'a> {
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
    /// Whether asterisks replace a secret somewhere in the answer.
    pub is_masked: bool,
    /// Whether the operator permits values that are too short to be masked in other answers.
    pub permits_short: bool,
    /// Whether it is that of a recording.
    pub is_replayed: bool,
    /// The places of the patterns of captures in the body.
    pub matches: &'a Matches,
}

/// The position of a captured value in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The content of a JSON string in the body, and the length in bytes of the decoded string.
    Body(Range<usize>, usize),
    /// A byte range in the value of the header with this index.
    Header(usize, Range<usize>),
}

impl Place {
    /// Replaces each place by stars. Masking is by place and never by value: a plugin that guesses a captured value
    /// must not see whether the guess is right, because the server may have derived the value from an operator's
    /// secret.
    pub(crate) fn star(places: Vec<Self>, headers: &mut [(String, String)], body: &mut Vec<u8>) {
        let mut in_body = Vec::new();
        for place in places {
            match place {
                Self::Body(source, stars) => in_body.push(Region { source, stars }),
                // A region without stars stands for a JSON number.
                Self::Header(_, range) if range.is_empty() => {}
                Self::Header(index, range) => {
                    if let Some((_, value)) = headers.get_mut(index) {
                        let region = Region { stars: range.len(), source: range };
                        let starred = mask::replaced(std::mem::take(value).into_bytes(), vec![region]);
                        *value = String::from_utf8_lossy(&starred).into_owned();
                    }
                }
            }
        }
        *body = mask::replaced(std::mem::take(body), in_body);
    }
}

impl Answer<'_> {
    /// Returns a value and its place. A value that touches a masked secret is not found: whether it can be stored would
    /// depend on the secret.
    fn find(&self, capture: &Capture) -> Result<Option<(String, Option<Place>)>, Error> {
        let is_touched = |value: &str| self.is_masked && value.contains(&"*".repeat(SHORTEST));
        Ok(self.find_any(capture)?.filter(|(value, _)| !is_touched(value)))
    }

    fn find_any(&self, capture: &Capture) -> Result<Option<(String, Option<Place>)>, Error> {
        let too_long = |limit| {
            let why = format!("the answer is longer than {limit} bytes");
            Err(Error::CaptureRefused { name: capture.name.clone(), why })
        };
        match &capture.source {
            CaptureSource::JsonPointer(_) if self.body.len() > MAX_BODY_BYTES => too_long(MAX_BODY_BYTES),
            CaptureSource::Pattern(_) if self.body.len() > MAX_SEARCHED_BYTES => too_long(MAX_SEARCHED_BYTES),
            CaptureSource::JsonPointer(pointer) => {
                let found = pointer::pointed(self.body, pointer);
                Ok(found.map(|Found { value, place, stars }| (value, Some(Place::Body(place, stars)))))
            }
            CaptureSource::Pattern(pattern) => {
                let found = self.matches.get(pattern).cloned().flatten();
                let value = |place: &Range<usize>| String::from_utf8_lossy(&self.body[place.clone()]).into_owned();
                let found = found.map(|place| (value(&place), Some(Place::Body(place.clone(), place.len()))));
                // A recording has stars in place of the value, which the pattern may not match.
                let replayed = || (self.is_replayed && !capture.optional).then(|| ("*".repeat(SHORTEST), None));
                Ok(found.or_else(replayed))
            }
            CaptureSource::Header(name) => Ok(self.named(name).next().map(|(index, value)| {
                let place = Place::Header(index, 0..value.len());
                (value.to_owned(), Some(place))
            })),
            CaptureSource::Cookie(name) => Ok(self.named("set-cookie").find_map(|(index, header)| {
                let (found, value) = cookie::set_by(header);
                (found == name).then(|| (header[value.clone()].to_owned(), Some(Place::Header(index, value))))
            })),
        }
    }

    /// Returns the places of the values of all cookies that the answer sets. The value that the body contains often
    /// occurs in a cookie as well.
    fn cookies(&self) -> Vec<Place> {
        self.named("set-cookie").map(|(index, header)| Place::Header(index, cookie::set_by(header).1)).collect()
    }

    fn named(&self, name: &str) -> impl Iterator<Item = (usize, &str)> {
        let named = self.headers.iter().enumerate().filter(|(_, (found, _))| found.eq_ignore_ascii_case(name));
        named.map(|(index, (_, value))| (index, value.as_str()))
    }
}

#[cfg(test)]
mod tests;
