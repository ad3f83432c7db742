//! Random faults, changes, restarts and jumps of time, with every step checked against invariants.
//!
//! Invariants:
//! - A target is in exactly one place.
//! - No poll starts before it is due, while the target is being polled, or while it is disabled or unserved.
//! - The caps hold.
//! - An open breaker admits one probe, and not before its time.
//! - After each outcome the next due time agrees with a naive model of the delay rules.
//! - No due target waits longer than the targets before it can take.
//! - Once all faults end, every target answers again within a bound.

mod draws;
mod interventions;
mod naive;
mod summary;

use draws::{exponential, settings};
use model::{BreakerState, Cadence, Cause, Kind, Moment, Place, Schedule, TargetId};
use naive::{Expected, Mirror, Plugin};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scheduler::{Action, Finish, Input, SLOW, Scheduler, Settings, TargetSpec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

pub(crate) use summary::{Summary, Violation};

/// Tolerance for rounding at a restart.
const RESTART_SLACK: Duration = Duration::from_millis(1);
/// Changes that are not urgent are saved this often.
const FLUSH: Duration = Duration::from_secs(25);
/// All targets are checked after this many steps.
const CHECK_ALL: u64 = 32;
/// Upper bound on the recovery once all faults end: two half-hourly polls with their spread, an hour of Retry-After,
/// and the queue.
const RECOVERY: Duration = Duration::from_secs(3 * 3600);

/// Runs the scenario of one seed.
pub(crate) fn run(seed: u64) -> Result<Summary, Violation> {
    let mut run = Run::new(seed);
    run.all().map_err(|what| Violation { seed, after: run.now.since(Moment::START), what })?;
    run.summary.virtual_time = run.now.since(Moment::START);
    Ok(run.summary)
}

/// How a scenario's targets fail.
#[derive(Clone, Copy, Debug)]
struct Faults {
    transient: f64,
    permanent: f64,
    plugin: f64,
    skipped: f64,
    retry_after: f64,
    /// The mean time between two interventions.
    intervention: Duration,
}

struct Run {
    rng: Pcg64Mcg,
    faults: Faults,
    calm: bool,
    now: Moment,
    scheduler: Scheduler,
    settings: Settings,
    longest_poll: Duration,
    mirrors: BTreeMap<TargetId, Mirror>,
    /// The end times of polls in flight, including those of removed targets.
    in_flight: BinaryHeap<Reverse<(Moment, u64, TargetId)>>,
    running: BTreeMap<TargetId, (TargetSpec, Moment)>,
    /// The place of each target, derived from the scheduler's actions alone.
    places: BTreeMap<TargetId, Place>,
    /// The schedules that a killed host would find: urgent changes, and all others as of the last flush.
    disk: BTreeMap<TargetId, Schedule<Moment>>,
    dirty: BTreeSet<TargetId>,
    flushed: Moment,
    served: bool,
    plugin: Plugin,
    /// Targets with a poll in flight of a replaced version of the plugin.
    outdated: BTreeSet<TargetId>,
    /// Hosts that are unreachable.
    down: Vec<bool>,
    /// The latest poll starts, to check the token bucket.
    starts: VecDeque<Moment>,
    rate_since: Moment,
    next_intervention: Moment,
    /// When the machine last woke or the host last started.
    awake_since: Moment,
    /// When many targets may last have become due at once and were spread.
    spread_since: Moment,
    /// Whether polls may have waited for a cap or a host.
    crowded: bool,
    next_number: u64,
    summary: Summary,
}

type Checked = Result<(), String>;

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut fault = |most: f64| if rng.random_bool(0.3) { 0.0 } else { rng.random::<f64>() * most };
        let faults = Faults {
            transient: fault(0.5),
            permanent: fault(0.1),
            // Now and then a plugin that almost always fails.
            plugin: fault(0.2).max(fault(0.5) - 0.3).max(if fault(1.0) > 0.8 { 0.9 } else { 0.0 }),
            skipped: fault(0.1),
            retry_after: fault(0.3),
            intervention: Duration::from_secs(30 + (fault(1.0) * 600.0) as u64),
        };
        let settings = settings(&mut rng);
        let hosts = rng.random_range(1..=8);
        let longest_poll = Duration::from_millis(rng.random_range(1..20_000));
        Self {
            scheduler: Scheduler::new(settings.clone(), rng.random()),
            rng,
            faults,
            calm: false,
            now: Moment::START,
            settings,
            longest_poll,
            mirrors: BTreeMap::new(),
            in_flight: BinaryHeap::new(),
            running: BTreeMap::new(),
            places: BTreeMap::new(),
            disk: BTreeMap::new(),
            dirty: BTreeSet::new(),
            flushed: Moment::START,
            served: true,
            plugin: Plugin::default(),
            outdated: BTreeSet::new(),
            down: vec![false; hosts],
            starts: VecDeque::new(),
            rate_since: Moment::START,
            next_intervention: Moment::START,
            awake_since: Moment::START,
            spread_since: Moment::START,
            crowded: false,
            next_number: 0,
            summary: Summary::default(),
        }
    }

    fn all(&mut self) -> Checked {
        // Most estates are small, so that the same few targets interact often.
        let most = if self.rng.random_bool(0.05) { 400 } else { 24 };
        let count = self.rng.random_range(1..=most);
        let specs: Vec<_> = (0..count).map(|n| (self.spec(n), None)).collect();
        self.mirrors = specs.iter().map(|(spec, _)| (spec.id.clone(), Mirror::new(spec.clone()))).collect();
        self.give(Input::Started(specs))?;
        let end = self.now.after(Duration::from_secs(self.rng.random_range(600..4 * 3600)));
        self.until(end)?;
        self.calm_down()?;
        let end = self.now.after(RECOVERY);
        let calm_since = self.now;
        self.until(end)?;
        self.all_well(calm_since)?;
        self.shut_down()
    }

    fn spec(&mut self, number: u32) -> TargetSpec {
        let host = self.rng.random_range(0..self.down.len());
        let interval =
            |rng: &mut Pcg64Mcg| rng.random_bool(0.3).then(|| Duration::from_millis(rng.random_range(1_000..400_000)));
        TargetSpec {
            id: TargetId::new(&format!("t{number}")).expect("a letter and digits form a valid id"),
            kind: Kind::new("simulated").expect("a word is a valid kind"),
            url_hash: self.rng.random_range(0..50),
            host: format!("h{host}").into(),
            origin: format!("http://h{host}").into(),
            cadence: self.rng.random_bool(0.3).then(|| Cadence::ALL[self.rng.random_range(0..3)]),
            interval: interval(&mut self.rng),
            min: None,
            max: None,
            kind_interval: interval(&mut self.rng),
            enabled: self.rng.random_bool(0.95),
        }
    }

    fn until(&mut self, end: Moment) -> Checked {
        while self.now < end {
            let finished = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let intervention = (!self.calm).then_some(self.next_intervention);
            let wake = self.scheduler.next_wakeup();
            let next = [wake, finished, intervention].into_iter().flatten().min().map_or(end, |next| next.min(end));
            self.now = self.now.max(next);
            if finished.is_some_and(|at| at <= self.now) {
                self.finish()?;
            } else if intervention.is_some_and(|at| at <= self.now) {
                self.next_intervention = self.now.after(exponential(&mut self.rng, self.faults.intervention));
                self.intervene()?;
            } else {
                self.give(Input::Tick)?;
            }
        }
        Ok(())
    }

    /// Applies an input and checks the resulting actions against the invariants.
    fn give(&mut self, input: Input) -> Checked {
        self.summary.steps += 1;
        // A target that starts in this step may have waited: a cap was reached, or a slot became free, possibly because
        // a poll has run for so long that it no longer takes one.
        let at_cap = self.running.len() >= self.settings.max_in_flight.max(1);
        self.crowded = at_cap || !matches!(input, Input::Tick) || self.settings.rate_per_second > 0;
        self.scheduler.apply(input, self.now);
        for action in self.scheduler.drain() {
            match action {
                Action::Start(target, due) => self.started(target, due)?,
                Action::Persist { target, urgent: true } => self.write(&target),
                Action::Persist { target, urgent: false } => drop(self.dirty.insert(target)),
                Action::Emit(_) => {}
                Action::Moved(target, place) => self.moved(target, place),
            }
        }
        if self.now.since(self.flushed) >= FLUSH {
            self.flush();
        }
        if self.scheduler.next_wakeup().is_some_and(|wake| wake < self.now && self.has_room()) {
            return Err("the next wake-up is in the past and would cause a busy loop".to_owned());
        }
        if self.summary.steps.is_multiple_of(CHECK_ALL) { self.check_all() } else { Ok(()) }
    }

    fn moved(&mut self, target: TargetId, place: Place) {
        if place == Place::Quarantined {
            // It may be a probe that was skipped, because too many of its results are unwritten.
            self.plugin.forget(&target);
        }
        self.places.insert(target, place);
    }

    fn write(&mut self, target: &TargetId) {
        if let Some(saved) = self.scheduler.saved(target, self.now) {
            self.disk.insert(target.clone(), saved);
        }
    }

    fn flush(&mut self) {
        self.flushed = self.now;
        for target in std::mem::take(&mut self.dirty) {
            self.write(&target);
        }
    }

    fn has_room(&self) -> bool {
        // Targets whose last poll was slow or failed share half of the slots.
        self.running.len() < (self.settings.max_in_flight / 2).max(1) && self.settings.rate_per_second == 0
    }

    fn started(&mut self, target: TargetId, due: Moment) -> Checked {
        self.summary.polls += 1;
        let Some(mirror) = self.mirrors.get_mut(&target) else {
            return Err(format!("{target} is polled, but is not a target"));
        };
        let spec = mirror.spec.clone();
        if self.plugin.may_start(&target, self.now)? {
            mirror.expect(Expected::Anything);
        }
        mirror.start(due, self.now).map_err(|why| format!("{target}: {why}"))?;
        self.summary.probes += u64::from(mirror.is_probe());
        // Only the caps and the slots of the host may delay a poll.
        let late = self.now.since(due.max(self.awake_since));
        if late > Duration::ZERO && !self.crowded {
            return Err(format!("{target} was due {late:?} ago, but no cap delayed it"));
        }
        if !self.served {
            return Err(format!("{target} is polled, but no plugin serves its kind"));
        }
        if self.running.insert(target.clone(), (spec.clone(), self.now)).is_some() {
            return Err(format!("{target} is polled twice at once"));
        }
        let young = self.running.values().filter(|(_, began)| self.now.since(*began) < SLOW).count();
        let cap = self.settings.max_in_flight.max(1);
        if young > cap || self.running.len() > 2 * cap {
            return Err(format!(
                "{young} polls at once and {} longer ones, max_in_flight {cap}",
                self.running.len() - young
            ));
        }
        let of_host = self.running.values().filter(|(running, _)| running.host == spec.host).count();
        if of_host > self.settings.max_per_host.max(1) {
            return Err(format!("{of_host} polls of {}, max_per_host {}", spec.host, self.settings.max_per_host));
        }
        self.check_rate()?;
        let longest = self.longest_poll.as_secs_f64();
        let ends = self.now.after(Duration::from_secs_f64(self.rng.random::<f64>() * longest));
        self.next_number += 1;
        self.in_flight.push(Reverse((ends, self.next_number, target)));
        Ok(())
    }

    /// Checks that in any span of time at most a full bucket plus the added tokens are used.
    fn check_rate(&mut self) -> Checked {
        let rate = f64::from(self.settings.rate_per_second);
        if rate == 0.0 {
            return Ok(());
        }
        self.starts.push_back(self.now);
        while self.starts.front().is_some_and(|start| self.now.since(*start) > Duration::from_secs(5)) {
            self.starts.pop_front();
        }
        for (earlier, start) in self.starts.iter().enumerate().filter(|(_, start)| **start >= self.rate_since) {
            let count = (self.starts.len() - earlier) as f64;
            let most = rate.max(1.0) + rate * self.now.since(*start).as_secs_f64();
            if count > most + 0.001 {
                return Err(format!("{count} starts in {:?}, rate_per_second {rate}", self.now.since(*start)));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Checked {
        let Some(Reverse((_, _, target))) = self.in_flight.pop() else { return Ok(()) };
        let Some((spec, _)) = self.running.remove(&target) else { return Ok(()) };
        let finish = self.outcome(&spec);
        let failed = !matches!(finish, Finish::Success { .. });
        self.summary.failures += u64::from(failed);
        self.give_outcome(target, finish)
    }

    fn give_outcome(&mut self, target: TargetId, finish: Finish) -> Checked {
        let was_dead = self.mirrors.get(&target).is_some_and(Mirror::is_dead);
        let expected = self.mirrors.get_mut(&target).map(|mirror| mirror.finish(finish, self.now, &self.settings));
        let counts = matches!(expected, Some(Expected::Between(..)));
        if counts && matches!(finish, Finish::Success { .. }) {
            let origin = self.mirrors[&target].spec.origin.clone();
            for mirror in self.mirrors.values_mut() {
                if mirror.spec.id != target && mirror.spec.origin == origin {
                    mirror.neighbour_answered();
                }
            }
        }
        let outdated = self.outdated.remove(&target);
        if !outdated && expected.is_some_and(|expected| expected != Expected::Void) {
            let enabled = self.mirrors.values().filter(|mirror| mirror.spec.enabled).count();
            if self.plugin.finish(&target, finish, enabled, self.now) {
                self.anything_may_be_due();
            }
        }
        self.give(Input::Finished(target.clone(), finish))?;
        let Some(expected) = expected else { return Ok(()) };
        let Some(status) = self.scheduler.status(&target) else {
            return Err(format!("{target} is missing from the scheduler"));
        };
        let mirror = &self.mirrors[&target];
        self.summary.dead_letters += u64::from(mirror.is_dead() && !was_dead);
        if expected != Expected::Void {
            mirror.agrees(&status.schedule, self.now).map_err(|why| format!("{target} after {finish:?}: {why}"))?;
        }
        Ok(())
    }

    fn outcome(&mut self, spec: &TargetSpec) -> Finish {
        let (changed, critical) = (self.rng.random_bool(0.05), self.rng.random_bool(0.1));
        if self.calm {
            return Finish::Success { changed, critical, next_poll: None };
        }
        // From at once to far too late.
        let wish = Duration::from_millis(self.rng.random_range(0..600_000));
        let next_poll = self.rng.random_bool(0.2).then_some(wish);
        let success = Finish::Success { changed, critical, next_poll };
        let host: usize = spec.host[1..].parse().unwrap_or_default();
        let asked = Duration::from_secs(self.rng.random_range(0..8_000));
        let retry_after = self.rng.random_bool(self.faults.retry_after).then_some(asked);
        if self.down[host] {
            return Finish::Transient { cause: Cause::Unreachable, retry_after: None };
        }
        let Faults { transient, permanent, plugin, skipped, .. } = self.faults;
        match self.rng.random::<f64>() {
            x if x < transient => {
                let cause = if self.rng.random_bool(0.3) { Cause::Unreachable } else { Cause::Other };
                Finish::Transient { cause, retry_after }
            }
            x if x < transient + permanent => Finish::Permanent { cause: Cause::Other, retry_after },
            x if x < transient + permanent + plugin => Finish::PluginFault,
            x if x < transient + permanent + plugin + skipped => Finish::Skipped,
            _ => success,
        }
    }

    fn calm_down(&mut self) -> Checked {
        self.calm = true;
        self.down.fill(false);
        let served = std::mem::replace(&mut self.served, true);
        for target in self.mirrors.keys().cloned().collect::<Vec<_>>() {
            self.mirrors.get_mut(&target).expect("the target was found among them").unwritten(0);
            self.give(Input::Unwritten(target, 0))?;
        }
        self.anything_may_be_due();
        if served {
            return Ok(());
        }
        self.plugin = Plugin::default();
        self.outdated = self.running.keys().cloned().collect();
        let kind = Kind::new("simulated").expect("a word is a valid kind");
        self.give(Input::KindServed(kind, true))
    }

    /// Checks every target.
    fn check_all(&mut self) -> Checked {
        self.scheduler.audit()?;
        let bound = self.longest_wait();
        let healthy = self.mirrors.values().any(Mirror::may_be_probe);
        if let Some(since) = self.plugin.waits_for_probe_since().filter(|_| healthy && self.served)
            && self.now.since(since.max(self.awake_since)) > bound
        {
            return Err(format!("the probe of a quarantined plugin was due at {since:?}, but did not start"));
        }
        for (id, mirror) in &self.mirrors {
            let status = self.scheduler.status(id).ok_or_else(|| format!("{id} is missing from the scheduler"))?;
            let place = status.place;
            let announced = self.places.get(id).copied().unwrap_or(Place::Disabled);
            if announced != place {
                return Err(format!("{id} is {}, but its last action reported {}", place.as_str(), announced.as_str()));
            }
            if place == Place::Quarantined && !self.plugin.is_quarantined() {
                return Err(format!("{id} is in quarantine, but its plugin is not"));
            }
            if (place == Place::Disabled) != (!mirror.spec.enabled && !self.running.contains_key(id)) {
                return Err(format!("{id} is {}, but enabled is {}", place.as_str(), mirror.spec.enabled));
            }
            // Overdue targets are spread after a sleep or a start.
            let spread = self.spread_since.max(self.awake_since).after(Duration::from_secs(60));
            if mirror.is_wanted()
                && self.served
                && place != Place::Quarantined
                && self.now > spread
                && status.schedule.due > self.now
            {
                return Err(format!("{id} was requested, but is due in {:?}", status.schedule.due.since(self.now)));
            }
            let late = self.now.since(status.schedule.due.max(self.awake_since));
            if place.waits() && late > bound {
                return Err(format!(
                    "{id} is {}, and has been due for {late:?}, longer than {bound:?}",
                    place.as_str()
                ));
            }
            if place == Place::Queued && status.schedule.due < self.now {
                return Err(format!("{id} has been due for {late:?} and was not started"));
            }
        }
        Ok(())
    }

    /// Returns how long all other targets can take: one poll each, for the host and for the whole process.
    fn longest_wait(&self) -> Duration {
        let targets = (self.mirrors.len() + self.running.len()) as f64;
        let narrowest = (self.settings.max_in_flight.min(self.settings.max_per_host) / 2).max(1) as f64;
        let rate = f64::from(self.settings.rate_per_second);
        let by_rate = if rate > 0.0 { targets / rate } else { 0.0 };
        let by_slots = (targets / narrowest + 2.0) * self.longest_poll.as_secs_f64();
        Duration::from_secs_f64(2.0 * (by_rate + by_slots) + 1.0)
    }

    fn all_well(&mut self, since: Moment) -> Checked {
        self.check_all()?;
        for id in self.mirrors.values().filter(|mirror| mirror.spec.enabled).map(|mirror| &mirror.spec.id) {
            let status = self.scheduler.status(id).ok_or_else(|| format!("{id} is missing from the scheduler"))?;
            let schedule = status.schedule;
            if schedule.last_success.is_none_or(|at| at < since) {
                return Err(format!("{id} was not polled within {RECOVERY:?} of the end of all faults"));
            }
            if schedule.failures > 0 || schedule.dead.is_some() || schedule.breaker.state != BreakerState::Closed {
                return Err(format!("{id} answers, but has not recovered: {schedule:?}"));
            }
        }
        Ok(())
    }

    fn shut_down(&mut self) -> Checked {
        let polls = self.summary.polls;
        self.give(Input::ShuttingDown)?;
        while !self.in_flight.is_empty() {
            if let Some(Reverse((at, ..))) = self.in_flight.peek() {
                self.now = self.now.max(*at);
            }
            self.finish()?;
        }
        if self.summary.polls > polls || self.scheduler.next_wakeup().is_some() {
            return Err("a poll started after the shutdown".to_owned());
        }
        Ok(())
    }
}
