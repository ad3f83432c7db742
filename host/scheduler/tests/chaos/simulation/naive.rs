//! What should follow what: the table "when next", written down once more and as plainly as it can be.

use model::{Ask, BreakerState, Cadence, Cause, Moment, Schedule, TargetId};
use scheduler::{Change, Finish, Profile, Settings, TargetSpec};
use std::collections::BTreeSet;
use std::time::Duration;

/// Seconds. The last interval may have been computed under wider bounds than hold now, and under narrower ones.
const WIDEST: f64 = 500.0;
/// Seconds: what the profile `standard` waits at most, and how often it looks at a dead letter, where the interval is shorter.
const STANDARD: (f64, f64) = (60.0, 300.0);
/// Slack for rounding to nanoseconds.
const SLACK: Duration = Duration::from_micros(1);

/// When the next poll should be due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    /// Not before the first, not after the second.
    Between(Moment, Moment),
    /// Something else than an outcome decides.
    Anything,
    /// The outcome said nothing: the target was changed while it was polled.
    Void,
}

/// The plugin of all targets, as far as its own faults are concerned.
#[derive(Clone, Debug, Default)]
pub(super) struct Plugin {
    /// Different targets whose polls, the latest ones, ended in faults of the plugin.
    faulty: BTreeSet<TargetId>,
    quarantine: Option<Quarantine>,
}

#[derive(Clone, Debug)]
struct Quarantine {
    /// When a target may be polled as a probe.
    next: Moment,
    /// Whether one was, since then.
    spent: bool,
    /// Probes that are under way, or were asked for.
    probes: BTreeSet<TargetId>,
}

impl Quarantine {
    fn since(now: Moment) -> Self {
        Self { next: now.after(Duration::from_secs(300)), spent: false, probes: BTreeSet::new() }
    }
}

impl Plugin {
    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantine.is_some()
    }

    /// Since when a probe may start, where none has.
    pub(super) fn waits_for_probe_since(&self) -> Option<Moment> {
        let waits = |quarantine: &&Quarantine| !quarantine.spent && quarantine.probes.is_empty();
        self.quarantine.as_ref().filter(waits).map(|quarantine| quarantine.next)
    }

    /// Whether a poll is a probe of a quarantined plugin; an error when it may not be one.
    pub(super) fn may_start(&mut self, target: &TargetId, now: Moment) -> Result<bool, String> {
        let Some(quarantine) = &mut self.quarantine else { return Ok(false) };
        let Quarantine { next, spent, probes } = quarantine;
        if probes.contains(target) {
            return Ok(true);
        }
        if *spent || now < next.before(SLACK) {
            return Err(format!("{target} is polled, and its plugin is in quarantine"));
        }
        *spent = true;
        Ok(probes.insert(target.clone()))
    }

    /// An operator asked for a target.
    pub(super) fn ask(&mut self, target: &TargetId) {
        if let Some(quarantine) = &mut self.quarantine {
            quarantine.probes.insert(target.clone());
        }
    }

    /// Whether a poll's end ends a quarantine.
    pub(super) fn finish(&mut self, target: &TargetId, finish: Finish, enabled: usize, now: Moment) -> bool {
        match (finish, &mut self.quarantine) {
            (Finish::Skipped, _) => false,
            (Finish::PluginFault, Some(quarantine)) => {
                if quarantine.probes.remove(target) {
                    (quarantine.next, quarantine.spent) = (now.after(Duration::from_secs(300)), false);
                }
                false
            }
            (Finish::PluginFault, None) => {
                self.faulty.insert(target.clone());
                if self.faulty.len() >= enabled.clamp(1, 5) {
                    *self = Self { faulty: BTreeSet::new(), quarantine: Some(Quarantine::since(now)) };
                }
                false
            }
            _ => std::mem::take(self).quarantine.is_some(),
        }
    }

    /// A target is no probe any more.
    pub(super) fn forget(&mut self, target: &TargetId) {
        if let Some(quarantine) = &mut self.quarantine
            && quarantine.probes.remove(target)
        {
            quarantine.spent = false;
        }
    }
}

/// A target as it should be.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub spec: TargetSpec,
    /// Results that wait for the database.
    unwritten: u8,
    failures: u32,
    faults: u32,
    /// At least, and at most: the mirror does not know the last interval.
    open_for: Option<(f64, f64)>,
    dead: bool,
    profile: Profile,
    first_failure: Option<Moment>,
    unreachable: bool,
    revived: bool,
    /// The due time of the poll under way, and whether its outcome counts.
    flight: Option<(Moment, bool)>,
    /// Whether the poll under way is the probe of an open breaker.
    probe: bool,
    /// Whether it is to be polled as soon as it can be.
    at_once: bool,
    /// When the breaker may be probed; polls before that must have been asked for.
    open_until: Option<Moment>,
    asked: bool,
    due: Expected,
}

impl Mirror {
    pub(super) fn new(spec: TargetSpec) -> Self {
        Self {
            spec,
            unwritten: 0,
            failures: 0,
            faults: 0,
            open_for: None,
            dead: false,
            profile: Profile::Standard,
            first_failure: None,
            unreachable: false,
            revived: false,
            flight: None,
            probe: false,
            at_once: false,
            open_until: None,
            asked: false,
            due: Expected::Anything,
        }
    }

    /// Whether it should be due by now, because somebody asked for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.at_once && self.flight.is_none() && self.spec.enabled && self.unwritten < 5
    }

    /// How long the breaker, or a dead letter, waits again at least when the poll under way never ends.
    pub(super) fn lost_probe(&self) -> Option<Duration> {
        let counts = self.flight.is_some_and(|(_, counts)| counts);
        let (again, _) = self.again();
        (counts && again > 0.0).then(|| Duration::from_secs_f64(again))
    }

    /// Seconds, at least and at most, until a dead letter is looked at again.
    fn look(&self) -> (f64, f64) {
        match self.profile {
            Profile::Pulse => (1800.0, 1800.0),
            Profile::Standard | Profile::Depsera => (STANDARD.1, STANDARD.1.max(WIDEST)),
        }
    }

    /// Seconds, at least and at most, that a poll without an outcome of the target's waits for breaker and dead letter.
    fn again(&self) -> (f64, f64) {
        let open = self.open_for.filter(|_| self.probe).unwrap_or_default();
        let look = if self.dead { self.look() } else { (0.0, 0.0) };
        (look.0.max(open.0), look.1.max(open.1))
    }

    /// Whether a quarantined plugin can be tried with it at any time.
    pub(super) fn may_be_probe(&self) -> bool {
        self.spec.enabled && self.flight.is_none() && self.open_for.is_none() && !self.dead && self.unwritten < 5
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    pub(super) fn is_probe(&self) -> bool {
        self.probe
    }

    /// Another target of its origin answered: once, that takes it out of the dead letters when it could not be reached.
    pub(super) fn neighbour_answered(&mut self) {
        if self.dead && self.unreachable && !self.revived {
            (self.dead, self.revived) = (false, true);
            self.expect(Expected::Anything);
        }
    }

    pub(super) fn expect(&mut self, due: Expected) {
        if due == Expected::Anything {
            self.asked = true;
        }
        self.due = due;
    }

    /// A poll of a target of this name, which was removed, is under way.
    pub(super) fn void(&mut self) {
        self.flight = Some((Moment::START, false));
    }

    /// So many of its results wait for the database; with five it is left out whenever its turn comes.
    pub(super) fn unwritten(&mut self, count: u8) {
        self.unwritten = count;
        self.at_once &= count < 5;
        self.expect(Expected::Anything);
    }

    /// The host ends: the poll under way never will, and a wish may be forgotten.
    pub(super) fn lose_poll(&mut self) {
        (self.flight, self.at_once) = (None, false);
    }

    /// The profile is another now; one without dead letters has none.
    pub(super) fn profile(&mut self, profile: Profile) {
        self.profile = profile;
        if profile == Profile::Depsera {
            self.dead = false;
        }
    }

    pub(super) fn change(&mut self, spec: TargetSpec, change: Change) {
        // The outcome of what it was says nothing any more.
        let anew = matches!(change, Change::Reset | Change::PollNow);
        let flight = self.flight.map(|(due, counts)| (due, counts && !anew));
        if change == Change::Reset {
            let unwritten = self.unwritten;
            *self = Self { flight, unwritten, asked: true, at_once: unwritten < 5, ..Self::new(spec) };
        } else {
            (self.spec, self.flight) = (spec, flight);
            self.probe &= !anew;
            self.expect(Expected::Anything);
            self.at_once |= change == Change::PollNow && self.unwritten < 5;
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.expect(Expected::Anything);
        // One that is being polled is answered by that.
        let polls = !matches!(ask, Ask::Enable | Ask::Disable);
        self.at_once |= self.flight.is_none() && polls && self.unwritten < 5;
        match ask {
            Ask::PollNow => {}
            Ask::Enable => self.spec.enabled = true,
            Ask::Disable => self.spec.enabled = false,
            Ask::Retry => self.dead = false,
            Ask::ResetBreaker => {
                (self.dead, self.failures, self.open_for, self.open_until) = (false, 0, None, None);
                self.first_failure = None;
            }
        }
    }

    pub(super) fn start(&mut self, due: Moment, now: Moment) -> Result<(), String> {
        if self.flight.is_some() {
            return Err("it is polled while it is polled".to_owned());
        }
        if !self.spec.enabled {
            return Err("it is polled while it is disabled".to_owned());
        }
        if self.unwritten >= 5 {
            return Err("it is polled while five of its results wait for the database".to_owned());
        }
        if due > now {
            return Err(format!("it is polled {:?} before it is due", due.since(now)));
        }
        if let Expected::Between(from, until) = self.due
            && (due < from.before(SLACK) || due > until.after(SLACK))
        {
            return Err(format!("it is polled as due at {due:?}, and should be due from {from:?} to {until:?}"));
        }
        if !self.asked && self.open_until.is_some_and(|until| now < until.before(SLACK)) {
            return Err("its breaker is open, and it is polled all the same".to_owned());
        }
        self.flight = Some((due, true));
        self.probe = self.open_for.is_some();
        (self.asked, self.at_once) = (false, false);
        Ok(())
    }

    /// What should follow an outcome.
    pub(super) fn finish(&mut self, finish: Finish, now: Moment, settings: &Settings) -> Expected {
        let due = match self.flight.take() {
            Some((due, true)) => self.next(finish, due, now, settings),
            _ => Expected::Void,
        };
        if due != Expected::Void {
            self.due = due;
        }
        // A wish while it was polled is answered by that poll.
        if matches!(due, Expected::Between(..)) {
            self.asked = false;
        }
        due
    }

    fn next(&mut self, finish: Finish, due: Moment, now: Moment, settings: &Settings) -> Expected {
        let seconds = Duration::from_secs_f64;
        let between = |low: f64, high: f64| Expected::Between(now.after(seconds(low)), now.after(seconds(high)));
        let min = self.spec.min.unwrap_or(settings.min);
        self.profile = settings.profile;
        let own = self.spec.interval.or(settings.base).or(self.spec.kind_interval).unwrap_or(Duration::from_secs(10));
        let longest = match self.spec.cadence.unwrap_or(settings.cadence) {
            Cadence::Pulse => Duration::from_secs(300),
            Cadence::Adaptive | Cadence::Fixed => own,
        };
        let max = self.spec.max.or(settings.max).unwrap_or(longest).max(min);
        match finish {
            Finish::Success { .. } => {
                let base = own.clamp(min, max);
                let fixed = self.spec.cadence.unwrap_or(settings.cadence) == Cadence::Fixed;
                let (low, high) = if fixed { (base, base) } else { (min, max) };
                let Self { asked, at_once, unwritten, profile, .. } = *self;
                *self = Self { asked, at_once, unwritten, profile, ..Self::new(self.spec.clone()) };
                Expected::Between(due.after(low).max(now), due.after(high).max(now))
            }
            Finish::Transient { cause, retry_after } | Finish::Permanent { cause, retry_after } => {
                self.failures += 1;
                self.faults = 0;
                self.unreachable = cause == Cause::Unreachable;
                let asked = retry_after.map_or(0.0, |asked| asked.as_secs_f64().min(3600.0));
                let permanent = matches!(finish, Finish::Permanent { .. });
                let failing_for = now.since(*self.first_failure.get_or_insert(now)).as_secs_f64();
                let (low, high) = self.after_failure(permanent, max.as_secs_f64(), failing_for);
                if self.open_for.is_some() {
                    self.open_until = Some(now.after(seconds(low.max(asked))));
                }
                between(low.max(asked), high.max(asked))
            }
            Finish::PluginFault => {
                self.faults += 1;
                let backoff = (5.0 * 2_f64.powi(self.faults as i32 - 1)).min(300.0);
                self.without_outcome(backoff, now)
            }
            Finish::Skipped => self.without_outcome(min.as_secs_f64(), now),
        }
    }

    fn without_outcome(&mut self, delay: f64, now: Moment) -> Expected {
        let (low, high) = self.again();
        let after = |wait: f64| now.after(Duration::from_secs_f64(wait.max(delay)));
        self.open_until = self.open_for.map(|_| after(low));
        Expected::Between(after(low), after(high))
    }

    /// Seconds, at least and at most, after a failure that counts.
    fn after_failure(&mut self, permanent: bool, longest_interval: f64, failing_for: f64) -> (f64, f64) {
        let n = self.failures;
        match self.profile {
            Profile::Standard => {
                let cap = (STANDARD.0, STANDARD.0.max(longest_interval).max(WIDEST));
                if n >= 3 || self.open_for.is_some() {
                    self.open_for = Some(cap);
                }
                self.dead |= (permanent && n >= 3 && failing_for >= 60.0) || failing_for >= 3600.0;
                let backoff = 5.0 * 2_f64.powi(n as i32 - 1);
                match (self.dead, self.open_for) {
                    (true, _) => (self.look().0 * 0.9, self.look().1),
                    (false, Some((low, high))) => (low * 0.9, high),
                    (false, None) => ((backoff * 0.8).min(cap.0), (backoff * 1.2).min(cap.1)),
                }
            }
            Profile::Pulse => {
                if n >= 3 || self.open_for.is_some() {
                    let last = self.open_for.unwrap_or((5.0, 5.0));
                    let grown = |last: f64| (last * 2_f64.powi(n.min(40) as i32)).min(300.0);
                    self.open_for = Some((grown(last.0), grown(last.1)));
                }
                self.dead |= permanent || n >= 5;
                match (self.dead, self.open_for) {
                    (true, _) => (1800.0, 1980.0),
                    (false, Some((low, high))) => (low, high * 1.1),
                    (false, None) => {
                        let backoff = 5.0 * 2_f64.powi(n as i32 - 1);
                        ((backoff * 0.8).min(300.0), (backoff * 1.2).min(300.0))
                    }
                }
            }
            Profile::Depsera => {
                self.dead = false;
                if n >= 10 || self.open_for.is_some() {
                    self.open_for = Some((300.0, 300.0));
                    return (300.0, 330.0);
                }
                let backoff = 2_f64.powi(n as i32 - 1).min(300.0);
                // Not before its interval is over, and the interval is at most the longest.
                (backoff, backoff.max(longest_interval.max(WIDEST)))
            }
        }
    }

    /// Whether the scheduler thinks the same of the target.
    pub(super) fn agrees(&self, schedule: &Schedule<Moment>, now: Moment) -> Result<(), String> {
        self.same_streaks(schedule)?;
        if schedule.breaker.state == BreakerState::HalfOpen {
            return Err("its probe is over, and its breaker still half-open".to_owned());
        }
        // What is due at once is left out at once, and due again later.
        let left_out = |from: Moment| self.unwritten >= 5 && from <= now;
        if let Expected::Between(from, until) = self.due
            && !left_out(from)
            && (schedule.due < from.before(SLACK) || schedule.due > until.after(SLACK))
        {
            let (from, until) = (from.since(now), until.since(now));
            let late = schedule.due.since(now);
            return Err(format!("it is due in {late:?}, and should be in {from:?} to {until:?}; {self:?}"));
        }
        Ok(())
    }

    /// Streaks, breaker and dead letter, which survive everything but a reset.
    pub(super) fn same_streaks(&self, schedule: &Schedule<Moment>) -> Result<(), String> {
        let open = schedule.breaker.state != BreakerState::Closed;
        let found = (schedule.failures, schedule.plugin_faults, open, schedule.dead.is_some());
        let expected = (self.failures, self.faults, self.open_for.is_some(), self.dead);
        if found != expected {
            return Err(format!("failures, faults, open, dead are {found:?}, and should be {expected:?}"));
        }
        Ok(())
    }
}
