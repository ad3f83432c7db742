//! Quarantine of plugins that fail.
//!
//! When the latest polls of five different targets (of all, if the kind has fewer) ended in plugin faults, the cause is
//! the plugin and not a target. The plugin is then in quarantine: one target is polled every 5 minutes as a probe. The
//! quarantine ends with a poll that ends in anything but a plugin fault, or when the plugin is replaced. A poll that an
//! operator requests runs during the quarantine too and counts as a probe.

use super::{MAX_UNWRITTEN, Scheduler};
use crate::queue::Slot;
use crate::record::{Quarantine, Record};
use crate::target::Target;
use crate::why::Why;
use model::{BreakerState, EventKind, Kind, Moment, Place};
use std::collections::BTreeSet;
use std::time::Duration;

/// Plugin faults of this many different targets in a row put the plugin into quarantine.
const FAULTY_TARGETS: usize = 5;
/// The interval between the probes of a quarantined plugin.
const PROBE: Duration = Duration::from_secs(300);

impl Scheduler {
    /// Returns the kinds whose plugin is in quarantine, each with the time of its next probe.
    pub fn quarantined(&self) -> impl Iterator<Item = (&Kind, Moment)> {
        self.records.iter().filter_map(|(kind, record)| {
            let quarantine = record.quarantine.as_ref()?;
            Some((kind, quarantine.chosen.unwrap_or(quarantine.allowed)))
        })
    }

    /// Returns true if a target must not be polled because its plugin is in quarantine.
    pub(super) fn is_quarantined(&self, kind: &Kind, slot: Slot) -> bool {
        let quarantine = self.records.get(kind).and_then(|record| record.quarantine.as_ref());
        quarantine.is_some_and(|quarantine| !quarantine.probes.contains(&slot))
    }

    /// Parks a target until the quarantine of its plugin ends. The next probe is chosen again.
    pub(super) fn park(&mut self, slot: Slot) {
        let kind = &self.target(slot).spec.kind.clone();
        if let Some(quarantine) = self.records.get_mut(kind).and_then(|record| record.quarantine.as_mut()) {
            quarantine.chosen = Some(quarantine.allowed);
        }
    }

    /// Records a poll that ended in a plugin fault.
    pub(super) fn record_fault(&mut self, slot: Slot, now: Moment) {
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
        let enough = self.targets.iter().flatten().filter(polled).take(FAULTY_TARGETS).count().max(1);
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

    /// Ends the quarantine of a kind, because its plugin ran without a fault or was replaced.
    pub(super) fn clear(&mut self, kind: &Kind, now: Moment) {
        if self.records.is_empty() {
            return;
        }
        let Some(Record { quarantine: Some(_), .. }) = self.records.remove(kind) else { return };
        self.emit(EventKind::PluginReleased { plugin: kind.clone() });
        let waiting = self.slots(|target| target.place == Place::Quarantined && target.spec.kind == *kind);
        self.settle_all(&waiting, now);
    }

    /// Admits a target as a probe of its quarantined plugin: it was chosen, or an operator requested a poll. A target
    /// that is being polled is not admitted, because that poll began earlier. A disabled target is not admitted either.
    pub(super) fn admit_probe(&mut self, slot: Slot) {
        if self.target(slot).in_flight.is_some() || !self.target(slot).spec.enabled {
            return;
        }
        let kind = self.target(slot).spec.kind.clone();
        if let Some(quarantine) = self.records.get_mut(&kind).and_then(|record| record.quarantine.as_mut()) {
            quarantine.probes.insert(slot);
        }
    }

    /// Withdraws a target as a probe, because it was removed, disabled or skipped, or its kind changed.
    pub(super) fn withdraw_probe(&mut self, slot: Slot) {
        for record in self.records.values_mut() {
            if let Some(quarantine) = &mut record.quarantine {
                quarantine.probes.remove(&slot);
            }
        }
    }

    /// Chooses a probe for every quarantined plugin whose next probe is due.
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
            self.admit_probe(slot);
            let target = self.target_mut(slot);
            target.schedule.due = now;
            target.why = Why::QuarantineProbe;
            self.settle(slot, now);
            self.persist(slot, false);
        }
    }

    /// Returns when the next probe is to be chosen.
    pub(super) fn next_probe(&self) -> Option<Moment> {
        self.without_probe().map(|(_, at)| at).min()
    }

    /// Returns the quarantined kinds without a probe, each with the time at which one is to be chosen.
    fn without_probe(&self) -> impl Iterator<Item = (&Kind, Moment)> {
        self.records.iter().filter_map(|(kind, record)| {
            let quarantine = record.quarantine.as_ref()?;
            Some((kind, quarantine.chosen.filter(|_| quarantine.probes.is_empty())?))
        })
    }

    /// Returns the parked target that may be polled first, and when. Of several, returns the one that was polled
    /// longest ago. A target with an open breaker and a dead letter keep their due time.
    fn candidate(&self, kind: &Kind, now: Moment) -> Option<(Moment, Slot)> {
        let key = |slot: Slot| {
            let target = self.target(slot);
            let healthy = target.schedule.breaker.state == BreakerState::Closed && target.schedule.dead.is_none();
            let when = if healthy { now } else { target.schedule.due.max(now) };
            (when, target.last_polled(), target.spec.id.clone())
        };
        // A target with too many unwritten results would be skipped at its start.
        let waits = |target: &Target| target.place == Place::Quarantined && target.unwritten < MAX_UNWRITTEN;
        let slots = self.slots(|target| waits(target) && target.spec.kind == *kind);
        slots.into_iter().map(|slot| (key(slot), slot)).min().map(|((when, ..), slot)| (when, slot))
    }
}
