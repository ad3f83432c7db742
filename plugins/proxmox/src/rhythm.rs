//! What is looked at less often than at every poll.
//!
//! The last look is remembered in the target's cache, by the poll's own time. Where that is gone, it is looked again. What
//! could not be read then is said at each poll in between, and numbers are given again, because what is known of it stands.
//! What nobody could look at, and somebody can again, is looked at at once; so is everything when the target's settings changed.

use crate::Look;
use crate::memory::{remember, remembered};
use polliwog_sdk::{Label, Sample, SampleKind};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What of it concerns a poll.
pub(crate) struct Rhythm {
    /// Of the target's settings.
    settings: u64,
    /// Parts that are looked at in this poll.
    due: Vec<String>,
    /// How many samples there were before the part that is being looked at.
    samples_before: usize,
}

impl Rhythm {
    /// With a target's settings.
    pub(crate) fn new(settings: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        settings.hash(&mut hasher);
        Self { settings: hasher.finish(), due: Vec::new(), samples_before: 0 }
    }

    /// Whether a dependency of this name, or those of this prefix, are looked at in this poll with a part that is not at each.
    pub(crate) fn looks_at(&self, name: &str) -> bool {
        self.due.iter().any(|part| is_of(name, part))
    }
}

/// A look.
#[derive(Default, Deserialize, Serialize)]
struct Looked {
    /// From when on, and until when that will do. Milliseconds since 1970.
    from: u64,
    until: u64,
    /// Of the settings then, as [`Rhythm::settings`].
    settings: u64,
    /// What could not be read.
    notes: Vec<String>,
    /// Numbers for graphs.
    samples: Vec<Number>,
}

/// A sample, to be remembered: its name, whether it only goes up, labels, value. There may be thousands, so that it is short.
#[derive(Deserialize, Serialize)]
struct Number(String, bool, Vec<(String, String)>, f64);

impl Number {
    fn of(sample: &Sample) -> Self {
        let labels = sample.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect();
        let counts = matches!(sample.kind, SampleKind::Counter);
        Self(sample.name.clone(), counts, labels, sample.value)
    }

    fn sample(self) -> Sample {
        let Self(name, counts, labels, value) = self;
        let kind = if counts { SampleKind::Counter } else { SampleKind::Gauge };
        let labels = labels.into_iter().map(|(name, value)| Label { name, value }).collect();
        Sample { name, kind, labels, value }
    }
}

impl<S> Look<S> {
    /// Whether it is time to look at this again. What is noted, and what samples are added, from here to [`Look::looked`]
    /// belong to it.
    pub fn is_due(&mut self, part: &str) -> bool {
        let Looked { from, until, settings, notes, samples } = remembered(&key(part));
        // A look of tomorrow was before the clock was set back.
        let stands = settings == self.rhythm.settings && (from..until).contains(&self.milliseconds());
        let due = !stands || self.back().iter().any(|name| is_of(name, part));
        if due {
            self.rhythm.due.push(part.to_owned());
            self.notes.begin();
            self.rhythm.samples_before = self.report.samples.len();
        } else {
            self.report.samples.extend(samples.into_iter().map(Number::sample));
            notes.into_iter().for_each(|note| self.notes.say(|| note));
        }
        due
    }

    /// It was looked at: the next time is after so long.
    pub fn looked(&mut self, part: &str, period: Duration) {
        let from = self.milliseconds();
        let samples = self.report.samples.iter().skip(self.rhythm.samples_before).map(Number::of).collect();
        let until = from + period.as_millis() as u64;
        let looked = Looked { from, until, settings: self.rhythm.settings, notes: self.notes.begun(), samples };
        // A cache that is full means one look too many.
        remember(&key(part), &looked, period);
    }
}

/// Whether a dependency of this name, or those of this prefix, are looked at with a part: `zfs/pve1` with `hourly/zfs`,
/// `group/` with `group/main/`.
fn is_of(name: &str, part: &str) -> bool {
    let part = part.strip_prefix("hourly/").unwrap_or(part);
    name == part || name.starts_with(&format!("{part}/")) || name.ends_with('/') && format!("{part}/").starts_with(name)
}

fn key(part: &str) -> String {
    format!("rhythm/{part}")
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
            assert_eq!(is_of(name, part), expected, "{name} {part}");
        }
    }
}
