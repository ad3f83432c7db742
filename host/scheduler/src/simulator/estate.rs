//! A simulated estate: classes of targets with their incidents, and outages.

use crate::{Settings, TargetSpec};
use model::{Kind, TargetId};
use std::sync::Arc;
use std::time::Duration;

/// A class of targets with the same behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The name of the class.
    pub name: String,
    /// The share of all targets, relative to the shares of the other classes.
    pub share: f64,
    /// Incidents per target and day; the times between them are exponentially distributed.
    pub incidents_per_day: f64,
    /// The mean length of an incident; lengths are exponentially distributed.
    pub incident: Duration,
    /// The mean duration of a poll; durations are uniform from half to one and a half times the mean.
    pub latency: Duration,
    /// The share of polls with a transient failure, 0 to 1.
    pub failure_rate: f64,
    /// The targets' own base interval.
    pub interval: Option<Duration>,
}

/// An outage: a part of the estate is unreachable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// The start of the outage, from the start of the run.
    pub at: Duration,
    /// The length of the outage.
    pub length: Duration,
    /// The share of all targets that are unreachable, 0 to 1.
    pub share: f64,
}

/// Targets, their incidents and outages, and the settings under which they are polled.
#[derive(Clone, Debug, PartialEq)]
pub struct Estate {
    /// The name of the estate.
    pub name: String,
    /// The number of targets.
    pub targets: u32,
    /// The number of targets per host.
    pub per_host: u32,
    /// The simulated time.
    pub duration: Duration,
    /// The settings for `adaptive`. The intervals of the other cadences follow from the number of polls.
    pub settings: Settings,
    /// The classes of the targets.
    pub classes: Vec<Class>,
    /// Outages of many targets at once.
    pub outages: Vec<Outage>,
}

impl Estate {
    /// Returns the class index of each target, in the order of the classes. Every class has at least one target.
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

    /// Returns the id of a target.
    pub(crate) fn id(target: usize) -> TargetId {
        TargetId::new(&format!("t{target}")).expect("a letter and digits form a valid id")
    }

    pub(crate) fn spec(&self, target: usize, class: &Class) -> TargetSpec {
        let host: Arc<str> = format!("host-{}", target / self.per_host.max(1) as usize).into();
        TargetSpec {
            id: Self::id(target),
            kind: Kind::new("simulated").expect("a word is a valid kind"),
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
