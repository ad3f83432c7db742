//! Events: the changes of which listeners are notified.
//!
//! A new kind of event is three edits: an entry in the table below, an entry in the table of `store`'s stored events,
//! and its fields on the wire in `web`.

use crate::{DeadReason, FailureCategory, Kind, Phase, Status, TargetId, Timestamp};

/// An event and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time of the event.
    pub at: Timestamp,
    /// The kind of the event, with its fields.
    pub kind: EventKind,
}

/// An event with its position in the stored sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequencedEvent {
    /// The position in the sequence; `None` for an event that is never stored.
    pub sequence: Option<i64>,
    /// The event.
    pub event: Event,
}

/// Defines [`EventKind`] from its two tables: events about one target, which all have the field `target`, and others.
macro_rules! events {
    (
        target { $($(#[$doc:meta])* $name:ident $word:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)?
        })* }
        other { $($(#[$other_doc:meta])* $other:ident $other_word:literal {
            $($(#[$other_field_doc:meta])* $other_field:ident: $other_type:ty),* $(,)?
        })* }
    ) => {
        /// The kind of an event. [`EventKind::name`] is its name on the wire.
        #[derive(Clone, Debug, PartialEq)]
        pub enum EventKind {
            $($(#[$doc])* $name {
                /// The target.
                target: TargetId,
                $($(#[$field_doc])* $field: $type,)*
            },)*
            $($(#[$other_doc])* $other { $($(#[$other_field_doc])* $other_field: $other_type,)* },)*
        }

        impl EventKind {
            /// All names on the wire.
            pub const NAMES: &[&str] = &[$($word,)* $($other_word,)*];

            /// Returns the name on the wire.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $word,)*
                    $(Self::$other { .. } => $other_word,)*
                }
            }

            /// Returns the target that the event is about; `None` if it is not about one.
            pub const fn target(&self) -> Option<&TargetId> {
                match self {
                    $(Self::$name { target, .. } => Some(target),)*
                    $(Self::$other { .. } => None,)*
                }
            }
        }
    };
}

events! {
    target {
        /// A dependency's status changed from one report to the next.
        StatusChange "status:change" {
            /// The dependency's name.
            dependency: String,
            /// The status before.
            previous: Status,
            /// The status after.
            current: Status,
        }
        /// A dependency is no longer reported.
        DependencyMissing "dependency:missing" {
            /// The dependency's name.
            dependency: String,
        }
        /// A poll ended. Never stored.
        PollComplete "poll:complete" {
            /// Whether the poll returned a report.
            success: bool,
            /// The number of dependencies in the report.
            dependencies: u32,
            /// The number of dependencies whose status changed.
            transitions: u32,
            /// How long the poll took, in milliseconds.
            latency_ms: f64,
            /// The failure message; `None` if there is a report.
            error: Option<String>,
            /// The number of warnings.
            warnings: u32,
        }
        /// A poll failed. Stored if the error differs from the one before.
        PollError "poll:error" {
            /// The party at fault, and whether another attempt may succeed.
            category: FailureCategory,
            /// The failure's stable code.
            code: String,
            /// The failure in one sentence.
            message: String,
        }
        /// A target cannot be polled any more: its dependencies become stale.
        Unreachable "target:unreachable" {
            /// The failure's code, such as `timeout`.
            code: String,
            /// The failure in one sentence.
            message: String,
        }
        /// A target that could not be polled answers again.
        Reachable "target:reachable" {
            /// The number of consecutive failures before.
            failures: u32,
        }
        /// A target was added or enabled.
        ServiceStarted "service:started" {}
        /// A target was removed or disabled.
        ServiceStopped "service:stopped" {}
        /// A target's circuit breaker opened.
        CircuitOpen "circuit:open" {
            /// The number of consecutive failures.
            failures: u32,
        }
        /// A target's circuit breaker closed.
        CircuitClose "circuit:close" {}
        /// A target became a dead letter: it is polled rarely until it answers.
        DeadLetter "target:dead-letter" {
            /// The reason.
            reason: DeadReason,
        }
        /// A dead letter is polled at its normal interval again.
        Revived "target:revived" {}
    }
    other {
        /// A plugin serves its kind.
        PluginLoaded "plugin:loaded" {
            /// The kind.
            plugin: Kind,
            /// The plugin's version.
            version: String,
        }
        /// A plugin file was refused.
        PluginRefused "plugin:refused" {
            /// The file.
            file: String,
            /// The reason and the remedy.
            reason: String,
        }
        /// A plugin is no longer run, except for probes.
        PluginQuarantined "plugin:quarantined" {
            /// The kind that it serves.
            plugin: Kind,
            /// The number of targets whose last polls, one after another, ended in plugin faults.
            targets: u32,
        }
        /// A plugin in quarantine is run normally again.
        PluginReleased "plugin:released" {
            /// The kind that it serves.
            plugin: Kind,
        }
        /// A deployment of the fleet failed as a whole, or works again.
        FleetDeployment "fleet:deployment" {
            /// The deployment's name.
            deployment: String,
            /// The phase before.
            previous: Phase,
            /// The phase after.
            current: Phase,
            /// The latest failure with its device; `None` if it works.
            error: Option<String>,
        }
        /// A device of the fleet was not heard for a while.
        FleetDeviceStale "fleet:device-stale" {
            /// The device's id.
            device: String,
        }
        /// A device of the fleet that was not heard is heard again.
        FleetDeviceHeard "fleet:device-heard" {
            /// The device's id.
            device: String,
        }
        /// An alert is confirmed.
        AlertFiring "alert:firing" {
            /// The alert: target and dependency, or class and name.
            alert: String,
            /// The status.
            status: Status,
            /// The error message.
            message: Option<String>,
        }
        /// An alert is over.
        AlertResolved "alert:resolved" {
            /// The alert: target and dependency, or class and name.
            alert: String,
        }
        /// An alert is held back because another one explains it.
        AlertSuppressed "alert:suppressed" {
            /// The alert: target and dependency, or class and name.
            alert: String,
            /// The alert that explains it.
            by: String,
        }
        /// A notification could not be delivered.
        DeliveryFailed "delivery:failed" {
            /// The channel.
            channel: String,
            /// The number of the notification.
            number: u64,
            /// Whether it is given up. Otherwise it is tried again.
            is_over: bool,
            /// The reason.
            message: String,
        }
        /// A setting changed, or the configuration was read again.
        SettingsChanged "settings:changed" {
            /// The setting's key, or the configuration's file.
            what: String,
            /// The setting's value; `None` if it was unset, or for the file.
            value: Option<String>,
        }
    }
}
