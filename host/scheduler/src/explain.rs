//! Explains when a target is polled next: every term of the computation with its value and its meaning.

use crate::cadence::Computed;
use crate::target::Target;
use crate::why::{Failed, Why};
use crate::{Profile, Settings};
use model::{Ask, BreakerState, Cadence, DeadReason, Explanation, Moment, Place, Term};
use std::time::Duration;

/// Explains the next poll of a target. `of_host` and `of_all` are the polls in flight of its host and of all targets.
pub(crate) fn explain(
    target: &Target,
    settings: &Settings,
    (of_host, of_all): (usize, usize),
    now: Moment,
) -> Explanation<Moment> {
    let waits = target.place.waits();
    let mut terms = Terms::default();
    terms.state(target, now);
    if waits {
        terms.why(target, now);
    }
    let when = match target.place {
        Place::Queued => format!("is polled next in {}", span(target.schedule.due.since(now))),
        Place::Ready if of_all >= settings.max_in_flight => {
            format!(
                "has been due for {} and waits: {of_all} polls in flight count against max_in_flight, which is {} (polls that run for \
                 longer than a second do not count, up to the same number)",
                span(now.since(target.schedule.due)),
                settings.max_in_flight
            )
        }
        Place::Ready if target.is_doubtful() && settings.rate_per_second == 0 => format!(
            "has been due for {} and waits: targets whose last poll was slow or failed share half of max_in_flight ({}), so \
             that the others are polled in time",
            span(now.since(target.schedule.due)),
            settings.max_in_flight
        ),
        Place::Ready => format!(
            "has been due for {} and waits: at most {} polls may start per second (rate_per_second)",
            span(now.since(target.schedule.due)),
            settings.rate_per_second
        ),
        Place::WaitingForHost if target.is_doubtful() && of_host < settings.max_per_host => format!(
            "has been due for {} and waits: targets of {} whose last poll was slow or failed share half of max_per_host ({}), \
             so that the others are polled in time",
            span(now.since(target.schedule.due)),
            target.spec.host,
            settings.max_per_host
        ),
        Place::WaitingForHost => format!(
            "has been due for {} and waits: {of_host} polls of {} are in flight, and max_per_host is {}",
            span(now.since(target.schedule.due)),
            target.spec.host,
            settings.max_per_host
        ),
        Place::InFlight if target.spec.enabled => "is being polled now".to_owned(),
        Place::InFlight => "is being polled now for the last time: it is disabled".to_owned(),
        Place::Disabled => "is not polled: it is disabled".to_owned(),
        Place::NoPlugin => format!("is not polled: no plugin serves kind {}", target.spec.kind),
        Place::Quarantined => format!(
            "is not polled: the plugin of kind {} is in quarantine, because its latest polls all ended in plugin faults; \
             it is tried every 5 min and when its file changes",
            target.spec.kind
        ),
    };
    Explanation {
        target: target.spec.id.clone(),
        place: target.place,
        due: waits.then_some(target.schedule.due),
        summary: if waits && target.place == Place::Queued {
            format!("{} {when}, because {}.", target.spec.id, because(target))
        } else {
            format!("{} {when}.", target.spec.id)
        },
        terms: terms.0,
    }
}

/// Explains a due time that was set before the host started.
fn restored(target: &Target) -> String {
    let schedule = &target.schedule;
    let what = match (schedule.dead, schedule.breaker.state, schedule.failures) {
        (Some(_), ..) => "it is a dead letter, which is polled rarely".to_owned(),
        (None, BreakerState::Open | BreakerState::HalfOpen, failures) => {
            format!("it {}, and its breaker is open", failed(failures))
        }
        (None, BreakerState::Closed, 0) if schedule.plugin_faults > 0 => "its plugin failed".to_owned(),
        (None, BreakerState::Closed, 0) => "its last poll returned a report".to_owned(),
        (None, BreakerState::Closed, failures) => format!("it {} and is polled again", failed(failures)),
    };
    format!("{what}; the time was set before the host started")
}

/// Names the change that the adaptive cadence expects.
fn expected(target: &Target, computed: &Computed) -> String {
    let every = match computed.cadence {
        Cadence::Adaptive => expected_change(computed),
        Cadence::Fixed | Cadence::Pulse => return String::new(),
    };
    if target.schedule.critical {
        format!(": a dependency is critical, and the end of that is expected in {every}")
    } else {
        format!(": its next change is expected in {every}")
    }
}

/// The expected time to the next change.
fn expected_change(computed: &Computed) -> String {
    Duration::try_from_secs_f64(1.0 / computed.scores.rate).map_or("ages".to_owned(), span)
}

fn because(target: &Target) -> String {
    match &target.why {
        Why::Restored => restored(target),
        Why::Added => "it is new".to_owned(),
        Why::QuarantineProbe => "its plugin is in quarantine and is tried with this target".to_owned(),
        Why::Changed => "its definition or settings changed".to_owned(),
        Why::Enabled => "it was enabled".to_owned(),
        Why::Profile(profile) => format!("the rules for dead letters changed (profile {})", profile.as_str()),
        Why::Asked(Ask::Retry) => "an operator removed it from the dead letters".to_owned(),
        Why::Asked(Ask::ResetBreaker) => "an operator reset its breaker".to_owned(),
        Why::Asked(_) => "an operator requested it".to_owned(),
        Why::Spread { .. } => "it was due together with others, and their polls are spread".to_owned(),
        Why::Succeeded { wish: Some(wish), .. } => {
            format!("its plugin requested the next poll {} after the last one", exact(*wish))
        }
        Why::Succeeded { computed, .. } => {
            format!(
                "its last poll returned a report, and its {} cadence computed {}{}",
                computed.cadence.as_str(),
                exact(computed.interval),
                expected(target, computed)
            )
        }
        Why::Recomputed { computed, .. } => {
            format!(
                "settings changed, and its {} cadence computed {}",
                computed.cadence.as_str(),
                exact(computed.interval)
            )
        }
        Why::Failed(Failed { dead: Some(reason), dead_letter_interval, profile, .. }) => {
            let why = match (reason, profile) {
                (DeadReason::Permanent, Profile::Standard) => "it keeps failing permanently",
                (DeadReason::Permanent, _) => "it failed permanently",
                (DeadReason::Retries, Profile::Standard) => "it has failed for an hour",
                (DeadReason::Retries, _) => "it failed five times in a row",
            };
            format!("{why} and is a dead letter: it is polled every {}", span(*dead_letter_interval))
        }
        Why::Failed(Failed { open_for: Some(_), .. }) => {
            format!("it {}, and its breaker is open", failed(target.schedule.failures))
        }
        Why::Failed(Failed { retry_after: Some(asked), delay, .. }) if asked == delay => {
            format!("it {} and sent a Retry-After of this length", failed(target.schedule.failures))
        }
        Why::Failed(_) => format!("it {} and is polled again", failed(target.schedule.failures)),
        Why::PluginFault { .. } => "its plugin failed, not the target".to_owned(),
        Why::NoSlot { .. } => "its last poll got no instance slot".to_owned(),
        Why::Unwritten { .. } => "its results are not written to the database yet".to_owned(),
        Why::Revived { neighbour } => format!("{neighbour}, which has the same origin, answered again"),
    }
}

#[derive(Default)]
struct Terms(Vec<Term>);

impl Terms {
    fn add(&mut self, name: &'static str, value: impl Into<String>, meaning: impl Into<String>) {
        self.0.push(Term { name, value: value.into(), meaning: meaning.into() });
    }

    fn state(&mut self, target: &Target, now: Moment) {
        let schedule = &target.schedule;
        match schedule.last_success {
            Some(at) => self.add("last_success", format!("{} ago", span(now.since(at))), "the last poll with a report"),
            None => self.add("last_success", "never", "no poll has returned a report yet"),
        }
        if schedule.failures > 0 {
            self.add("failures", schedule.failures.to_string(), "consecutive polls without a report");
        }
        if schedule.plugin_faults > 0 {
            self.add(
                "plugin_faults",
                schedule.plugin_faults.to_string(),
                "consecutive polls in which the plugin failed",
            );
        }
        let breaker = match schedule.breaker.state {
            BreakerState::Closed if schedule.dead.is_some() => "it allows polls; the dead letter delays them",
            BreakerState::Closed => "polls run",
            BreakerState::Open => "no poll runs until its time is over; then one probe decides",
            BreakerState::HalfOpen => "a probe is in flight and decides",
        };
        self.add("breaker", schedule.breaker.state.as_str(), breaker);
        if let Some(dead) = schedule.dead {
            let polls = match dead.retries.saturating_sub(1) {
                0 => "not polled since".to_owned(),
                polls => format!("polled {} since", times(polls)),
            };
            self.add("dead_letter", dead.reason.as_str(), format!("for {}, {polls}", span(now.since(dead.since))));
        }
    }

    fn why(&mut self, target: &Target, now: Moment) {
        match &target.why {
            Why::Succeeded { computed, after, wish: Some(wish), .. } => {
                self.computed(computed);
                self.add("next_poll", exact(*wish), "from the end of the last poll, as its plugin requested");
                let how = "next_poll·stretch within min_interval and max_interval, up to 5 % later";
                self.add("delay", exact(*after), how);
            }
            Why::Succeeded { computed, after, since, wish: None } => {
                self.computed(computed);
                self.jitter(computed, *after);
                let how = format!("counted from the due time of the last poll, {}", ago(now, *since));
                self.add("next_run", format!("in {}", span(target.schedule.due.since(now))), how);
            }
            Why::Recomputed { computed, after } => {
                self.computed(computed);
                self.jitter(computed, *after);
                self.add(
                    "next_run",
                    format!("in {}", span(target.schedule.due.since(now))),
                    "counted from the last poll",
                );
            }
            Why::Failed(failed) => self.failed(failed, target.schedule.failures),
            Why::PluginFault { backoff, probe, dead, delay } => {
                self.add(
                    "plugin_backoff",
                    exact(*backoff),
                    "5 s after the first fault of the plugin, doubling to 5 min",
                );
                if let Some(probe) = probe {
                    self.add(
                        "open_for",
                        exact(*probe),
                        "the poll was the breaker's probe; the breaker is open again for the same time",
                    );
                }
                if let Some(dead) = dead {
                    self.add("dead_letter_look", exact(*dead), "a dead letter is polled at this interval");
                }
                self.add("delay", exact(*delay), "the longest of these, from the end of the poll");
            }
            Why::Spread { was, delay } => {
                self.add(
                    "fell_due",
                    ago(now, *was),
                    "together with others, after a start, a sleep or a change of settings",
                );
                self.add("spread", exact(*delay), "its position among them, by a hash of its URL");
            }
            Why::QuarantineProbe => self.add(
                "quarantine",
                "5 min".to_owned(),
                "between two probes of a plugin whose latest polls all ended in plugin faults",
            ),
            Why::NoSlot { delay } => self.add("delay", exact(*delay), "until the next attempt"),
            Why::Unwritten { results, delay } => {
                self.add(
                    "unwritten",
                    results.to_string(),
                    "results that are not written to the database; the limit is 5",
                );
                self.add("delay", exact(*delay), "until the next attempt");
            }
            Why::Restored => {
                if let Some(interval) = target.schedule.interval {
                    self.add("interval", exact(interval), "the last computed interval, from before the host started");
                }
            }
            Why::Profile(_) | Why::Added | Why::Changed | Why::Enabled | Why::Asked(_) | Why::Revived { .. } => {}
        }
    }

    fn computed(&mut self, computed: &Computed) {
        let Computed { cadence, bounds, scores, load, target, last, interval } = computed;
        self.add("cadence", cadence.as_str(), "the rule for the interval after a success");
        let whose = "its own interval, else the operator's base_interval, else its kind's";
        self.add("base_interval", exact(bounds.base), whose);
        if *cadence == Cadence::Fixed {
            self.add("interval", exact(*interval), "the base interval");
            return;
        }
        self.add("min_interval", exact(bounds.min), "the shortest interval");
        self.add("max_interval", exact(bounds.max), "the longest interval while it answers");
        self.add(
            "staleness",
            format!("{:.2}", scores.staleness),
            "age of the last success at the end of the last poll, over max_interval, 0 to 1",
        );
        if *cadence == Cadence::Adaptive {
            let how = "the expected time to its next change, from the changes seen at its polls and those of all targets; while a dependency is critical, the end of that is its next change";
            self.add("expected_change", format!("in {}", expected_change(computed)), how);
            if scores.stretch > 1.0 {
                let share = format!("×{:.2}", scores.stretch);
                self.add("stretch", share, "the factor by which the wanted intervals of all targets are longer, so that their polls together stay within the budget: twice the polls of their base intervals, or once where max_interval is set; it is greater while a dependency is critical, so that watching an incident does not delay the detection of others");
            }
            let wanted =
                "the interval for this rate of changes: base_interval·√(expected_change / 1 h), within min and max";
            self.add("wanted", seconds(scores.wanted), wanted);
            let how = "(max_interval − wanted·stretch) / (max_interval − min_interval), 0 to 1; stretch is 1 if it has no row";
            self.add("activity", format!("{:.2}", scores.activity), how);
        }
        let score = scores.of(*cadence);
        let whose =
            if *cadence == Cadence::Adaptive { "the greater of staleness and activity" } else { "the staleness" };
        self.add("score", format!("{score:.2}"), whose);
        if load.errors > 0 {
            let factor = format!("÷{:.1}", 1.0 + 0.6 * f64::from(load.errors));
            self.add("errors", factor, format!("the success ended {} failures", load.errors));
        }
        if load.due > 1 {
            let factor = format!("×{:.1}", 1.0 + 0.1 * (load.due - 1) as f64);
            self.add("load", factor, format!("{} polls were held back by a process-wide cap", load.due));
        }
        let formula = "min_interval + (max_interval − min_interval)·(1 − score), then changed by the rows errors and load, if present";
        self.add("aim", seconds(*target), formula);
        self.add("last", seconds(*last), "the previous interval; base_interval at the first success");
        let how = if *cadence == Cadence::Adaptive && target < last {
            "the aim: a shorter interval applies at once"
        } else {
            "0.6·aim + 0.4·last"
        };
        self.add("interval", exact(*interval), how);
    }

    fn jitter(&mut self, computed: &Computed, after: Duration) {
        if computed.cadence != Cadence::Fixed {
            self.add("jittered", exact(after), "±5 %, so that targets are not polled in step");
        }
    }

    fn failed(&mut self, failed: &Failed, failures: u32) {
        let Failed { profile, backoff, floor, open_for, dead, dead_letter_interval, retry_after, delay } = failed;
        let spread = if *profile == Profile::Standard { "earlier" } else { "later" };
        self.add("profile", profile.as_str(), "the rules for the delay after a failure");
        if dead.is_some() {
            self.add(
                "dead_letter_look",
                exact(*dead_letter_interval),
                format!("a dead letter is polled at this interval, up to 10 % {spread}"),
            );
        } else if let Some(open_for) = open_for {
            self.add(
                "open_for",
                exact(*open_for),
                format!("how long the breaker is open; the probe runs up to 10 % {spread}"),
            );
        } else {
            let how = match profile {
                Profile::Standard => format!(
                    "5 s, doubled with each failure after the first ({failures}), ±20 %; at most 60 s, or the interval if \
                     that is longer"
                ),
                Profile::Pulse => {
                    format!("5 s, doubled with each failure after the first ({failures}), ±20 %; at most 5 min")
                }
                Profile::Depsera => {
                    format!("1 s, doubled with each failure after the first ({failures}); at most 5 min")
                }
            };
            self.add("backoff", exact(*backoff), how);
            if let Some(floor) = floor {
                self.add("interval", exact(*floor), "a retry does not run before the interval is over");
            }
        }
        if let Some(retry_after) = retry_after {
            self.add("retry_after", exact(*retry_after), "the delay that the source requested; at most the longest interval, or 1 h if it had requested one before");
        }
        self.add("delay", exact(*delay), "from the end of the failed poll");
    }
}

fn failed(failures: u32) -> String {
    match failures {
        1 => "failed".to_owned(),
        failures => format!("failed {failures} times in a row"),
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn ago(now: Moment, then: Moment) -> String {
    format!("{} ago", span(now.since(then)))
}

fn seconds(seconds: f64) -> String {
    exact(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Formats a duration to a tenth of a second, up to ten minutes.
fn exact(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 600.0 {
        format!("{seconds:.1} s")
    } else {
        span(duration)
    }
}

/// Formats a duration in the largest fitting unit.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}
