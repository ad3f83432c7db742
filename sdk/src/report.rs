//! Builders for reports.

use crate::{CallError, Dependency, Failure, Label, Report, Sample, SampleKind, Status};

impl Dependency {
    /// Creates a dependency with a name and a status. The other fields are public and can be set from the source.
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
            extra: Vec::new(),
        }
    }

    /// Creates a healthy dependency.
    pub fn ok(name: impl Into<String>) -> Self {
        Self::new(name, Status::Ok)
    }

    /// Creates a dependency that works but needs attention, with the reason.
    pub fn warning(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Warning) }
    }

    /// Creates a dependency that does not work, with the reason.
    pub fn critical(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Critical) }
    }

    /// Creates a dependency whose state could not be determined, with the reason.
    pub fn unknown(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error_message: Some(why.into()), ..Self::new(name, Status::Unknown) }
    }

    /// Creates a dependency whose check was skipped on purpose. It counts as ok.
    pub fn skipped(name: impl Into<String>) -> Self {
        Self { skipped: true, ..Self::ok(name) }
    }

    /// Sets the display name.
    #[must_use]
    pub fn with_title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets the kind, for example `database`, `rest` or `node`.
    #[must_use]
    pub fn with_kind(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// Sets the code of the source, for example an HTTP status.
    #[must_use]
    pub fn with_code(self, code: i32) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Sets the latency in milliseconds. The host removes values that are negative or not finite.
    #[must_use]
    pub fn with_latency_ms(self, latency_ms: f64) -> Self {
        Self { latency_ms: Some(latency_ms), ..self }
    }

    /// Sets the description, at most 4 KiB.
    #[must_use]
    pub fn with_description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Sets the name of the dependency in this report that this one runs on.
    #[must_use]
    pub fn with_parent(self, name: impl Into<String>) -> Self {
        Self { parent: Some(name.into()), ..self }
    }

    /// Sets the error of the source, as JSON of at most 64 KiB.
    #[must_use]
    pub fn with_error(self, error: &serde_json::Value) -> Self {
        Self { error: Some(error.to_string()), ..self }
    }

    /// Sets further details, as a JSON object of at most 64 KiB.
    #[must_use]
    pub fn with_details(self, details: &serde_json::Value) -> Self {
        Self { check_details: Some(details.to_string()), ..self }
    }
}

impl Sample {
    /// Creates a gauge. `name` is a Prometheus metric name with its unit as suffix (`_bytes`, `_seconds`, `_ratio`).
    /// The host adds the target's labels and removes values that are not finite.
    pub fn gauge(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), kind: SampleKind::Gauge, labels: Vec::new(), value, extra: Vec::new() }
    }

    /// Creates a counter, which only increases or restarts at 0. The name should end in `_total`.
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
    /// Returns the name of the status: ok, warning, critical or unknown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the worse of two statuses. The order is critical, unknown, warning, ok.
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
    /// Creates an empty report.
    pub fn empty() -> Self {
        Self {
            dependencies: Vec::new(),
            kept: Vec::new(),
            samples: Vec::new(),
            warnings: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Keeps the last known state of dependencies that this poll did not check. `names` is a name or a name prefix that
    /// ends in `/`.
    pub fn keep(&mut self, names: impl Into<String>) {
        self.kept.push(names.into());
    }

    /// Adds a warning, for example about a part that could not be read. The host removes repeated warnings.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

impl FromIterator<Dependency> for Report {
    fn from_iter<I: IntoIterator<Item = Dependency>>(dependencies: I) -> Self {
        Self { dependencies: dependencies.into_iter().collect(), ..Self::empty() }
    }
}

impl Failure {
    /// Creates the description of a failure. `code` is stable and in snake_case, `message` is one sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retry_after_ms: None, extra: Vec::new() }
    }
}

impl CallError {
    /// Creates a failure that a retry may resolve. `code` is stable and in snake_case, `message` is one sentence.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Transient(Failure::new(code, message))
    }

    /// Creates a failure that persists until an operator changes the configuration or the source. `code` is stable and
    /// in snake_case, `message` is one sentence.
    pub fn misconfigured(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Misconfigured(Failure::new(code, message))
    }

    /// Creates a failure of exactly this request, which the source refuses whatever an operator changes. `code` is
    /// stable and in snake_case, `message` is one sentence.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Permanent(Failure::new(code, message))
    }

    /// Returns the failure of any variant.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Transient(failure) | Self::Permanent(failure) | Self::Misconfigured(failure) => failure,
        }
    }

    /// Returns the same error with a changed failure.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Transient(failure) => Self::Transient(change(failure)),
            Self::Permanent(failure) => Self::Permanent(change(failure)),
            Self::Misconfigured(failure) => Self::Misconfigured(change(failure)),
        }
    }
}
