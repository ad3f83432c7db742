//! What a poll found.

use crate::Timestamp;

/// JSON text. Whoever makes one has checked that it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    /// Takes text that the caller has found to be valid JSON.
    pub fn checked(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a dependency is. `Ok` and `Warning` count as healthy, `Critical` as unhealthy; `Unknown` is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// All is well.
    Ok,
    /// Works, and wants attention.
    Warning,
    /// Could not be told.
    Unknown,
    /// Does not work.
    Critical,
}

impl Status {
    /// Every status, from best to worst.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Warning, Self::Unknown, Self::Critical];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Critical => "critical",
        }
    }

    /// The status that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether this counts as healthy; nothing is known of an unknown one.
    pub const fn healthy(self) -> Option<bool> {
        match self {
            Self::Ok | Self::Warning => Some(true),
            Self::Critical => Some(false),
            Self::Unknown => None,
        }
    }
}

/// One named thing in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    /// The key: unique within a report and stable over time.
    pub name: String,
    /// What a person reads where the name is not enough.
    pub title: Option<String>,
    /// `database`, `rest`, ...; `other` where the plugin said nothing.
    pub kind: String,
    /// How it is.
    pub status: Status,
    /// The check was not run on purpose; recorded as ok.
    pub skipped: bool,
    /// The code the source gave.
    pub code: Option<i32>,
    /// Milliseconds, finite and not negative.
    pub latency_ms: Option<f64>,
    /// What it is.
    pub description: Option<String>,
    /// What happens when it fails.
    pub impact: Option<String>,
    /// When the source looked.
    pub checked_at: Option<Timestamp>,
    /// What the source said went wrong.
    pub error: Option<Json>,
    /// The same for a person.
    pub error_message: Option<String>,
    /// A JSON object.
    pub contact: Option<Json>,
    /// A JSON object.
    pub check_details: Option<Json>,
    /// The dependency of the same report that this one runs on.
    pub parent: Option<String>,
}

impl Dependency {
    /// A dependency of which only name and status are known.
    pub fn new(name: impl Into<String>, status: Status) -> Self {
        Self {
            name: name.into(),
            title: None,
            kind: "other".to_owned(),
            status,
            skipped: false,
            code: None,
            latency_ms: None,
            description: None,
            impact: None,
            checked_at: None,
            error: None,
            error_message: None,
            contact: None,
            check_details: None,
            parent: None,
        }
    }
}

/// How a sample's value is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Not said.
    Untyped,
}

impl SampleKind {
    /// Prometheus's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Untyped => "untyped",
        }
    }
}

/// One number for the host's Prometheus endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// A Prometheus metric name, with its unit as suffix.
    pub name: String,
    /// How to read the value.
    pub kind: SampleKind,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The number.
    pub value: f64,
}

/// What one poll found. Names are unique; every field is within the limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// In the plugin's order.
    pub dependencies: Vec<Dependency>,
    /// Names, or prefixes ending in `/`, of what was not looked at this time.
    pub kept: Vec<String>,
    /// Numbers.
    pub samples: Vec<Sample>,
    /// What was skipped and why, without repeats.
    pub warnings: Vec<String>,
}
