//! Plugins whose own faults keep them from being run.
//!
//! When the latest polls of five different targets (of all, where its kind has fewer) all ended in faults of the plugin,
//! what is wrong is the plugin and not a target. Then one target is polled every 5 minutes, as a probe; one poll that ends
//! in anything but such a fault, or another version of the plugin, and all are polled again. What an operator asks for is
//! polled in quarantine too, and counts as a probe.

use super::{MAX_UNWRITTEN, Scheduler};
use crate::queue::Slot;
use crate::target::Target;
use crate::why::Why;

use crate::record::{Quarantine, Record};
use model::{BreakerState, EventKind, Kind, Moment, Place};
use std::collections::BTreeSet;
use std::time::Duration;

/// So many targets in a row, and it is the plugin.
const SUSPICIOUS: usize = 5;
/// How often a quarantined plugin is tried.
const PROBE: Duration = Duration::from_secs(300);

impl Scheduler {
    /// Kinds whose plugin is in quarantine, with when it is tried again.
    pub fn quarantined(&self) -> impl Iterator<Item = (&Kind, Moment)> {
        self.records.iter().filter_map(|(kind, record)| {
            let quarantine = record.quarantine.as_ref()?;
            Some((kind, quarantine.chosen.unwrap_or(quarantine.allowed)))
        })
    }

    /// Whether a target has to wait for its plugin.
    pub(super) fn is_quarantined(&self, kind: &Kind, slot: Slot) -> bool {
        let quarantine = self.records.get(kind).and_then(|record| record.quarantine.as_ref());
        quarantine.is_some_and(|quarantine| !quarantine.probes.contains(&slot))
    }

    /// A target waits for its plugin from now on.
    pub(super) fn put_aside(&mut self, slot: Slot) {
        let kind = &self.target(slot).spec.kind.clone();
        if let Some(quarantine) = self.records.get_mut(kind).and_then(|record| record.quarantine.as_mut()) {
            quarantine.chosen = Some(quarantine.allowed);
        }
    }

    /// A poll ended in a fault of the plugin.
    pub(super) fn suspect(&mut self, slot: Slot, now: Moment) {
        let kind = self.target(slot).spec.kind.clone();
        let id = self.queue.id(slot).clone();
        let record = self.records.entry(kind.clone()).or_default();
        if let Some(quarantine) = &mut record.quarantine {
            if quarantine.probes.remove(&slot) {
                (quarantine.allowed, quarantine.chosen) = (now.after(PROBE), Some(now.after(PROBE)));
            }
            return;
        }
        record.faulty.insert(id);
        let faulty = record.faulty.len();
        let polled = |target: &&Target| target.spec.enabled && target.spec.kind == kind;
        let enough = self.targets.iter().flatten().filter(polled).take(SUSPICIOUS).count().max(1);
        if faulty < enough {
            return;
        }
        let quarantine = Some(Quarantine::until(now.after(PROBE)));
        self.records.insert(kind.clone(), Record { faulty: BTreeSet::new(), quarantine });
        for slot in self.slots(|target| target.spec.kind == kind && target.place.waits()) {
            self.take_out(slot);
            self.settle(slot, now);
        }
        let targets = u32::try_from(faulty).unwrap_or(u32::MAX);
        self.emit(EventKind::PluginQuarantined { plugin: kind, targets });
    }

    /// The plugin of a kind did what it should, or is another one now.
    pub(super) fn clear(&mut self, kind: &Kind, now: Moment) {
        if self.records.is_empty() {
            return;
        }
        let Some(Record { quarantine: Some(_), .. }) = self.records.remove(kind) else { return };
        let waiting = self.slots(|target| target.place == Place::Quarantined && target.spec.kind == *kind);
        self.settle_all(&waiting, now);
    }

    /// A target may be polled in quarantine: it was chosen, or an operator asked for it. One that is being polled already
    /// began before that, and one that is disabled would never be polled.
    pub(super) fn let_through(&mut self, slot: Slot) {
        if self.target(slot).flight.is_some() || !self.target(slot).spec.enabled {
            return;
        }
        let kind = self.target(slot).spec.kind.clone();
        if let Some(quarantine) = self.records.get_mut(&kind).and_then(|record| record.quarantine.as_mut()) {
            quarantine.probes.insert(slot);
        }
    }

    /// Forgets a target that is no probe any more: it is gone, disabled, or of another kind.
    pub(super) fn is_no_probe(&mut self, slot: Slot) {
        for record in self.records.values_mut() {
            if let Some(quarantine) = &mut record.quarantine {
                quarantine.probes.remove(&slot);
            }
        }
    }

    /// Chooses a probe for every quarantined plugin whose time has come.
    pub(super) fn choose_probes(&mut self, now: Moment) {
        if self.records.is_empty() || self.stopping {
            return;
        }
        let due = self.without_probe().filter(|(_, at)| *at <= now).map(|(kind, _)| kind.clone());
        for kind in due.collect::<Vec<_>>() {
            let candidate = self.candidate(&kind, now);
            let Some(quarantine) = self.records.get_mut(&kind).and_then(|record| record.quarantine.as_mut()) else {
                continue;
            };
            quarantine.chosen = candidate.map(|(at, _)| at);
            let Some((_, slot)) = candidate.filter(|(at, _)| *at <= now) else { continue };
            self.let_through(slot);
            let target = self.target_mut(slot);
            target.schedule.due = now;
            target.why = Why::QuarantineProbe;
            self.settle(slot, now);
            self.persist(slot, false);
        }
    }

    /// When the next probe is to be chosen.
    pub(super) fn next_probe(&self) -> Option<Moment> {
        self.without_probe().map(|(_, at)| at).min()
    }

    /// Quarantined kinds of which no target is polled, with when one is to be chosen.
    fn without_probe(&self) -> impl Iterator<Item = (&Kind, Moment)> {
        self.records.iter().filter_map(|(kind, record)| {
            let quarantine = record.quarantine.as_ref()?;
            Some((kind, quarantine.chosen.filter(|_| quarantine.probes.is_empty())?))
        })
    }

    /// Of the targets that wait for a plugin: the one that may be polled first, and when; of several the one that was
    /// polled longest ago. An open breaker and a dead letter keep their time.
    fn candidate(&self, kind: &Kind, now: Moment) -> Option<(Moment, Slot)> {
        let key = |slot: Slot| {
            let target = self.target(slot);
            let healthy = target.schedule.breaker.state == BreakerState::Closed && target.schedule.dead.is_none();
            let when = if healthy { now } else { target.schedule.due.max(now) };
            (when, target.last_polled(), target.spec.id.clone())
        };
        // One whose results wait for the database would be left out when its turn comes.
        let waits = |target: &Target| target.place == Place::Quarantined && target.unwritten < MAX_UNWRITTEN;
        let slots = self.slots(|target| waits(target) && target.spec.kind == *kind);
        slots.into_iter().map(|slot| (key(slot), slot)).min().map(|((when, ..), slot)| (when, slot))
    }
}
