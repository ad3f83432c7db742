//! The report of a poll.

use crate::{Failure, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// JSON text. The creator has checked that it is valid. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// Wraps text that the caller has checked to be valid JSON.
    pub fn checked(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The status of a dependency. `Ok` and `Warning` count as healthy, `Critical` as unhealthy; `Unknown` is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The dependency works.
    Ok,
    /// The dependency works but needs attention.
    Warning,
    /// The status could not be determined.
    Unknown,
    /// The dependency does not work.
    Critical,
}

impl Status {
    /// Every status, from best to worst.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Warning, Self::Unknown, Self::Critical];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Critical => "critical",
        }
    }

    /// Returns the status with the name `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns whether the status counts as healthy; `None` for `Unknown`.
    pub const fn healthy(self) -> Option<bool> {
        match self {
            Self::Ok | Self::Warning => Some(true),
            Self::Critical => Some(false),
            Self::Unknown => None,
        }
    }
}

/// A dependency in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    /// The name: unique within a report and stable over time.
    pub name: String,
    /// The title for users, if the name is not descriptive.
    pub title: Option<String>,
    /// `database`, `rest`, ...; `other` if the plugin reports none.
    pub kind: String,
    /// The status.
    pub status: Status,
    /// Whether the check was skipped on purpose; it is recorded as ok.
    pub skipped: bool,
    /// Whether the status has another cause than what the dependency runs on.
    pub independent: bool,
    /// The code that the source reported.
    pub code: Option<i32>,
    /// The latency in milliseconds, finite and not negative.
    pub latency_ms: Option<f64>,
    /// The description of the dependency.
    pub description: Option<String>,
    /// The impact of a failure.
    pub impact: Option<String>,
    /// The time at which the source checked the dependency.
    pub checked_at: Option<Timestamp>,
    /// How long after the check the status is current; `None` as long as polls succeed.
    pub valid_for: Option<Duration>,
    /// The error that the source reported.
    pub error: Option<Json>,
    /// The error message for users.
    pub error_message: Option<String>,
    /// The contact, as a JSON object.
    pub contact: Option<Json>,
    /// Details of the check, as a JSON object.
    pub check_details: Option<Json>,
    /// The address of the object in the user interface of its source, with http or https.
    pub link: Option<Box<str>>,
    /// The dependencies of the same report that this one runs on, without cycles.
    pub runs_on: Vec<String>,
}

impl Dependency {
    /// Creates a dependency with a name and a status only.
    pub fn new(name: impl Into<String>, status: Status) -> Self {
        Self {
            name: name.into(),
            title: None,
            kind: "other".to_owned(),
            status,
            skipped: false,
            independent: false,
            code: None,
            latency_ms: None,
            description: None,
            impact: None,
            checked_at: None,
            valid_for: None,
            error: None,
            error_message: None,
            contact: None,
            check_details: None,
            link: None,
            runs_on: Vec::new(),
        }
    }
}

/// The type of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// A value that can increase and decrease.
    Gauge,
    /// A value that only increases.
    Counter,
    /// The plugin did not specify a type.
    Untyped,
}

impl SampleKind {
    /// Returns the name that Prometheus uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Untyped => "untyped",
        }
    }
}

/// A sample for the Prometheus endpoint of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// A Prometheus metric name, with its unit as suffix.
    pub name: String,
    /// The type of the value.
    pub kind: SampleKind,
    /// The labels: names and values.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
    /// The description of the metric.
    pub help: Option<Box<str>>,
    /// The base unit.
    pub unit: Option<Box<str>>,
    /// The dependency of the same report that the value is about.
    pub dependency: Option<Box<str>>,
}

impl Sample {
    /// Creates a sample with a name and a value only.
    pub fn new(name: impl Into<String>, kind: SampleKind, value: f64) -> Self {
        Self { name: name.into(), kind, labels: Vec::new(), value, help: None, unit: None, dependency: None }
    }
}

/// The report of one poll. Names are unique; every field is within the limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The dependencies, in the plugin's order.
    pub dependencies: Vec<Dependency>,
    /// Names, or prefixes ending in `/`, of dependencies that this poll did not check.
    pub kept: Vec<String>,
    /// Names, or prefixes ending in `/`, of dependencies that were removed from the source on purpose.
    pub gone: Vec<String>,
    /// The failure of this poll, if the report has no dependency that the target is known to have.
    pub error_unless_known: Option<Box<Failure>>,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Warnings about skipped parts, with the reason and without duplicates.
    pub warnings: Vec<String>,
    /// When the next poll is useful, from now.
    pub next_poll: Option<Duration>,
}
