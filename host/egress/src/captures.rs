//! Secrets that an answer brings: the ticket of a log-in.
//!
//! A plugin says where in an answer the value stands. The host keeps it, in memory only, for this target and this version
//! of its plugin; the plugin sees stars, and uses it by its name like any other secret.

use crate::Error;
use crate::message::{Capture, CaptureSource, Request, Response};
use crate::secrets::Secrets;
use secrecy::SecretString;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// One request may capture so many values, and one target may keep so many.
const MOST: usize = 8;
/// The longest value, in bytes. A Proxmox ticket has about 400.
const LONGEST: usize = 16 << 10;
/// The longest name, in bytes.
const NAME: usize = 64;
/// Longer than any ticket lives.
const MOST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// What was captured for one target by one version of its plugin. Never printed.
#[derive(Debug, Default)]
pub struct Captured(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<String, (SecretString, Instant)>,
    /// Those of them that are good, ready for use.
    good: Arc<Secrets>,
}

impl Captured {
    /// Those that have not expired.
    pub(crate) fn good(&self) -> Arc<Secrets> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.values.values().any(|(_, expires)| *expires <= now) {
            state.values.retain(|_, (_, expires)| *expires > now);
            state.renew();
        }
        state.good.clone()
    }

    pub(crate) fn forget(&self, name: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.values.remove(name).is_some() {
            state.renew();
        }
    }

    /// Keeps what an answer holds; what it does not hold is not kept.
    pub(crate) fn keep(&self, captures: &[Capture], answer: &Answer<'_>) -> Result<(), Error> {
        if captures.is_empty() || !(200..300).contains(&answer.status) {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = captures.iter().try_for_each(|capture| match answer.find(&capture.source) {
            Some(value) => state.keep(capture, value),
            None => Ok(()),
        });
        state.renew();
        kept
    }
}

impl State {
    fn keep(&mut self, capture: &Capture, value: String) -> Result<(), Error> {
        let Capture { name, ttl, .. } = capture;
        let refused = |why: String| Error::CaptureRefused { name: name.clone(), why };
        if value.len() > LONGEST {
            return Err(refused(format!("it is longer than {LONGEST} bytes")));
        }
        if self.values.len() >= MOST && !self.values.contains_key(name) {
            return Err(refused(format!("{MOST} are kept already")));
        }
        Secrets::check(name, &value).map_err(|error| refused(error.to_string()))?;
        self.values.insert(name.clone(), (SecretString::from(value), Instant::now() + (*ttl).min(MOST_TTL)));
        Ok(())
    }

    fn renew(&mut self) {
        let values = self.values.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect();
        self.good = Arc::new(Secrets::new(values).expect("each was checked when it was kept"));
    }
}

/// What captures a request asks for may be; `operators` are the names that are taken.
pub(crate) fn check(request: &Request, operators: &Secrets) -> Result<(), Error> {
    let bad = |why: String| Err(Error::BadRequest(why));
    if request.captures.len() > MOST {
        return bad(format!("it captures more than {MOST} values"));
    }
    for Capture { name, .. } in &request.captures {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if name.is_empty() || name.len() > NAME || !plain {
            return bad(format!("it captures {name:?}, which is no name of a secret: use letters, digits, _ and -"));
        }
        if operators.contains(name) {
            return bad(format!("it captures {name:?}, which is the name of a secret of the target's own"));
        }
    }
    Ok(())
}

/// An answer, as far as values can stand in it.
pub(crate) struct Answer<'a> {
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(crate) fn of(response: &'a Response) -> Self {
        Self { status: response.status, headers: &response.headers, body: &response.body }
    }

    fn find(&self, source: &CaptureSource) -> Option<String> {
        match source {
            CaptureSource::JsonPointer(pointer) => pointed(self.body, pointer),
            CaptureSource::Header(name) => self.named(name).next().map(str::to_owned),
            CaptureSource::Cookie(name) => self.named("set-cookie").find_map(|cookie| {
                let (found, value) = cookie.split(';').next()?.split_once('=')?;
                (found.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
            }),
        }
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The string at a JSON pointer. Only the way there is read.
fn pointed(body: &[u8], pointer: &str) -> Option<String> {
    let mut at: &RawValue = serde_json::from_slice(body).ok()?;
    let path = if pointer.is_empty() { "" } else { pointer.strip_prefix('/')? };
    for token in path.split('/').filter(|_| !pointer.is_empty()) {
        let token = token.replace("~1", "/").replace("~0", "~");
        at = match at.get().as_bytes().first() {
            Some(b'{') => serde_json::from_str::<BTreeMap<String, &RawValue>>(at.get()).ok()?.remove(&token)?,
            Some(b'[') => {
                let index: usize = token.parse().ok()?;
                serde_json::from_str::<Vec<&RawValue>>(at.get()).ok()?.get(index).copied()?
            }
            _ => return None,
        };
    }
    serde_json::from_str(at.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(headers: &'a [(String, String)], body: &'a str) -> Answer<'a> {
        Answer { status: 200, headers, body: body.as_bytes() }
    }

    #[test]
    fn values_are_found_where_they_stand() {
        let headers =
            [("Set-Cookie", "a=1; Path=/"), ("set-cookie", "Ticket=\"PMG:x::abc=\"; Secure"), ("X-Token", "12345678")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = r#"{"data": {"ticket": "PMG:root@pam:65::\u0041bc", "a/b~c": ["x", "y"], "n": 5}}"#;
        let pointer = |at: &str| CaptureSource::JsonPointer(at.to_owned());
        for (source, expected) in [
            (pointer("/data/ticket"), Some("PMG:root@pam:65::Abc")),
            (pointer("/data/a~1b~0c/1"), Some("y")),
            (pointer("/data/a~1b~0c/2"), None),
            (pointer("/data/n"), None),
            (pointer("/data"), None),
            (pointer("data/ticket"), None),
            (pointer(""), None),
            (CaptureSource::Header("x-token".to_owned()), Some("12345678")),
            (CaptureSource::Cookie("Ticket".to_owned()), Some("PMG:x::abc=")),
            (CaptureSource::Cookie("ticket".to_owned()), None),
        ] {
            assert_eq!(answer(&headers, body).find(&source).as_deref(), expected, "{source:?}");
        }
        assert_eq!(answer(&[], "no json").find(&pointer("/x")), None);
        assert_eq!(answer(&[], "\"whole\"").find(&pointer("")).as_deref(), Some("whole"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_expires_and_has_its_limits() {
        let captured = Captured::default();
        let capture = |name: &str, seconds| Capture {
            name: name.to_owned(),
            source: CaptureSource::JsonPointer("/t".to_owned()),
            ttl: Duration::from_secs(seconds),
        };
        let keep = |capture, body: &str| captured.keep(&[capture], &answer(&[], body));
        keep(capture("a", 60), r#"{"t": "first-ticket"}"#).unwrap();
        keep(capture("b", 90), r#"{"other": "first-ticket"}"#).unwrap();
        assert_eq!(captured.good().names().collect::<Vec<_>>(), ["a"]);
        for refused in [r#"{"t": "short"}"#.to_owned(), format!(r#"{{"t": "{}"}}"#, "x".repeat(LONGEST + 1))] {
            assert_eq!(keep(capture("b", 60), &refused).unwrap_err().code(), "capture_refused");
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(captured.good().is_empty());
        for number in 0..MOST {
            keep(capture(&format!("n{number}"), 60), r#"{"t": "some-ticket"}"#).unwrap();
        }
        assert!(keep(capture("more", 60), r#"{"t": "some-ticket"}"#).is_err());
        captured.forget("n0");
        keep(capture("more", 60), r#"{"t": "some-ticket"}"#).unwrap();
        let refused = Answer { status: 401, ..answer(&[], r#"{"t": "other-ticket"}"#) };
        captured.keep(&[capture("n9", 60)], &refused).unwrap();
        assert!(!captured.good().contains("n9"));
    }
}
