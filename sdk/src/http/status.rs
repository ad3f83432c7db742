//! Expected statuses, and the failure for another one.

use super::Response;
use super::cached::NOT_MODIFIED;
use crate::report::millis;
use crate::{CallError, Failure, SettingsProblem};
use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// The bytes of a body that are searched for its first words.
const FIRST: usize = 4096;
/// The most characters of the first words of a body.
const WORDS: usize = 200;

/// A setting: a status or a class of statuses that is expected.
///
/// ```
/// # use polliwog_sdk::{http::ExpectedStatus, serde_json};
/// let expected: Vec<ExpectedStatus> = serde_json::from_str(r#"[401, "3xx"]"#).unwrap();
/// assert!(expected.iter().any(|expected| expected.matches(308)));
/// assert_eq!(ExpectedStatus::sentence(&expected), "401 or 3xx");
/// ```
#[derive(Clone, Debug, JsonSchema, PartialEq)]
#[schemars(untagged)]
pub enum ExpectedStatus {
    /// One status.
    Status(u16),
    /// A class: "1xx" to "5xx".
    Class(String),
}

// Not derived: derived code tries each variant, and composes an error message for the first one that does not fit, in
// each poll.
impl<'de> Deserialize<'de> for ExpectedStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StatusOrClass)
    }
}

struct StatusOrClass;

impl Visitor<'_> for StatusOrClass {
    type Value = ExpectedStatus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status, or a class such as \"2xx\"")
    }

    fn visit_u64<E: Error>(self, status: u64) -> Result<ExpectedStatus, E> {
        let too_large = |_| E::invalid_value(Unexpected::Unsigned(status), &self);
        u16::try_from(status).map(ExpectedStatus::Status).map_err(too_large)
    }

    fn visit_str<E>(self, class: &str) -> Result<ExpectedStatus, E> {
        Ok(ExpectedStatus::Class(class.to_owned()))
    }
}

impl ExpectedStatus {
    /// Returns the usual setting: 2xx.
    pub fn success() -> Vec<Self> {
        vec![Self::Class("2xx".to_owned())]
    }

    /// Returns whether a status is the expected one, or of the expected class.
    pub fn matches(&self, status: u16) -> bool {
        match self {
            Self::Status(expected) => *expected == status,
            Self::Class(class) => Self::hundreds(class) == Some(status / 100),
        }
    }

    /// Returns the problems of the setting `expected_status`.
    pub fn problems(expected: &[Self]) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        if expected.is_empty() {
            problems.push(SettingsProblem::at("/expected_status", "it is empty: add at least one status"));
        }
        for (index, expected) in expected.iter().enumerate() {
            let message = match expected {
                Self::Status(100..=999) => continue,
                Self::Class(class) if Self::hundreds(class).is_some() => continue,
                Self::Status(status) => format!("it is {status}: a status has three digits"),
                Self::Class(class) => format!("it is {class:?}: write a number or a class such as \"2xx\""),
            };
            problems.push(SettingsProblem::at(format!("/expected_status/{index}"), message));
        }
        problems
    }

    /// Returns the expected statuses for messages.
    pub fn sentence(expected: &[Self]) -> String {
        let text = |expected: &Self| match expected {
            Self::Status(status) => status.to_string(),
            Self::Class(class) => class.clone(),
        };
        expected.iter().map(text).collect::<Vec<_>>().join(" or ")
    }

    fn hundreds(class: &str) -> Option<u16> {
        let digit = class.strip_suffix("xx").or_else(|| class.strip_suffix("XX"))?;
        digit.parse().ok().filter(|digit| (1..=5).contains(digit))
    }
}

/// Returns the failure for a status that is not 2xx, with the first words of the body.
pub(super) fn error(response: &Response) -> CallError {
    let status = response.inner.status;
    let reason = if response.inner.reason.is_empty() { String::new() } else { format!(" {}", response.inner.reason) };
    let (code, advice) = match status {
        401 => ("unauthorized", "check the target's secret"),
        403 => ("forbidden", "the target's secret lacks the required rights, is wrong or is missing"),
        404 | 410 => ("not_found", "check the path in the target's URL"),
        NOT_MODIFIED => {
            ("not_modified", "the request did not ask whether the answer has changed: check a proxy before the server")
        }
        300..=399 => ("redirect", "set the redirect's destination as the target's URL"),
        408 => ("request_timeout", "the server took too long to read the request"),
        429 => ("too_many_requests", "the server requires fewer requests"),
        500..=599 => ("server_error", "check the server's log"),
        _ => ("unexpected_status", "check the target's URL"),
    };
    let said = first_words(&response.inner.body).map_or_else(String::new, |words| format!(" ({words})"));
    let message = format!("the server answered {status}{reason}{}{said}: {advice}", description(response));
    let failure = Failure { retry_after_ms: response.retry_after().map(millis), ..Failure::new(code, message) };
    match status {
        NOT_MODIFIED | 408 | 425 | 429 | 500.. => CallError::Transient(failure),
        300..=399 | 401..=404 | 407 | 410 => CallError::Misconfigured(failure),
        _ => CallError::Permanent(failure),
    }
}

/// Describes the path of the request and the target of a redirect for messages. Empty for the target's own URL.
fn description(response: &Response) -> String {
    let to = if response.path.is_empty() { String::new() } else { format!(" to {}", response.path) };
    let location = response.header("location").filter(|_| (300..400).contains(&response.inner.status));
    format!("{to}{}", location.map_or_else(String::new, |location| format!(", redirecting to {location}")))
}

/// Returns the first words of a body for a message: the title of an HTML page, or the beginning of another text. `None`
/// without words.
pub(super) fn first_words(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(FIRST)]);
    let text = match text.trim_start().starts_with('<') {
        true => {
            let start = text.to_ascii_lowercase().find("<title>")? + "<title>".len();
            text[start..].split('<').next()?
        }
        false => &text,
    };
    let spaced = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let words = spaced.collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().take(WORDS).collect();
    let rest = if shown.len() < words.len() { "…" } else { "" };
    (!shown.is_empty()).then(|| format!("{shown}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_quoted_with_its_first_words() {
        for (body, expected) in [
            ("", None),
            (" \r\n", None),
            ("{\"message\":\n  \"Internal Server Error\"}", Some("{\"message\": \"Internal Server Error\"}")),
            ("<html><head><TITLE>502 Bad Gateway</TITLE></head><body><h1>", Some("502 Bad Gateway")),
            ("<html><body>no title", None),
            ("<title>", None),
            ("a\u{7}b", Some("a b")),
        ] {
            assert_eq!(first_words(body.as_bytes()).as_deref(), expected, "{body:?}");
        }
        let long = first_words("ü".repeat(3000).as_bytes()).unwrap();
        assert_eq!(long.chars().count(), WORDS + 1);
    }
}
