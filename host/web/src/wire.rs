//! Values that pages and API write the same way.

use model::{Subject, TargetId, Timestamp, hex};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::time::Duration;
use utoipa::ToSchema;

/// A time in the API: RFC 3339, UTC, with milliseconds.
#[derive(Serialize, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub(crate) struct Time(String);

impl Time {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self(time(at))
    }
}

/// Formats a time as RFC 3339 in UTC with milliseconds.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.as_millis()) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".to_owned(),
    }
}

pub(crate) fn times(at: Option<Timestamp>) -> Option<Time> {
    at.map(Time::new)
}

/// A duration in milliseconds, to the microsecond.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A dependency's id for URLs: the first 16 hex digits of the SHA-256 of target id, NUL, name.
pub fn dependency_id(target: &TargetId, name: &str) -> String {
    let digest = Sha256::new().chain_update(target.as_str()).chain_update([0]).chain_update(name).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// An alert's id for URLs: the first 16 hex digits of the SHA-256 of class, NUL, name, NUL, dependency.
pub(crate) fn alert_id(subject: &Subject) -> String {
    let dependency = subject.dependency_name().unwrap_or_default();
    let text = [subject.class().as_str(), subject.name(), dependency].join("\0");
    hex(&Sha256::digest(text)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_have_the_documented_format() {
        let target = TargetId::new("a").unwrap();
        assert_eq!(dependency_id(&target, "b").len(), 16);
        assert_ne!(dependency_id(&target, "b"), dependency_id(&target, "c"));
        assert_eq!(time(Timestamp::from_millis(1_784_578_620_000)), "2026-07-20T20:17:00.000Z");
        assert_eq!(time(Timestamp::from_millis(i64::MAX)), "1970-01-01T00:00:00.000Z");
    }
}
