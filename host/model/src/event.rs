//! What is told to whoever listens.

use crate::{FailureCategory, Kind, Status, TargetId, Timestamp};

/// Something that happened, at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// What happened. The names on the wire are [`EventKind::name`].
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A dependency's status changed from one report to the next.
    StatusChange {
        /// Whose dependency.
        target: TargetId,
        /// Which one.
        dependency: String,
        /// What it was.
        previous: Status,
        /// What it is.
        current: Status,
    },
    /// A dependency is no longer reported.
    DependencyMissing {
        /// Whose dependency.
        target: TargetId,
        /// Which one.
        dependency: String,
    },
    /// A poll ended. Never stored.
    PollComplete {
        /// Whose poll.
        target: TargetId,
        /// Whether there is a report.
        success: bool,
        /// How many dependencies the report had.
        dependencies: u32,
        /// How many of them changed status.
        transitions: u32,
        /// How long it took, in milliseconds.
        latency_ms: f64,
        /// Why there is no report.
        error: Option<String>,
        /// What the plugin could not read.
        warnings: u32,
    },
    /// A poll failed. Stored when the error is another one than before.
    PollError {
        /// Whose poll.
        target: TargetId,
        /// Whose failure it is.
        category: FailureCategory,
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
    /// A target cannot be polled any more: what is known of it goes stale.
    Unreachable {
        /// The target.
        target: TargetId,
        /// The failure's code, such as `timeout`.
        code: String,
        /// The failure in one sentence.
        message: String,
    },
    /// A target that could not be polled answers again.
    Reachable {
        /// The target.
        target: TargetId,
        /// How many failures in a row there were.
        failures: u32,
    },
    /// A target became known, or was enabled.
    ServiceStarted {
        /// Which one.
        target: TargetId,
    },
    /// A target went, or was disabled.
    ServiceStopped {
        /// Which one.
        target: TargetId,
    },
    /// A target's breaker opened.
    CircuitOpen {
        /// Whose breaker.
        target: TargetId,
        /// How many failures in a row there were.
        failures: u32,
    },
    /// A target's breaker closed.
    CircuitClose {
        /// Whose breaker.
        target: TargetId,
    },
    /// A target is polled rarely until it answers.
    DeadLetter {
        /// Which one.
        target: TargetId,
        /// `permanent_failure` or `max_retry_attempts`.
        reason: &'static str,
    },
    /// A dead letter is polled again like everybody.
    Revived {
        /// Which one.
        target: TargetId,
    },
    /// A plugin serves its kind.
    PluginLoaded {
        /// The kind it serves.
        plugin: Kind,
        /// Its version.
        version: String,
    },
    /// A plugin file was not taken.
    PluginRefused {
        /// The file.
        file: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A plugin is not run any more but for a probe now and then.
    PluginQuarantined {
        /// The kind it serves.
        plugin: Kind,
        /// How many different targets' polls, one after another, ended in faults of its own.
        targets: u32,
    },
    /// A setting is another now, or the configuration was read again.
    SettingsChanged {
        /// The setting's key, or the configuration's file.
        what: String,
        /// Its value; nothing when it was unset, or when it is the file.
        value: Option<String>,
    },
}

impl EventKind {
    /// The name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StatusChange { .. } => "status:change",
            Self::DependencyMissing { .. } => "dependency:missing",
            Self::PollComplete { .. } => "poll:complete",
            Self::PollError { .. } => "poll:error",
            Self::Unreachable { .. } => "target:unreachable",
            Self::Reachable { .. } => "target:reachable",
            Self::ServiceStarted { .. } => "service:started",
            Self::ServiceStopped { .. } => "service:stopped",
            Self::CircuitOpen { .. } => "circuit:open",
            Self::CircuitClose { .. } => "circuit:close",
            Self::DeadLetter { .. } => "target:dead-letter",
            Self::Revived { .. } => "target:revived",
            Self::PluginLoaded { .. } => "plugin:loaded",
            Self::PluginRefused { .. } => "plugin:refused",
            Self::PluginQuarantined { .. } => "plugin:quarantined",
            Self::SettingsChanged { .. } => "settings:changed",
        }
    }

    /// The target it is about, where it is about one.
    pub const fn target(&self) -> Option<&TargetId> {
        match self {
            Self::StatusChange { target, .. }
            | Self::DependencyMissing { target, .. }
            | Self::PollComplete { target, .. }
            | Self::PollError { target, .. }
            | Self::Unreachable { target, .. }
            | Self::Reachable { target, .. }
            | Self::ServiceStarted { target }
            | Self::ServiceStopped { target }
            | Self::CircuitOpen { target, .. }
            | Self::CircuitClose { target }
            | Self::DeadLetter { target, .. }
            | Self::Revived { target } => Some(target),
            Self::PluginLoaded { .. }
            | Self::PluginRefused { .. }
            | Self::PluginQuarantined { .. }
            | Self::SettingsChanged { .. } => None,
        }
    }
}
