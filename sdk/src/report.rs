//! Making reports.

use crate::{Dependency, Failure, Label, PollError, Report, Sample, SampleKind, Status};

impl Dependency {
    /// A dependency of which only name and status are known. The other fields are public: set what the source says.
    pub fn new(name: impl Into<String>, status: Status) -> Self {
        Self {
            name: name.into(),
            title: None,
            kind: None,
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

    /// One that is well.
    pub fn ok(name: impl Into<String>) -> Self {
        Self::new(name, Status::Ok)
    }

    /// One that works and wants attention, and why.
    pub fn warning(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Warning) }
    }

    /// One that does not work, and why.
    pub fn critical(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Critical) }
    }

    /// One that could not be told, and why.
    pub fn unknown(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Unknown) }
    }

    /// One that was left out on purpose; it counts as ok.
    pub fn skipped(name: impl Into<String>) -> Self {
        Self { skipped: true, ..Self::ok(name) }
    }

    /// What a person reads where the name is not enough.
    #[must_use]
    pub fn with_title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// What kind of thing it is: `database`, `rest`, `node`, ...
    #[must_use]
    pub fn with_kind(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// The code that the source gave (an HTTP status, say).
    #[must_use]
    pub fn with_code(self, code: i32) -> Self {
        Self { code: Some(code), ..self }
    }

    /// How long it took, in milliseconds; the host drops what is no time.
    #[must_use]
    pub fn with_latency_ms(self, latency_ms: f64) -> Self {
        Self { latency_ms: Some(latency_ms), ..self }
    }

    /// What it is, in at most 4 KiB.
    #[must_use]
    pub fn with_description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// The dependency of this report that it runs on.
    #[must_use]
    pub fn with_parent(self, name: impl Into<String>) -> Self {
        Self { parent: Some(name.into()), ..self }
    }

    /// What the source says is wrong, as any JSON of at most 64 KiB.
    #[must_use]
    pub fn with_error(self, error: &serde_json::Value) -> Self {
        Self { error: Some(error.to_string()), ..self }
    }

    /// Whatever else is worth showing, as a JSON object of at most 64 KiB.
    #[must_use]
    pub fn with_details(self, details: &serde_json::Value) -> Self {
        Self { check_details: Some(details.to_string()), ..self }
    }
}

impl Sample {
    /// A number that goes up and down. `name` is a Prometheus metric name with its unit as suffix (`_bytes`, `_seconds`,
    /// `_ratio`); the host adds the target's labels, and drops numbers that are not finite.
    pub fn gauge(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), kind: SampleKind::Gauge, labels: Vec::new(), value }
    }

    /// A number that only goes up, and starts again at 0; its name ends in `_total`.
    pub fn counter(name: impl Into<String>, value: f64) -> Self {
        Self { kind: SampleKind::Counter, ..Self::gauge(name, value) }
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push(Label { name: name.into(), value: value.into() });
        self
    }
}

impl Status {
    /// The word for it: ok, warning, critical or unknown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
        }
    }

    /// The worse of two: critical, then unknown, then warning, then ok.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        let rank = |status: Self| match status {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Unknown => 2,
            Self::Critical => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl Report {
    /// A report that says nothing yet.
    pub fn empty() -> Self {
        Self { dependencies: Vec::new(), kept: Vec::new(), samples: Vec::new(), warnings: Vec::new() }
    }

    /// Says that dependencies of these names, or name prefixes that end in `/`, were not looked at this time: what is known
    /// of them stands.
    pub fn keep(&mut self, names: impl Into<String>) {
        self.kept.push(names.into());
    }

    /// Says that something could not be read, and why. The host removes repeats.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

impl FromIterator<Dependency> for Report {
    fn from_iter<I: IntoIterator<Item = Dependency>>(dependencies: I) -> Self {
        Self { dependencies: dependencies.into_iter().collect(), ..Self::empty() }
    }
}

impl PollError {
    /// A failure that may be gone at the next try. `code` is stable and snake_case; `message` is one sentence.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Transient(Failure { code: code.into(), message: message.into(), retry_after_ms: None })
    }

    /// A failure that stays until somebody changes something.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Permanent(Failure { code: code.into(), message: message.into(), retry_after_ms: None })
    }

    /// What is wrong, whichever of both it is.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Transient(failure) | Self::Permanent(failure) => failure,
        }
    }
}
