//! A naive model of the rules for the next due time after each outcome.

use model::{Ask, BreakerState, Cadence, Cause, Moment, Schedule, TargetId};
use scheduler::{Change, Finish, Profile, Settings, TargetSpec};
use std::collections::BTreeSet;
use std::time::Duration;

/// Seconds. The last interval may have been computed under wider or narrower bounds than the current ones.
const WIDEST: f64 = 500.0;
/// Seconds: the longest backoff of the profile `standard` and its dead-letter interval, if the target's interval is
/// shorter.
const STANDARD: (f64, f64) = (60.0, 300.0);
/// Slack for rounding to nanoseconds.
const SLACK: Duration = Duration::from_micros(1);

/// The expected due time of the next poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    /// From the first to the second, inclusive.
    Between(Moment, Moment),
    /// Any time, because something other than an outcome decides.
    Anything,
    /// Unchanged: the outcome is ignored, because the target was changed during the poll.
    Void,
}

/// The plugin of all targets, reduced to its faults.
#[derive(Clone, Debug, Default)]
pub(super) struct Plugin {
    /// Targets whose polls ended in a plugin fault since the last poll that did not.
    faulty: BTreeSet<TargetId>,
    quarantine: Option<Quarantine>,
}

#[derive(Clone, Debug)]
struct Quarantine {
    /// The time from which a target may be polled as a probe.
    next: Moment,
    /// Whether a probe has started since then.
    spent: bool,
    /// Probes that are in flight or were requested.
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

    /// Returns the time since which a probe may start; `None` if one has started.
    pub(super) fn waits_for_probe_since(&self) -> Option<Moment> {
        let waits = |quarantine: &&Quarantine| !quarantine.spent && quarantine.probes.is_empty();
        self.quarantine.as_ref().filter(waits).map(|quarantine| quarantine.next)
    }

    /// Returns true if a poll is a probe of a quarantined plugin. Fails if the poll must not start.
    pub(super) fn may_start(&mut self, target: &TargetId, now: Moment) -> Result<bool, String> {
        let Some(quarantine) = &mut self.quarantine else { return Ok(false) };
        let Quarantine { next, spent, probes } = quarantine;
        if probes.contains(target) {
            return Ok(true);
        }
        if *spent || now < next.before(SLACK) {
            return Err(format!("{target} is polled, but its plugin is in quarantine"));
        }
        *spent = true;
        Ok(probes.insert(target.clone()))
    }

    /// Records that an operator requested a poll of a target.
    pub(super) fn ask(&mut self, target: &TargetId) {
        if let Some(quarantine) = &mut self.quarantine {
            quarantine.probes.insert(target.clone());
        }
    }

    /// Records the end of a poll. Returns true if it ends a quarantine.
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

    /// Withdraws a target as a probe.
    pub(super) fn forget(&mut self, target: &TargetId) {
        if let Some(quarantine) = &mut self.quarantine
            && quarantine.probes.remove(target)
        {
            quarantine.spent = false;
        }
    }
}

/// The expected state of a target.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub spec: TargetSpec,
    /// The number of results that are not written to the database.
    unwritten: u8,
    failures: u32,
    faults: u32,
    /// Lower and upper bound in seconds, because the model does not know the last interval.
    open_for: Option<(f64, f64)>,
    dead: bool,
    profile: Profile,
    first_failure: Option<Moment>,
    unreachable: bool,
    revived: bool,
    /// Whether a failure since the last success requested a delay.
    waited: bool,
    /// The due time of the poll in flight, and whether its outcome counts.
    in_flight: Option<(Moment, bool)>,
    /// Whether the poll in flight is the probe of an open breaker.
    probe: bool,
    /// Whether a poll was requested and has not started.
    at_once: bool,
    /// When the breaker may be probed; an earlier poll must have been requested.
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
            waited: false,
            in_flight: None,
            probe: false,
            at_once: false,
            open_until: None,
            asked: false,
            due: Expected::Anything,
        }
    }

    /// Returns true if the target should be due now, because a poll was requested.
    pub(super) fn is_wanted(&self) -> bool {
        self.at_once && self.in_flight.is_none() && self.spec.enabled && self.unwritten < 5
    }

    /// Returns the minimum delay of the breaker or the dead letter if the poll in flight never ends.
    pub(super) fn lost_probe(&self) -> Option<Duration> {
        let counts = self.in_flight.is_some_and(|(_, counts)| counts);
        let (again, _) = self.again();
        (counts && again > 0.0).then(|| Duration::from_secs_f64(again))
    }

    /// Returns the bounds in seconds on the delay until a dead letter is polled again.
    fn dead_letter_interval(&self) -> (f64, f64) {
        match self.profile {
            Profile::Pulse => (1800.0, 1800.0),
            Profile::Standard | Profile::Depsera => (STANDARD.1, STANDARD.1.max(WIDEST)),
        }
    }

    /// Returns the bounds in seconds on the delay by breaker and dead letter after a poll without an outcome for the
    /// target.
    fn again(&self) -> (f64, f64) {
        let open = self.open_for.filter(|_| self.probe).unwrap_or_default();
        let look = if self.dead { self.dead_letter_interval() } else { (0.0, 0.0) };
        (look.0.max(open.0), look.1.max(open.1))
    }

    /// Returns true if the target can be the probe of a quarantined plugin at any time.
    pub(super) fn may_be_probe(&self) -> bool {
        self.spec.enabled && self.in_flight.is_none() && self.open_for.is_none() && !self.dead && self.unwritten < 5
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    pub(super) fn is_probe(&self) -> bool {
        self.probe
    }

    /// Records that another target of the same origin answered. This revives an unreachable dead letter once.
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

    /// Records that a poll of a removed target with the same id is in flight.
    pub(super) fn void(&mut self) {
        self.in_flight = Some((Moment::START, false));
    }

    /// Takes over the number of unwritten results from the target's earlier definition.
    pub(super) fn succeed(&mut self, before: &Self) {
        self.unwritten = before.unwritten;
    }

    /// Sets the number of unwritten results. With five or more the target is skipped at its start.
    pub(super) fn unwritten(&mut self, count: u8) {
        self.unwritten = count;
        self.at_once &= count < 5;
        self.expect(Expected::Anything);
    }

    /// Records the end of the host: the poll in flight never ends, and a requested poll may be lost.
    pub(super) fn lose_poll(&mut self) {
        (self.in_flight, self.at_once, self.waited) = (None, false, false);
    }

    /// Changes the profile. A profile without dead letters revives the target.
    pub(super) fn profile(&mut self, profile: Profile) {
        self.profile = profile;
        if profile == Profile::Depsera {
            self.dead = false;
        }
    }

    pub(super) fn change(&mut self, spec: TargetSpec, change: Change) {
        // The outcome of a poll of the old definition is ignored.
        let polls_at_once = matches!(change, Change::Reset | Change::PollNow);
        let in_flight = self.in_flight.map(|(due, counts)| (due, counts && !polls_at_once));
        if change == Change::Reset {
            let unwritten = self.unwritten;
            *self = Self { in_flight, unwritten, asked: true, at_once: unwritten < 5, ..Self::new(spec) };
        } else {
            (self.spec, self.in_flight) = (spec, in_flight);
            self.probe &= !polls_at_once;
            self.expect(Expected::Anything);
            self.at_once |= change == Change::PollNow && self.unwritten < 5;
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.expect(Expected::Anything);
        // A poll in flight satisfies the request.
        let polls = !matches!(ask, Ask::Enable | Ask::Disable);
        self.at_once |= self.in_flight.is_none() && polls && self.unwritten < 5;
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
        if self.in_flight.is_some() {
            return Err("it is polled twice at once".to_owned());
        }
        if !self.spec.enabled {
            return Err("it is polled while it is disabled".to_owned());
        }
        if self.unwritten >= 5 {
            return Err("it is polled while five of its results are unwritten".to_owned());
        }
        if due > now {
            return Err(format!("it is polled {:?} before it is due", due.since(now)));
        }
        if let Expected::Between(from, until) = self.due
            && (due < from.before(SLACK) || due > until.after(SLACK))
        {
            return Err(format!("it is polled as due at {due:?}, but should be due from {from:?} to {until:?}"));
        }
        if !self.asked && self.open_until.is_some_and(|until| now < until.before(SLACK)) {
            return Err("it is polled although its breaker is open".to_owned());
        }
        self.in_flight = Some((due, true));
        self.probe = self.open_for.is_some();
        (self.asked, self.at_once) = (false, false);
        Ok(())
    }

    /// Returns the expected due time after an outcome.
    pub(super) fn finish(&mut self, finish: Finish, now: Moment, settings: &Settings) -> Expected {
        let due = match self.in_flight.take() {
            Some((due, true)) => self.next(finish, due, now, settings),
            _ => Expected::Void,
        };
        if due != Expected::Void {
            self.due = due;
        }
        // The poll satisfies a request that was made while it was in flight.
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
            Finish::Success { next_poll, .. } => {
                let base = own.clamp(min, max);
                let cadence = self.spec.cadence.unwrap_or(settings.cadence);
                let (low, high) = if cadence == Cadence::Fixed { (base, base) } else { (min, max) };
                let Self { asked, at_once, unwritten, profile, .. } = *self;
                *self = Self { asked, at_once, unwritten, profile, ..Self::new(self.spec.clone()) };
                // A wish counts from now, and no poll comes before it without a reason.
                match next_poll.filter(|_| cadence == Cadence::Adaptive) {
                    Some(wish) => Expected::Between(now.after(wish.clamp(min, max)), now.after(max)),
                    None => Expected::Between(due.after(low).max(now), due.after(high).max(now)),
                }
            }
            Finish::Transient { cause, retry_after } | Finish::Permanent { cause, retry_after } => {
                self.failures += 1;
                self.faults = 0;
                self.unreachable = cause == Cause::Unreachable;
                let most = if self.waited { 3600.0 } else { max.as_secs_f64().min(3600.0) };
                let asked = retry_after.map_or(0.0, |asked| asked.as_secs_f64().min(most));
                self.waited |= retry_after.is_some();
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

    /// Returns the bounds in seconds on the delay after a failure that counts.
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
                    (true, _) => (self.dead_letter_interval().0 * 0.9, self.dead_letter_interval().1),
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
                // Not before the interval is over; the interval is at most the longest.
                (backoff, backoff.max(longest_interval.max(WIDEST)))
            }
        }
    }

    /// Fails if the scheduler's state of the target differs from the model.
    pub(super) fn agrees(&self, schedule: &Schedule<Moment>, now: Moment) -> Result<(), String> {
        self.same_streaks(schedule)?;
        if schedule.breaker.state == BreakerState::HalfOpen {
            return Err("its probe has ended, but its breaker is still half-open".to_owned());
        }
        // A target with too many unwritten results that is due is skipped and due again later.
        let skipped = |from: Moment| self.unwritten >= 5 && from <= now;
        if let Expected::Between(from, until) = self.due
            && !skipped(from)
            && (schedule.due < from.before(SLACK) || schedule.due > until.after(SLACK))
        {
            let (from, until) = (from.since(now), until.since(now));
            let late = schedule.due.since(now);
            return Err(format!("it is due in {late:?}, but should be due from {from:?} to {until:?}; {self:?}"));
        }
        Ok(())
    }

    /// Fails if streaks, breaker or dead letter differ. They survive everything except a reset.
    pub(super) fn same_streaks(&self, schedule: &Schedule<Moment>) -> Result<(), String> {
        let open = schedule.breaker.state != BreakerState::Closed;
        let found = (schedule.failures, schedule.plugin_faults, open, schedule.dead.is_some());
        let expected = (self.failures, self.faults, self.open_for.is_some(), self.dead);
        if found != expected {
            return Err(format!("failures, faults, open, dead are {found:?}, but should be {expected:?}"));
        }
        Ok(())
    }
}
