//! The stored form of events: a table of the stored kinds, and the conversions derived from it.

use model::{DeadReason, Event, EventKind, FailureCategory, Kind, Phase, Status, TargetId, Timestamp};
use serde::{Deserialize, Serialize};

/// A field of an event and its form in JSON.
pub(crate) trait Field: Sized {
    /// The form in JSON.
    type Wire;

    /// Converts to the JSON form.
    fn store(&self) -> Self::Wire;

    /// Converts back. `None` if another version wrote a value that this one does not know.
    fn restore(wire: Self::Wire) -> Option<Self>;
}

macro_rules! as_is {
    ($($type:ty),*) => {$(
        impl Field for $type {
            type Wire = Self;

            fn store(&self) -> Self {
                self.clone()
            }

            fn restore(wire: Self) -> Option<Self> {
                Some(wire)
            }
        }
    )*};
}
as_is!(String, Option<String>, u32, u64, bool);

macro_rules! as_text {
    ($($type:ty, $restore:expr;)*) => {$(
        impl Field for $type {
            type Wire = String;

            fn store(&self) -> String {
                self.as_str().to_owned()
            }

            fn restore(wire: String) -> Option<Self> {
                $restore(&wire)
            }
        }
    )*};
}
as_text! {
    TargetId, |text: &str| Self::new(text).ok();
    Kind, |text: &str| Self::new(text).ok();
    Status, Self::from_word;
    FailureCategory, Self::from_word;
    DeadReason, Self::from_word;
    Phase, Self::from_word;
}

/// Defines [`EventWire`] with its conversions. Variant and field names appear in the database and must not change.
macro_rules! stored_events {
    ($($name:ident { $($field:ident: $type:ty),* })*) => {
        /// The fields of an event, stored as JSON in its row.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(tag = "event")]
        pub(crate) enum EventWire {
            $($name { $($field: <$type as Field>::Wire),* },)*
        }

        impl EventWire {
            /// Returns `None` for an event that is never stored.
            pub(crate) fn of(event: &EventKind) -> Option<Self> {
                Some(match event {
                    EventKind::PollComplete { .. } => return None,
                    $(EventKind::$name { $($field),* } => Self::$name { $($field: $field.store()),* },)*
                })
            }

            /// Returns `None` for a row of another version that this version cannot read.
            pub(crate) fn restore(self, at: Timestamp) -> Option<Event> {
                let kind = match self {
                    $(Self::$name { $($field),* } => {
                        EventKind::$name { $($field: <$type as Field>::restore($field)?),* }
                    })*
                };
                Some(Event { at, kind })
            }
        }
    };
}

stored_events! {
    StatusChange { target: TargetId, dependency: String, previous: Status, current: Status }
    DependencyMissing { target: TargetId, dependency: String }
    PollError { target: TargetId, category: FailureCategory, code: String, message: String }
    Unreachable { target: TargetId, code: String, message: String }
    Reachable { target: TargetId, failures: u32 }
    ServiceStarted { target: TargetId }
    ServiceStopped { target: TargetId }
    CircuitOpen { target: TargetId, failures: u32 }
    CircuitClose { target: TargetId }
    DeadLetter { target: TargetId, reason: DeadReason }
    Revived { target: TargetId }
    PluginLoaded { plugin: Kind, version: String }
    PluginRefused { file: String, reason: String }
    PluginQuarantined { plugin: Kind, targets: u32 }
    PluginReleased { plugin: Kind }
    FleetDeployment { deployment: String, previous: Phase, current: Phase, error: Option<String> }
    FleetDeviceStale { device: String }
    FleetDeviceHeard { device: String }
    AlertFiring { alert: String, status: Status, message: Option<String> }
    AlertResolved { alert: String }
    AlertSuppressed { alert: String, by: String }
    DeliveryFailed { channel: String, number: u64, is_over: bool, message: String }
    SettingsChanged { what: String, value: Option<String> }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_of_a_stored_event_is_stable_and_can_be_restored() {
        let target = TargetId::new("a").unwrap();
        let at = Timestamp::from_millis(5);
        for (kind, row) in [
            (
                EventKind::StatusChange {
                    target: target.clone(),
                    dependency: "db".to_owned(),
                    previous: Status::Ok,
                    current: Status::Critical,
                },
                r#"{"event":"StatusChange","target":"a","dependency":"db","previous":"ok","current":"critical"}"#,
            ),
            (
                EventKind::DeadLetter { target, reason: DeadReason::Permanent },
                r#"{"event":"DeadLetter","target":"a","reason":"permanent_failure"}"#,
            ),
            (
                EventKind::FleetDeployment {
                    deployment: "web".to_owned(),
                    previous: Phase::Succeeded,
                    current: Phase::Failed,
                    error: Some("a: gone".to_owned()),
                },
                r#"{"event":"FleetDeployment","deployment":"web","previous":"succeeded","current":"failed","error":"a: gone"}"#,
            ),
            (
                EventKind::SettingsChanged { what: "scheduler.cadence".to_owned(), value: None },
                r#"{"event":"SettingsChanged","what":"scheduler.cadence","value":null}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&EventWire::of(&kind).unwrap()).unwrap(), row);
            let read: EventWire = serde_json::from_str(row).unwrap();
            assert_eq!(read.restore(at), Some(Event { at, kind }));
        }
        let unknown: EventWire =
            serde_json::from_str(r#"{"event":"DeadLetter","target":"a","reason":"of_another_version"}"#).unwrap();
        assert_eq!(unknown.restore(at), None);
    }
}
