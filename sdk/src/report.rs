//! Builders for reports.

use crate::{CallError, Dependency, DependencyFlags, Failure, Label, Report, Sample, SampleKind, Status};
use std::time::Duration;

/// Returns a time in the contract's milliseconds, at most 49 days.
pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl Dependency {
    /// Creates a dependency with a name and a status. The other fields are public and can be set from the source.
    ///
    /// ```
    /// # use polliwog_sdk::{Dependency, Status};
    /// let guest = Dependency::new("guest/100", Status::Ok).with_kind("vm").with_runs_on("node/pve1");
    /// let full = Dependency::warning("storage/local", "93 % full").with_runs_on("node/pve1").independent();
    /// assert_eq!(full.error_message.as_deref(), Some("93 % full"));
    /// ```
    pub fn new(name: impl Into<String>, status: Status) -> Self {
        Self {
            name: name.into(),
            title: None,
            kind: None,
            status,
            flags: DependencyFlags::empty(),
            code: None,
            latency_ms: None,
            description: None,
            impact: None,
            checked_at: None,
            valid_for_ms: None,
            error: None,
            error_message: None,
            contact: None,
            check_details: None,
            link: None,
            runs_on: Vec::new(),
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
        Self { flags: DependencyFlags::SKIPPED, ..Self::ok(name) }
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

    /// Sets the latency. A source's own number goes into the field `latency_ms`; the host removes numbers that are
    /// negative or not finite.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency_ms: Some(latency.div_duration_f64(Duration::from_millis(1))), ..self }
    }

    /// Sets the description, at most 4 KiB.
    #[must_use]
    pub fn with_description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Sets the consequence while it is critical, at most 1 KiB.
    #[must_use]
    pub fn with_impact(self, impact: impl Into<String>) -> Self {
        Self { impact: Some(impact.into()), ..self }
    }

    /// Sets when the source checked it, in milliseconds since 1970.
    #[must_use]
    pub fn with_checked_at(self, millis: i64) -> Self {
        Self { checked_at: Some(millis), ..self }
    }

    /// Sets how long after the check the state is current: until then it is not stale although polls fail, and later it
    /// is stale although polls keep it.
    #[must_use]
    pub fn with_valid_for(self, duration: Duration) -> Self {
        Self { valid_for_ms: Some(millis(duration)), ..self }
    }

    /// Sets the address of the object in the user interface of its source, with http or https.
    #[must_use]
    pub fn with_link(self, url: impl Into<String>) -> Self {
        Self { link: Some(url.into()), ..self }
    }

    /// Adds the name of a dependency in this report that this one runs on, for example the node of a guest. Its alert
    /// is held back while that one fails.
    #[must_use]
    pub fn with_runs_on(mut self, name: impl Into<String>) -> Self {
        self.runs_on.push(name.into());
        self
    }

    /// Says that the status has another cause than the state of what it runs on ("93 % full"), so that its alert is not
    /// held back.
    #[must_use]
    pub fn independent(self) -> Self {
        Self { flags: self.flags | DependencyFlags::INDEPENDENT, ..self }
    }

    /// Sets whether the check was skipped on purpose. If so, it counts as ok.
    #[must_use]
    pub fn with_skipped(self, is_skipped: bool) -> Self {
        let differs = self.is_skipped() != is_skipped;
        Self { flags: if differs { self.flags ^ DependencyFlags::SKIPPED } else { self.flags }, ..self }
    }

    /// Whether the check was skipped on purpose.
    pub fn is_skipped(&self) -> bool {
        self.flags & DependencyFlags::SKIPPED == DependencyFlags::SKIPPED
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
    ///
    /// ```
    /// # use polliwog_sdk::Sample;
    /// let sample = Sample::gauge("queue_messages", 12.0).with_label("queue", "mail").with_help("Messages that wait.");
    /// assert_eq!(sample.labels[0].value, "mail");
    /// ```
    pub fn gauge(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            kind: SampleKind::Gauge,
            labels: Vec::new(),
            value,
            help: None,
            unit: None,
            dependency: None,
            extra: Vec::new(),
        }
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

    /// Sets the description of the metric, one sentence.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Sets the base unit: `seconds`, `bytes`, `celsius`, ...
    #[must_use]
    pub fn with_unit(self, unit: impl Into<String>) -> Self {
        Self { unit: Some(unit.into()), ..self }
    }

    /// Sets the dependency of the report that the value is about. Its page shows the value.
    #[must_use]
    pub fn about(self, dependency: impl Into<String>) -> Self {
        Self { dependency: Some(dependency.into()), ..self }
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
    ///
    /// ```
    /// # use polliwog_sdk::Status;
    /// assert_eq!(Status::Warning.worse(Status::Unknown), Status::Unknown);
    /// ```
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
    /// Creates an empty report. Dependencies can also be collected to a report.
    ///
    /// ```
    /// # use polliwog_sdk::{Dependency, Report};
    /// let mut report: Report = ["pve1", "pve2"].map(Dependency::ok).into_iter().collect();
    /// report.warn("the list of nodes is not complete");
    /// assert_eq!(report.dependencies.len(), 2);
    /// ```
    pub fn empty() -> Self {
        Self {
            dependencies: Vec::new(),
            kept: Vec::new(),
            gone: Vec::new(),
            error_unless_known: None,
            samples: Vec::new(),
            warnings: Vec::new(),
            next_poll_ms: None,
            extra: Vec::new(),
        }
    }

    /// Keeps the last known state of dependencies that this poll did not check. `names` is a name or a name prefix that
    /// ends in `/`.
    pub fn keep(&mut self, names: impl Into<String>) {
        self.kept.push(names.into());
    }

    /// Ends the alerts of dependencies that were removed from the source on purpose, for example a guest that was
    /// deleted on a node that answers. `names` is a name or a name prefix that ends in `/`.
    pub fn remove(&mut self, names: impl Into<String>) {
        self.gone.push(names.into());
    }

    /// Lets the poll fail with `error` unless the report has a dependency that earlier reports of the target had or, if
    /// there is no earlier report, one whose status is not unknown. For a report from a response that is not 2xx.
    #[must_use]
    pub fn or_fail_unless_known(self, error: CallError) -> Self {
        Self { error_unless_known: Some(error), ..self }
    }

    /// Sets when the next poll is useful. The host keeps to the shortest and the longest interval of the target.
    #[must_use]
    pub fn with_next_poll(self, delay: Duration) -> Self {
        Self { next_poll_ms: Some(millis(delay)), ..self }
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
    ///
    /// ```
    /// # use polliwog_sdk::CallError;
    /// let busy = CallError::transient("busy", "the server is starting: the next poll may succeed");
    /// assert_eq!(busy.failure().code, "busy");
    /// ```
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

    /// Returns the same failure as one that an operator can correct, for example because the answer says that a key is
    /// wrong.
    #[must_use]
    pub fn into_misconfigured(self) -> Self {
        match self {
            Self::Transient(failure) | Self::Permanent(failure) | Self::Misconfigured(failure) => {
                Self::Misconfigured(failure)
            }
        }
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
