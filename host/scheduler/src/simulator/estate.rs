//! A made-up estate: classes of targets, and what befalls them.

use crate::{Settings, TargetSpec};
use model::{Kind, TargetId};
use std::sync::Arc;
use std::time::Duration;

/// Targets of one sort.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What they are called.
    pub name: String,
    /// Their share of all targets; shares are weighed against one another.
    pub share: f64,
    /// How often an incident begins for each of them, in a day; times are exponential.
    pub incidents_per_day: f64,
    /// How long an incident lasts on average; lengths are exponential.
    pub incident: Duration,
    /// How long a poll takes on average; half to one and a half times that.
    pub latency: Duration,
    /// The share of polls that fail for a reason that goes away, 0 to 1.
    pub failure_rate: f64,
    /// Their own base interval.
    pub interval: Option<Duration>,
}

/// A part of the estate cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// When it begins, from the start.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// The share of all targets that it hits, 0 to 1.
    pub share: f64,
}

/// Targets, their fates, and the settings under which they are polled.
#[derive(Clone, Debug, PartialEq)]
pub struct Estate {
    /// What it is called.
    pub name: String,
    /// How many targets there are.
    pub targets: u32,
    /// Targets of one host.
    pub per_host: u32,
    /// How long it is watched.
    pub duration: Duration,
    /// The settings for `adaptive`; the other cadences' intervals follow from the number of polls.
    pub settings: Settings,
    /// What the targets are.
    pub classes: Vec<Class>,
    /// What befalls many of them at once.
    pub outages: Vec<Outage>,
}

impl Estate {
    /// Which class each target belongs to, in the order of the classes; every class with a share has at least one.
    pub(crate) fn classes_of_targets(&self) -> Vec<usize> {
        let total: f64 = self.classes.iter().map(|class| class.share).sum();
        let mut owned = Vec::new();
        let mut shares = 0.0;
        for (class, wanted) in self.classes.iter().enumerate() {
            shares += wanted.share / total.max(f64::MIN_POSITIVE);
            let until = ((shares * f64::from(self.targets)).round() as usize).max(owned.len() + 1);
            owned.resize(until, class);
        }
        owned.truncate(self.targets as usize);
        owned
    }

    pub(crate) fn spec(&self, target: usize, class: &Class) -> TargetSpec {
        let host: Arc<str> = format!("host-{}", target / self.per_host.max(1) as usize).into();
        TargetSpec {
            id: TargetId::new(&format!("t{target}")).expect("a letter and digits are an id"),
            kind: Kind::new("simulated").expect("a word is a kind"),
            url_hash: (target as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            origin: host.clone(),
            host,
            cadence: None,
            interval: class.interval,
            min: None,
            max: None,
            kind_interval: None,
            enabled: true,
        }
    }
}
