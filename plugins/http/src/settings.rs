//! The settings of a target of kind `http`.

use polliwog_sdk::http::ExpectedStatus;
use polliwog_sdk::prelude::*;
use std::collections::BTreeMap;

/// Maximum number of redirects, as in common browsers.
const MAX_REDIRECTS: u8 = 20;

/// The status of an answer that has not changed.
const NOT_MODIFIED: u16 = 304;
/// The headers that ask whether an answer has changed (RFC 9110, section 13.1).
const CONDITIONS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// The checks of a URL.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The HTTP method: GET, HEAD or POST.
    pub method: HttpMethod,
    /// The body of a POST. `${secret.NAME}` is replaced by a secret of the target.
    pub body: Option<String>,
    /// The content type of the body. Secrets in JSON and in forms are escaped accordingly.
    pub content_type: String,
    /// The name of a secret of the form `user:password` for Basic authentication.
    pub basic_auth: Option<String>,
    /// Maximum number of redirects to follow: without this setting three, unless `expected_status` has the redirect's
    /// status. They must stay within the site of `url` (the same host, with or without `www.`, and https instead of
    /// http on the default ports) and the origins of `also`. Secrets are not sent to hosts of other names.
    pub redirects: Option<u8>,
    /// The expected statuses: numbers or classes such as "2xx".
    pub expected_status: Vec<ExpectedStatus>,
    /// Header names and values. `${secret.NAME}` is replaced by a secret of the target.
    pub headers: BTreeMap<String, String>,
    /// Texts that the body must contain.
    pub body_contains: Vec<String>,
    /// Texts that the body must not contain.
    pub body_excludes: Vec<String>,
    /// Latency in milliseconds above which the status is warning.
    pub latency_warning_ms: Option<u32>,
    /// Latency in milliseconds above which the status is critical.
    pub latency_critical_ms: Option<u32>,
    /// Number of days before the expiry of the certificate below which the status is warning.
    pub certificate_warning_days: u32,
    /// Number of days before the expiry of the certificate below which the status is critical.
    pub certificate_critical_days: u32,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// Requests headers and body.
    #[default]
    Get,
    /// Requests only the headers.
    Head,
    /// Sends a body.
    Post,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            method: HttpMethod::Get,
            body: None,
            content_type: "application/json".to_owned(),
            basic_auth: None,
            redirects: None,
            expected_status: ExpectedStatus::success(),
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

fn is_condition(name: &str) -> bool {
    CONDITIONS.iter().any(|condition| name.eq_ignore_ascii_case(condition))
}

impl Settings {
    pub(crate) fn expects(&self, status: u16) -> bool {
        self.expected_status.iter().any(|expected| expected.matches(status)) || self.is_unchanged(status)
    }

    /// Returns whether a status is the answer to a condition in the configured headers: nothing has changed.
    fn is_unchanged(&self, status: u16) -> bool {
        status == NOT_MODIFIED && self.sent_headers().any(|(name, _)| is_condition(name))
    }

    /// The configured headers that are sent. Where the body is checked, it is needed each time.
    pub(crate) fn sent_headers(&self) -> impl Iterator<Item = (&String, &String)> {
        self.headers.iter().filter(|(name, _)| !(self.checks_body() && is_condition(name)))
    }

    pub(crate) fn checks_body(&self) -> bool {
        !self.body_contains.is_empty() || !self.body_excludes.is_empty()
    }

    pub(crate) fn checks_latency(&self) -> bool {
        self.latency_warning_ms.is_some() || self.latency_critical_ms.is_some()
    }

    /// Returns all problems of the settings.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = ExpectedStatus::problems(&self.expected_status);
        problems.extend(http::header_problems(&self.headers));
        let mut add = |setting: &str, message: String| problems.push(SettingsProblem::at(setting, message));
        if self.body.is_some() && self.method != HttpMethod::Post {
            add("/body", "it needs a POST: write method = \"POST\"".to_owned());
        }
        if let Some(many) = self.redirects.filter(|&redirects| redirects > MAX_REDIRECTS) {
            add("/redirects", format!("it is {many}: use {MAX_REDIRECTS} or fewer"));
        }
        if self.basic_auth.is_some() && self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            add("/basic_auth", "it and the header authorization exclude each other: remove one".to_owned());
        }
        for (key, texts) in [("body_contains", &self.body_contains), ("body_excludes", &self.body_excludes)] {
            if let Some(place) = texts.iter().position(String::is_empty) {
                add(&format!("/{key}/{place}"), "it is empty, and every body contains it: write a text".to_owned());
            }
        }
        if self.method == HttpMethod::Head && self.checks_body() {
            let message = "a HEAD request has no body: use GET, or remove body_contains and body_excludes";
            add("/method", message.to_owned());
        }
        if let (Some(warning), Some(critical)) = (self.latency_warning_ms, self.latency_critical_ms)
            && warning > critical
        {
            let message = "it is above latency_critical_ms, so there would never be a warning";
            add("/latency_warning_ms", message.to_owned());
        }
        if self.certificate_warning_days < self.certificate_critical_days {
            let message = "it is below certificate_critical_days, so there would never be a warning";
            add("/certificate_warning_days", message.to_owned());
        }
        problems
    }
}
