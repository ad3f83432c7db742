mod invariants;
mod limits;
mod profiles;
mod targets;
mod time;

use super::*;
use crate::Profile;
use model::{BreakerState, Cadence, Place};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as i64)
}

fn id(name: &str) -> TargetId {
    TargetId::new(name).unwrap()
}

fn spec(name: &str, host: &str) -> TargetSpec {
    TargetSpec {
        id: id(name),
        kind: Kind::new("http").unwrap(),
        url_hash: u64::from(name.bytes().map(u32::from).sum::<u32>()),
        host: host.into(),
        origin: format!("http://{host}:80").into(),
        cadence: Some(Cadence::Fixed),
        interval: Some(10 * SECOND),
        min: None,
        max: None,
        kind_interval: None,
        enabled: true,
    }
}

fn scheduler(settings: Settings) -> Scheduler {
    Scheduler::new(settings, 7)
}

fn started(scheduler: &mut Scheduler) -> Vec<String> {
    let starts = scheduler.drain().into_iter().filter_map(|action| match action {
        Action::Start(target, _) => Some(target.to_string()),
        _ => None,
    });
    starts.collect()
}

fn events(scheduler: &mut Scheduler) -> Vec<&'static str> {
    let events = scheduler.drain().into_iter().filter_map(|action| match action {
        Action::Emit(event) => Some(event.name()),
        _ => None,
    });
    events.collect()
}

const TRANSIENT: Finish = Finish::Transient { cause: Cause::Unreachable, retry_after: None };
const PERMANENT: Finish = Finish::Permanent { cause: Cause::Other, retry_after: None };
const SUCCESS: Finish = Finish::Success { changed: false, critical: false, next_poll: None };

/// Polls one target and returns for each poll the seconds from its end to the next due time.
fn delays(settings: Settings, finishes: &[Finish]) -> Vec<f64> {
    let mut scheduler = scheduler(settings);
    let mut now = Moment::START;
    // A second target of the kind, whose poll never ends, so that faults of one target do not put the plugin in
    // quarantine.
    scheduler.apply(Input::Added(spec("z", "elsewhere")), now);
    started(&mut scheduler);
    scheduler.apply(Input::Added(spec("a", "h")), now);
    let mut delays = Vec::new();
    for &finish in finishes {
        assert_eq!(started(&mut scheduler), ["a"], "after {delays:?}");
        now = now.after(SECOND);
        scheduler.apply(Input::Finished(id("a"), finish), now);
        let due = scheduler.status(&id("a")).unwrap().schedule.due;
        delays.push(due.since(now).as_secs_f64());
        now = due;
        scheduler.apply(Input::Tick, now);
    }
    delays
}

fn near(found: f64, low: f64, high: f64) {
    assert!(low <= found && found <= high, "{found} is not within {low} and {high}");
}

/// The default settings with the profile `pulse`.
fn pulse() -> Settings {
    Settings { profile: Profile::Pulse, ..Settings::default() }
}

/// Polls a target that always ends with `finish`. Returns the due times, in seconds, of the polls after the first.
fn failing_polls(settings: Settings, spec: TargetSpec, finish: Finish, until: f64) -> (Scheduler, Vec<f64>) {
    let mut scheduler = scheduler(settings);
    let target = spec.id.clone();
    scheduler.apply(Input::Added(spec), Moment::START);
    let (mut now, mut polls) = (Moment::START, Vec::new());
    loop {
        scheduler.apply(Input::Finished(target.clone(), finish), now);
        let due = scheduler.status(&target).unwrap().schedule.due;
        if due > at(until) {
            return (scheduler, polls);
        }
        polls.push(due.since(Moment::START).as_secs_f64());
        now = due;
        scheduler.apply(Input::Tick, now);
    }
}
