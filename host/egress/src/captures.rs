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
use crate::cookie;
use crate::mask::{self, Region, SHORTEST};
use crate::message::{Capture, CaptureSource, Request, Response};
use crate::secrets::{Secrets, Values, check_value};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of captures of one request, and of stored values of one target.
const MAX_CAPTURES: usize = 8;
/// Maximum length of a value in bytes. A Proxmox ticket has about 400.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// Maximum length of the name of a secret, header or cookie, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length of a JSON pointer in bytes.
const MAX_POINTER_BYTES: usize = 256;
/// Maximum number of steps of a JSON pointer.
const MAX_POINTER_STEPS: usize = 8;
/// Maximum length in bytes of a body that is searched by a JSON pointer. Answers to a login are short.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum lifetime of a captured value. No known ticket lives longer.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The captured values of one target and one version of its plugin. They are never printed.
#[derive(Debug, Default)]
pub struct Captured(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<String, (SecretString, Instant)>,
    /// A copy of the values that have not expired, ready for use.
    valid: Arc<Values>,
    /// Names of captures whose value was missing in the answer, with the reason.
    missed: BTreeMap<String, String>,
}

impl Captured {
    /// Returns the values that have not expired.
    pub(crate) fn valid(&self) -> Arc<Values> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.values.values().any(|(_, expires)| *expires <= now) {
            state.values.retain(|_, (_, expires)| *expires > now);
            state.update_valid();
        }
        state.valid.clone()
    }

    /// Returns why the capture of this name found no value. `None` if no capture failed.
    pub(crate) fn missed(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).missed.get(name).cloned()
    }

    pub(crate) fn forget(&self, name: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.values.remove(name).is_some() {
            state.update_valid();
        }
    }

    /// Stores the values that the answer contains and returns their places. Values that the answer lacks are recorded
    /// as missed.
    ///
    /// Fails if a value cannot be a secret or if the plugin itself sent it.
    pub(crate) fn keep(&self, captures: &[Capture], sent: &Sent, answer: &Answer<'_>) -> Result<Vec<Place>, Error> {
        if captures.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !(200..300).contains(&answer.status) {
            for capture in captures {
                state.miss(capture, format!("was answered with status {}", answer.status));
            }
            return Ok(Vec::new());
        }
        let mut places = answer.cookies();
        let kept = captures.iter().try_for_each(|capture| {
            if let Some((value, place)) = answer.find(capture)? {
                places.push(place);
                state.keep(capture, value, sent)?;
                state.missed.remove(&capture.name);
            } else {
                state.miss(capture, format!("returned no text {}", capture.source.place()));
            }
            Ok(())
        });
        state.update_valid();
        kept.map(|()| places)
    }
}

impl State {
    /// Records that the answer lacks a value. The number of names has the same bound as the number of values.
    fn miss(&mut self, capture: &Capture, why: String) {
        if self.missed.len() < MAX_CAPTURES || self.missed.contains_key(&capture.name) {
            self.missed.insert(capture.name.clone(), why);
        }
    }

    fn keep(&mut self, capture: &Capture, value: String, sent: &Sent) -> Result<(), Error> {
        let Capture { name, ttl, .. } = capture;
        let refused = |why: String| Error::CaptureRefused { name: name.clone(), why };
        if value.len() > MAX_VALUE_BYTES {
            return Err(refused(format!("it is longer than {MAX_VALUE_BYTES} bytes")));
        }
        if self.values.len() >= MAX_CAPTURES && !self.values.contains_key(name) {
            return Err(refused(format!("{MAX_CAPTURES} values are already stored")));
        }
        if value.len() < SHORTEST {
            return Err(refused(format!("it is shorter than {SHORTEST} bytes, too short to be masked in answers")));
        }
        check_value(name, &value).map_err(|error| refused(error.to_string()))?;
        if sent.contains(&value) {
            return Err(refused("the plugin itself sent this value".to_owned()));
        }
        self.values.insert(name.clone(), (SecretString::from(value), Instant::now() + (*ttl).min(MAX_TTL)));
        Ok(())
    }

    fn update_valid(&mut self) {
        self.valid = Arc::new(self.values.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect());
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
    for Capture { name, source, .. } in &request.captures {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !plain {
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
            _ => {}
        }
    }
    Ok(())
}

/// The parts of an answer that can contain a value to capture.
pub(crate) struct Answer<'a> {
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
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

impl<'a> Answer<'a> {
    pub(crate) fn of(response: &'a Response) -> Self {
        Self { status: response.status, headers: &response.headers, body: &response.body }
    }

    fn find(&self, capture: &Capture) -> Result<Option<(String, Place)>, Error> {
        match &capture.source {
            CaptureSource::JsonPointer(_) if self.body.len() > MAX_BODY_BYTES => {
                let why = format!("the answer is longer than {MAX_BODY_BYTES} bytes");
                Err(Error::CaptureRefused { name: capture.name.clone(), why })
            }
            CaptureSource::JsonPointer(pointer) => Ok(pointed(self.body, pointer)),
            CaptureSource::Header(name) => Ok(self.named(name).next().map(|(index, value)| {
                let place = Place::Header(index, 0..value.len());
                (value.to_owned(), place)
            })),
            CaptureSource::Cookie(name) => Ok(self.named("set-cookie").find_map(|(index, header)| {
                let (found, value) = cookie::set_by(header);
                (found == name).then(|| (header[value.clone()].to_owned(), Place::Header(index, value)))
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

/// Returns the string at a JSON pointer and its place. The body is parsed once.
fn pointed(body: &[u8], pointer: &str) -> Option<(String, Place)> {
    let steps: Vec<String> = match pointer.strip_prefix('/') {
        Some(steps) => steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
        None if pointer.is_empty() => Vec::new(),
        None => return None,
    };
    let found = Walk(&steps).deserialize(&mut serde_json::Deserializer::from_slice(body)).ok()??.get();
    let value: String = serde_json::from_str(found).ok()?;
    // The raw value is a slice of the body and includes the quotes.
    let start = found.as_ptr() as usize - body.as_ptr() as usize;
    let place = Place::Body(start + 1..start + found.len() - 1, value.len());
    Some((value, place))
}

/// Follows a path through JSON. The result is `None` if the path does not exist. If a key occurs twice, the last one
/// counts.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() { Deserialize::deserialize(json).map(Some) } else { json.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(here) = map.next_key_seed(Is(&self.0[0]))? {
            if here {
                found = map.next_value_seed(Walk(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0[0].parse().unwrap_or(usize::MAX);
        for _ in 0..wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = seq.next_element_seed(Walk(&self.0[1..]))?.flatten();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Compares a key with a name without copying the key.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(headers: &'a [(String, String)], body: &'a str) -> Answer<'a> {
        Answer { status: 200, headers, body: body.as_bytes() }
    }

    fn capture(name: &str, source: CaptureSource, seconds: u64) -> Capture {
        Capture { name: name.to_owned(), source, ttl: Duration::from_secs(seconds) }
    }

    fn pointer(at: &str) -> CaptureSource {
        CaptureSource::JsonPointer(at.to_owned())
    }

    #[test]
    fn values_are_found_and_masked_in_their_place() {
        let headers =
            [("Set-Cookie", "a=1; Path=/"), ("set-cookie", "Ticket=\"PMG:x::abc=\"; Secure"), ("X-Token", "12345678")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = r#"{"data": {"ticket": "no", "ticket": "PMG:root@pam:65::\u0041bc", "a/b~c": ["x", "y"], "n": 5}}"#;
        for (source, expected) in [
            (pointer("/data/ticket"), Some("PMG:root@pam:65::Abc")),
            (pointer("/data/a~1b~0c/1"), Some("y")),
            (pointer("/data/a~1b~0c/2"), None),
            (pointer("/data/a~1b~0c/x"), None),
            (pointer("/data/n"), None),
            (pointer("/data/n/m"), None),
            (pointer("/data"), None),
            (pointer("data/ticket"), None),
            (pointer(""), None),
            (CaptureSource::Header("x-token".to_owned()), Some("12345678")),
            (CaptureSource::Cookie("Ticket".to_owned()), Some("PMG:x::abc=")),
            (CaptureSource::Cookie("ticket".to_owned()), None),
        ] {
            let found = answer(&headers, body).find(&capture("t", source.clone(), 1)).unwrap();
            assert_eq!(found.as_ref().map(|(value, _)| value.as_str()), expected, "{source:?}");
            let Some((value, place)) = found else { continue };
            let (mut headers, mut starred) = (headers.clone(), body.as_bytes().to_vec());
            Place::star(vec![place], &mut headers, &mut starred);
            let starred = String::from_utf8(starred).unwrap();
            let left = format!("{starred} {headers:?}");
            assert!(!left.contains(&value) || value == "y", "{left}");
            assert!(serde_json::from_str::<serde_json::Value>(&starred).is_ok(), "{starred}");
        }
        let find = |body, at| answer(&[], body).find(&capture("t", pointer(at), 1)).unwrap().map(|(value, _)| value);
        assert_eq!(find("no json", "/x"), None);
        assert_eq!(find("\"whole\"", "").as_deref(), Some("whole"));
    }

    #[tokio::test(start_paused = true)]
    async fn stored_values_expire_and_are_limited_in_length_and_number() {
        let captured = Captured::default();
        let at_t = |name: &str, seconds| capture(name, pointer("/t"), seconds);
        let keep = |capture, body: &str| captured.keep(&[capture], &Sent::default(), &answer(&[], body));
        keep(at_t("a", 60), r#"{"t": "first-ticket"}"#).unwrap();
        keep(at_t("b", 90), r#"{"other": "first-ticket"}"#).unwrap();
        assert_eq!(captured.valid().keys().collect::<Vec<_>>(), ["a"]);
        for refused in [
            r#"{"t": "short"}"#.to_owned(),
            format!(r#"{{"t": "{}"}}"#, "x".repeat(MAX_VALUE_BYTES + 1)),
            format!(r#"{{"t": "long-enough"}}{}"#, " ".repeat(MAX_BODY_BYTES)),
        ] {
            assert_eq!(keep(at_t("b", 60), &refused).unwrap_err().code(), "capture_refused");
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(captured.valid().is_empty());
        for number in 0..MAX_CAPTURES {
            keep(at_t(&format!("n{number}"), 60), r#"{"t": "some-ticket"}"#).unwrap();
        }
        assert!(keep(at_t("more", 60), r#"{"t": "some-ticket"}"#).is_err());
        captured.forget("n0");
        keep(at_t("more", 60), r#"{"t": "some-ticket"}"#).unwrap();
        let refused = Answer { status: 401, ..answer(&[], r#"{"t": "other-ticket"}"#) };
        captured.keep(&[at_t("n9", 60)], &Sent::default(), &refused).unwrap();
        assert!(!captured.valid().contains_key("n9"));
    }

    #[test]
    fn values_sent_by_the_plugin_are_not_captured_and_cookies_are_masked() {
        let captured = Captured::default();
        let request = Request {
            captures: vec![capture("t", pointer("/t"), 60)],
            headers: vec![("x".to_owned(), "a guessed-ticket".to_owned())],
            ..Request::get("/echo")
        };
        let sent = Sent::of(&request);
        let keep = |body: &str, headers| captured.keep(&request.captures, &sent, &answer(headers, body));
        assert_eq!(keep(r#"{"t": "guessed-ticket"}"#, &[]).unwrap_err().code(), "capture_refused");
        assert!(captured.valid().is_empty());
        let cookie = ["session=fresh-ticket; Secure", "gone=; Max-Age=0"]
            .map(|cookie| ("set-cookie".to_owned(), cookie.to_owned()));
        let places = keep(r#"{"t": "fresh-ticket"}"#, &cookie).unwrap();
        let (mut headers, mut body) = (cookie.clone(), br#"{"t": "fresh-ticket"}"#.to_vec());
        Place::star(places, &mut headers, &mut body);
        assert!(!String::from_utf8_lossy(&body).contains("fresh"));
        // The name and the attributes stay, so that the answer can be recorded and replayed.
        let headers = headers.map(|(_, value)| value);
        assert_eq!(headers, ["session=************; Secure", "gone=; Max-Age=0"]);
    }

    #[test]
    fn captures_of_a_request_are_limited() {
        let of = |source| Request { captures: vec![capture("t", source, 60)], ..Request::get("") };
        for (source, good) in [
            (pointer(&"/a".repeat(8)), true),
            (pointer(&"/a".repeat(9)), false),
            (pointer(&format!("/{}", "a".repeat(256))), false),
            (CaptureSource::Header("x".repeat(65)), false),
            (CaptureSource::Cookie("x".repeat(64)), true),
        ] {
            assert_eq!(check(&of(source.clone()), &Secrets::default()).is_ok(), good, "{source:?}");
        }
        // Deeply nested bodies are parsed once.
        let deep = format!("{}\"value-at-the-end\"{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(answer(&[], &deep).find(&capture("t", pointer("/0/0/0"), 1)).unwrap(), None);
    }
}
