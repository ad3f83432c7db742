//! Making reports.

use crate::{Dependency, Failure, PollError, Report, Status};

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
