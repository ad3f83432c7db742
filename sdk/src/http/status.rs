//! Expected statuses, and the failure for another one.

use super::cached::NOT_MODIFIED;
use super::{HttpError, Response};
use crate::report::millis;
use crate::{CallError, Failure, Report, SettingsProblem};
use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::borrow::Cow;
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

impl Response {
    /// Converts a response with any status to a report. Health endpoints such as Spring Boot Actuator and ASP.NET
    /// answer 503 with the whole report if a part is down. If the status is not 2xx, the poll fails with the error for
    /// the status unless the report is one of this target: see [`Report::or_fail_unless_known`].
    ///
    /// # Errors
    /// If `read` fails. If the status is not 2xx, and `read` fails or finds no dependency: the error for the status.
    pub fn report(&self, read: impl FnOnce(&Self) -> Result<Report, CallError>) -> Result<Report, CallError> {
        self.report_expecting(&ExpectedStatus::success(), read)
    }

    /// Converts a response to a report like [`Response::report`], with these statuses instead of 2xx.
    ///
    /// # Errors
    /// As [`Response::report`].
    pub fn report_expecting(
        &self,
        expected: &[ExpectedStatus],
        read: impl FnOnce(&Self) -> Result<Report, CallError>,
    ) -> Result<Report, CallError> {
        let report = read(self);
        if expected.iter().any(|expected| expected.matches(self.inner.status)) {
            return report;
        }
        match report {
            Ok(mut report) if !report.dependencies.is_empty() => {
                report.warnings.push(format!("the service answered {}", self.inner.status));
                Ok(report.or_fail_unless_known(error(self)))
            }
            _ => Err(error(self)),
        }
    }
}

/// Returns the failure for a status that is not 2xx, with the first words of the body.
pub(super) fn error(response: &Response) -> CallError {
    let status = response.inner.status;
    let (code, advice) = meaning(status);
    let reason = if response.inner.reason.is_empty() { String::new() } else { format!(" {}", response.inner.reason) };
    let said = first_words(&response.inner.body).map_or_else(String::new, |words| format!(" ({words})"));
    let message = format!("the server answered {status}{reason}{}{said}: {advice}", description(response));
    let failure = Failure { retry_after_ms: response.retry_after().map(millis), ..Failure::new(code, message) };
    classified(status, failure)
}

/// Returns the failure for a status that is not 2xx, of an answer whose body could not be read.
pub(super) fn unread(status: u16, why: &HttpError) -> CallError {
    let (code, advice) = meaning(status);
    let message = format!("the server answered {status}, and its body cannot be read ({}): {advice}", why.message);
    classified(status, Failure::new(code, message))
}

/// The code of the failure for a status, and what to do.
fn meaning(status: u16) -> (&'static str, &'static str) {
    match status {
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
    }
}

fn classified(status: u16, failure: Failure) -> CallError {
    match status {
        NOT_MODIFIED | 408 | 425 | 429 | 500.. => CallError::Transient(failure),
        300..=399 | 401..=405 | 407 | 410 | 421 | 423 | 451 => CallError::Misconfigured(failure),
        _ => CallError::Permanent(failure),
    }
}

/// Describes the path of the request and the target of a redirect for messages. Empty for the target's own URL.
fn description(response: &Response) -> String {
    let to = if response.path.is_empty() { String::new() } else { format!(" to {}", response.path) };
    let location = response.header("location").filter(|_| (300..400).contains(&response.inner.status));
    format!("{to}{}", location.map_or_else(String::new, |location| format!(", redirecting to {location}")))
}

/// Returns the first words of a body for a message, those of HTML and XML without tags. `None` without words.
pub(super) fn first_words(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(FIRST)]);
    let text = if text.trim_start().starts_with('<') { without_tags(&text) } else { text };
    let spaced = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let words = spaced.collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().take(WORDS).collect();
    let rest = if shown.len() < words.len() { "…" } else { "" };
    (!shown.is_empty()).then(|| format!("{shown}{rest}"))
}

/// Returns the text of HTML or XML, without styles and scripts.
fn without_tags(text: &str) -> Cow<'static, str> {
    let (mut shown, mut hidden): (String, Option<&str>) = (String::new(), None);
    for part in text.split('<').skip(1) {
        let (tag, after) = part.split_once('>').unwrap_or((part, ""));
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default().to_ascii_lowercase();
        match hidden {
            Some(name) if tag.strip_prefix('/').is_some_and(|end| end.trim().eq_ignore_ascii_case(name)) => {
                hidden = None;
            }
            Some(_) => continue,
            None => hidden = ["style", "script"].into_iter().find(|hides| *hides == name && !tag.ends_with('/')),
        }
        if hidden.is_none() {
            shown.push(' ');
            shown.push_str(after);
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpErrorClass;

    #[test]
    fn a_body_that_cannot_be_read_does_not_hide_the_status() {
        let error = |status| HttpError {
            exchange: None,
            class: HttpErrorClass::BodyTooLarge,
            code: "body_too_large".to_owned(),
            message: "it is longer than 8 MiB".to_owned(),
            status,
            retryable: false,
        };
        for (status, code, is_transient) in [
            (Some(503), "server_error", true),
            (Some(401), "unauthorized", false),
            (Some(200), "body_too_large", false),
            (None, "body_too_large", false),
        ] {
            let failure = CallError::from(error(status));
            assert_eq!(failure.failure().code, code, "{failure:?}");
            assert_eq!(matches!(failure, CallError::Transient(_)), is_transient, "{failure:?}");
            assert!(failure.failure().message.contains("longer than 8 MiB"), "{failure:?}");
        }
    }

    #[test]
    fn a_body_is_quoted_with_its_first_words() {
        for (body, expected) in [
            ("", None),
            (" \r\n", None),
            ("{\"message\":\n  \"Internal Server Error\"}", Some("{\"message\": \"Internal Server Error\"}")),
            ("<html><head><TITLE>502 Bad Gateway</TITLE></head><body><h1>", Some("502 Bad Gateway")),
            ("<html><body>no title", Some("no title")),
            ("<html><style>a{b:c}</style><body><h1>Bad gateway</h1><p>it timed out", Some("Bad gateway it timed out")),
            ("<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>", Some("SlowDown")),
            ("<script>if (a < b) {}</script>", None),
            ("<", None),
            ("<title>", None),
            ("a\u{7}b", Some("a b")),
        ] {
            assert_eq!(first_words(body.as_bytes()).as_deref(), expected, "{body:?}");
        }
        let long = first_words("ü".repeat(3000).as_bytes()).unwrap();
        assert_eq!(long.chars().count(), WORDS + 1);
    }
}
