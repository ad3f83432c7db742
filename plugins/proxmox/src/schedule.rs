//! The check schedule: parts of a report that are checked less often than at every poll.
//!
//! A check is valid for a period. At the polls in between, its diagnostics and its samples are reported again. A part
//! that becomes readable again is checked immediately, and so is everything when the target's settings change.

use crate::expiring::Expiring;
use crate::sorted_map::SortedMap;
use polliwog_sdk::{Label, Sample, SampleKind};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The last check of each part that is not checked at every poll.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Schedule {
    checks: SortedMap<String, Expiring<Check>>,
}

/// The result of a check that is reported until the next check.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Check {
    /// Diagnostics: fields that could not be read.
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<String>,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    samples: Vec<StoredSample>,
}

/// A sample in short form: a cluster may have thousands.
#[derive(Debug, Deserialize, Serialize)]
struct StoredSample {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    is_counter: bool,
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<(String, String)>,
    #[serde(rename = "v")]
    value: f64,
}

impl From<&Sample> for StoredSample {
    fn from(sample: &Sample) -> Self {
        Self {
            name: sample.name.clone(),
            is_counter: matches!(sample.kind, SampleKind::Counter),
            labels: sample.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect(),
            value: sample.value,
        }
    }
}

impl From<&StoredSample> for Sample {
    fn from(stored: &StoredSample) -> Self {
        let kind = if stored.is_counter { SampleKind::Counter } else { SampleKind::Gauge };
        let label = |(name, value): &(String, String)| Label { name: name.clone(), value: value.clone() };
        let labels = stored.labels.iter().map(label).collect();
        Self { kind, labels, ..Self::gauge(&stored.name, stored.value) }
    }
}

impl Check {
    pub(crate) fn new(diagnostics: Vec<String>, samples: &[Sample]) -> Self {
        Self { diagnostics, samples: samples.iter().map(StoredSample::from).collect() }
    }

    /// The samples of the check.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter().map(Sample::from)
    }
}

impl Schedule {
    /// The last check of a part; `None` if the part is due.
    pub(crate) fn valid(&self, part: &str, now: u64) -> Option<&Check> {
        self.checks.get(part)?.get(now)
    }

    /// Remembers a check for a period.
    pub(crate) fn set(&mut self, part: &str, check: Check, now: u64, period: Duration) {
        self.checks.insert(part.to_owned(), Expiring::new(check, now, period));
    }

    /// Drops expired checks.
    pub(crate) fn purge(&mut self, now: u64) {
        self.checks.retain(|_, check| check.get(now).is_some());
    }

    /// Drops all samples, which are then missing until the next check. Returns whether there were any.
    pub(crate) fn drop_samples(&mut self) -> bool {
        let samples = self.checks.values_mut().map(|check| std::mem::take(&mut check.value_mut().samples));
        // `any` would stop at the first.
        samples.filter(|dropped| !dropped.is_empty()).count() > 0
    }

    /// Drops all checks: everything is due. Returns whether there were any.
    pub(crate) fn drop_checks(&mut self) -> bool {
        !std::mem::take(&mut self.checks).is_empty()
    }
}

/// The parts that are checked in this poll.
#[derive(Default)]
pub(crate) struct Due {
    pub parts: Vec<String>,
    /// The number of samples before the part that is being checked.
    pub samples_before: usize,
}

impl Due {
    /// Whether a dependency of this name, or those of this prefix, belong to a part that is checked in this poll.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.parts.iter().any(|part| belongs(name, part))
    }
}

/// Whether a dependency of this name, or those of this prefix, belong to a part: `zfs/pve1` to `hourly/zfs`, `group/`
/// to `group/main/`.
pub(crate) fn belongs(name: &str, part: &str) -> bool {
    let part = part.strip_prefix("hourly/").unwrap_or(part);
    name == part || name.starts_with(&format!("{part}/")) || name.ends_with('/') && format!("{part}/").starts_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_parts() {
        for (name, part, expected) in [
            ("zfs/pve1", "hourly/zfs", true),
            ("zfs/", "hourly/zfs", true),
            ("certificate/pve1", "hourly/zfs", false),
            ("group/", "group/main/", true),
            ("group/main/", "group/main/", true),
            ("group/other/", "group/main/", false),
            ("verification/", "verification/main", true),
            ("verification/main", "verification/main", true),
            ("verification/other", "verification/main", false),
            ("backup/guest/100", "backup", true),
            ("replication", "replication", true),
            ("replication/", "replication", true),
        ] {
            assert_eq!(belongs(name, part), expected, "{name} {part}");
        }
    }
}
