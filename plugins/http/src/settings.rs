//! What an operator writes.

use polliwog_sdk::prelude::*;
use std::collections::BTreeMap;

/// More than any browser follows.
const MOST_REDIRECTS: u8 = 20;

/// How a URL is checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// GET, HEAD or POST.
    pub method: HttpMethod,
    /// The body of a POST; `${secret.NAME}` stands for a secret of the target.
    pub body: Option<String>,
    /// What that body is. Secrets in JSON and in forms are escaped as those need it.
    pub content_type: String,
    /// The name of a secret of the form `user:password`, with which it logs in (Basic authentication).
    pub basic_auth: Option<String>,
    /// Redirects that are followed, as long as they stay within `url` and `also`.
    pub redirects: u8,
    /// Statuses that are right: numbers, or classes such as "2xx".
    pub expected_status: Vec<Expected>,
    /// Header names and values; `${secret.NAME}` stands for a secret of the target.
    pub headers: BTreeMap<String, String>,
    /// Texts that the body must contain, all of them.
    pub body_contains: Vec<String>,
    /// Texts that the body must not contain, none of them.
    pub body_excludes: Vec<String>,
    /// Slower than this is a warning. Milliseconds.
    pub latency_warning_ms: Option<u32>,
    /// Slower than this is critical. Milliseconds.
    pub latency_critical_ms: Option<u32>,
    /// Fewer days than this before the certificate expires are a warning.
    pub certificate_warning_days: u32,
    /// Fewer days than this before the certificate expires are critical.
    pub certificate_critical_days: u32,
}

/// GET, HEAD or POST.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// Asks for the body too.
    #[default]
    Get,
    /// Asks for the headers only.
    Head,
    /// Sends a body.
    Post,
}

/// A status, or a class of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Expected {
    /// One status.
    Status(u16),
    /// A class: "1xx" to "5xx".
    Class(String),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            method: HttpMethod::Get,
            body: None,
            content_type: "application/json".to_owned(),
            basic_auth: None,
            redirects: 0,
            expected_status: vec![Expected::Class("2xx".to_owned())],
            headers: BTreeMap::new(),
            body_contains: Vec::new(),
            body_excludes: Vec::new(),
            latency_warning_ms: None,
            latency_critical_ms: None,
            certificate_warning_days: 21,
            certificate_critical_days: 7,
        }
    }
}

impl Expected {
    fn hundreds(class: &str) -> Option<u16> {
        let digit = class.strip_suffix("xx").or_else(|| class.strip_suffix("XX"))?;
        digit.parse().ok().filter(|digit| (1..=5).contains(digit))
    }

    fn matches(&self, status: u16) -> bool {
        match self {
            Self::Status(expected) => *expected == status,
            Self::Class(class) => Self::hundreds(class) == Some(status / 100),
        }
    }
}

impl Settings {
    pub(crate) fn expects(&self, status: u16) -> bool {
        self.expected_status.iter().any(|expected| expected.matches(status))
    }

    /// The expected statuses for a person.
    pub(crate) fn expected(&self) -> String {
        let word = |expected: &Expected| match expected {
            Expected::Status(status) => status.to_string(),
            Expected::Class(class) => class.clone(),
        };
        self.expected_status.iter().map(word).collect::<Vec<_>>().join(" or ")
    }

    pub(crate) fn looks_at_body(&self) -> bool {
        !self.body_contains.is_empty() || !self.body_excludes.is_empty()
    }

    pub(crate) fn looks_at_latency(&self) -> bool {
        self.latency_warning_ms.is_some() || self.latency_critical_ms.is_some()
    }

    /// Everything that is wrong with them.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.expected_status.is_empty() {
            problems.push("\"expected_status\" is empty: no answer could ever be right".to_owned());
        }
        for expected in &self.expected_status {
            match expected {
                Expected::Status(100..=999) => {}
                Expected::Class(class) if Expected::hundreds(class).is_some() => {}
                Expected::Status(status) => {
                    problems.push(format!("\"expected_status\" has {status}: a status has three digits"));
                }
                Expected::Class(class) => {
                    problems
                        .push(format!("\"expected_status\" has {class:?}: write a number, or a class such as \"2xx\""));
                }
            }
        }
        if self.body.is_some() && self.method != HttpMethod::Post {
            problems.push("\"body\" is sent by a POST only: write method = \"POST\"".to_owned());
        }
        if self.redirects > MOST_REDIRECTS {
            problems.push(format!("\"redirects\" is {}: use {MOST_REDIRECTS} or fewer", self.redirects));
        }
        if self.basic_auth.is_some() && self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            problems.push("\"basic_auth\" and the header authorization exclude one another: keep one".to_owned());
        }
        if self.method == HttpMethod::Head && self.looks_at_body() {
            problems.push("a HEAD request has no body to look at: use GET, or drop the body's checks".to_owned());
        }
        if let (Some(warning), Some(critical)) = (self.latency_warning_ms, self.latency_critical_ms)
            && warning > critical
        {
            problems.push(
                "\"latency_warning_ms\" is above \"latency_critical_ms\": no warning would ever be seen".to_owned(),
            );
        }
        if self.certificate_warning_days < self.certificate_critical_days {
            problems.push("\"certificate_warning_days\" is below \"certificate_critical_days\"".to_owned());
        }
        problems
    }
}
