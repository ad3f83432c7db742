use super::*;
use crate::Profile;
use model::{BreakerState, Cadence, Place};
use proptest::prelude::*;

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
const SUCCESS: Finish = Finish::Success { changed: false, critical: false };

/// Runs one target alone; gives for each poll the seconds from its end to the next due time.
fn delays(settings: Settings, finishes: &[Finish]) -> Vec<f64> {
    let mut scheduler = scheduler(settings);
    let mut now = Moment::START;
    // Another one of its kind, whose poll never ends: the plugin is not judged by one target alone.
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

/// Pulse's profile, and the defaults.
fn pulse() -> Settings {
    Settings { profile: Profile::Pulse, ..Settings::default() }
}

/// Polls a target that fails in one way, and returns when, in seconds, each poll after the first was due.
fn looks(settings: Settings, spec: TargetSpec, finish: Finish, until: f64) -> (Scheduler, Vec<f64>) {
    let mut scheduler = scheduler(settings);
    let target = spec.id.clone();
    scheduler.apply(Input::Added(spec), Moment::START);
    let (mut now, mut looks) = (Moment::START, Vec::new());
    loop {
        scheduler.apply(Input::Finished(target.clone(), finish), now);
        let due = scheduler.status(&target).unwrap().schedule.due;
        if due > at(until) {
            return (scheduler, looks);
        }
        looks.push(due.since(Moment::START).as_secs_f64());
        now = due;
        scheduler.apply(Input::Tick, now);
    }
}

#[test]
fn standard_looks_every_minute_and_after_an_hour_every_five() {
    let (mut scheduler, all) = looks(Settings::default(), spec("a", "h"), TRANSIENT, 7200.0);
    let gaps: Vec<f64> = std::iter::once(&0.0).chain(&all).zip(&all).map(|(a, b)| b - a).collect();
    near(gaps[0], 4.0, 6.0);
    near(gaps[1], 8.0, 12.0);
    let hour = all.iter().position(|at| *at >= 3600.0).unwrap();
    for gap in &gaps[2..=hour] {
        near(*gap, 54.0, 60.0);
    }
    for gap in &gaps[hour + 1..] {
        near(*gap, 270.0, 300.0);
    }
    let explained = scheduler.explain(&id("a"), at(7200.0)).unwrap().summary;
    assert!(
        explained.contains("has failed for an hour and is a dead letter: it is looked at every 5 min"),
        "{explained}"
    );
    // Pulse's rules are patient; back under the standard ones, nobody waits for half an hour.
    scheduler.apply(Input::Settings(pulse()), at(7200.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(7200.0));
    scheduler.apply(Input::Finished(id("a"), TRANSIENT), at(7200.0));
    scheduler.apply(Input::Settings(Settings::default()), at(7201.0));
    let due = scheduler.status(&id("a")).unwrap().schedule.due;
    near(due.since(at(7201.0)).as_secs_f64(), 270.0, 300.0);
}

#[test]
fn standard_sees_the_end_of_a_404_of_ten_seconds_within_a_minute() {
    let (scheduler, all) = looks(Settings::default(), spec("a", "h"), PERMANENT, 10.0);
    assert!(!all.is_empty() && scheduler.status(&id("a")).unwrap().schedule.dead.is_none());
    let next = scheduler.status(&id("a")).unwrap().schedule.due;
    near(next.since(at(10.0)).as_secs_f64(), 0.0, 60.0);
    // What stays is a dead letter, not before a minute is over, and looked at every five.
    let (scheduler, all) = looks(Settings::default(), spec("a", "h"), PERMANENT, 1200.0);
    let dead = scheduler.status(&id("a")).unwrap().schedule.dead.unwrap();
    assert!(dead.since >= at(60.0) && dead.since <= at(90.0), "{dead:?}");
    let last = all.len() - 1;
    near(all[last] - all[last - 1], 270.0, 300.0);
}

#[test]
fn standard_never_looks_more_often_than_the_interval_at_what_has_failed_for_long() {
    let slow = TargetSpec { interval: Some(Duration::from_secs(900)), ..spec("a", "h") };
    let (_, all) = looks(Settings::default(), slow, TRANSIENT, 20_000.0);
    for pair in all[2..].windows(2) {
        near(pair[1] - pair[0], 810.0, 900.0);
    }
}

#[test]
fn all_of_five_hundred_are_seen_to_be_back_within_a_minute_without_a_herd() {
    let mut scheduler = scheduler(Settings { max_in_flight: 10_000, ..Settings::default() });
    let ids: Vec<TargetId> = (0..500).map(|n| id(&format!("t{n}"))).collect();
    for target in &ids {
        scheduler.apply(Input::Added(spec(target.as_str(), target.as_str())), Moment::START);
    }
    let mut now = Moment::START;
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    let back = at(180.0);
    while now < at(300.0) {
        for target in started(&mut scheduler) {
            let answers = now >= back;
            scheduler.apply(Input::Finished(id(&target), if answers { SUCCESS } else { TRANSIENT }), now);
            let is_first = answers && scheduler.status(&id(&target)).unwrap().schedule.rates == Default::default();
            if is_first {
                *seen.entry(now.since(back).as_secs()).or_default() += 1;
            }
        }
        let Some(next) = scheduler.next_wakeup() else { break };
        now = now.max(next);
        scheduler.apply(Input::Tick, now);
    }
    assert!(seen.keys().all(|second| *second <= 60), "{seen:?}");
    let known: usize = ids.iter().filter(|id| scheduler.status(id).unwrap().schedule.last_success.is_some()).count();
    assert_eq!(known, 500);
    assert!(seen.values().all(|count| *count <= 250), "a herd: {seen:?}");
}

#[test]
fn pulse_backs_off_opens_and_gives_up() {
    let delays = delays(pulse(), &[TRANSIENT; 7]);
    near(delays[0], 4.0, 6.0);
    near(delays[1], 8.0, 12.0);
    near(delays[2], 40.0, 44.0);
    near(delays[3], 300.0, 330.0);
    for delay in &delays[4..] {
        near(*delay, 1800.0, 1980.0);
    }
}

#[test]
fn depsera_never_gives_up() {
    let settings = Settings { profile: Profile::Depsera, ..Settings::default() };
    let delays = delays(settings, &[TRANSIENT; 12]);
    assert_eq!(delays[..6], [10.0, 10.0, 10.0, 10.0, 16.0, 32.0]);
    near(delays[9], 300.0, 330.0);
    near(delays[11], 300.0, 330.0);
}

#[test]
fn a_permanent_failure_is_a_dead_letter_until_a_look_succeeds() {
    let delays = delays(pulse(), &[PERMANENT, TRANSIENT, SUCCESS, SUCCESS]);
    near(delays[0], 1800.0, 1980.0);
    near(delays[1], 1800.0, 1980.0);
    assert_eq!(delays[2..], [9.0, 9.0], "the interval is counted from the due time");
}

#[test]
fn retry_after_is_a_lower_bound_in_every_row() {
    let after = |seconds| Some(Duration::from_secs(seconds));
    let transient = |seconds| Finish::Transient { cause: Cause::Other, retry_after: after(seconds) };
    let found = delays(Settings::default(), &[transient(60), transient(1), transient(500), transient(999_999)]);
    assert_eq!(found[0], 60.0);
    near(found[1], 8.0, 12.0);
    assert_eq!(found[2], 500.0);
    assert_eq!(found[3], 3600.0, "no longer than an hour");
}

#[test]
fn plugin_faults_back_off_by_themselves_and_count_for_nothing_else() {
    let found = delays(pulse(), &[Finish::PluginFault; 8]);
    assert_eq!(found, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
    let found = delays(pulse(), &[TRANSIENT, TRANSIENT, TRANSIENT, Finish::PluginFault, TRANSIENT]);
    near(found[2], 40.0, 44.0);
    assert_eq!(found[3], 40.0, "a probe that is lost opens for the same time");
    near(found[4], 300.0, 330.0);
}

#[test]
fn events_tell_of_breaker_and_dead_letter() {
    let mut scheduler = scheduler(pulse());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    let mut seen = events(&mut scheduler);
    let mut now = Moment::START;
    for finish in [TRANSIENT, TRANSIENT, TRANSIENT, TRANSIENT, TRANSIENT, SUCCESS] {
        scheduler.apply(Input::Finished(id("a"), finish), now);
        now = scheduler.status(&id("a")).unwrap().schedule.due;
        scheduler.apply(Input::Tick, now);
        seen.extend(events(&mut scheduler));
    }
    assert_eq!(seen, ["service:started", "circuit:open", "target:dead-letter", "circuit:close", "target:revived"]);
}

#[test]
fn a_neighbours_success_revives_once_and_not_after_a_refused_log_in() {
    for (finish, revived) in [(TRANSIENT, true), (PERMANENT, false)] {
        let mut scheduler = scheduler(Settings::default());
        let mut now = Moment::START;
        scheduler.apply(Input::Added(spec("a", "h")), now);
        while scheduler.status(&id("a")).unwrap().schedule.dead.is_none() {
            scheduler.apply(Input::Finished(id("a"), finish), now);
            now = scheduler.status(&id("a")).unwrap().schedule.due;
            if scheduler.status(&id("a")).unwrap().schedule.dead.is_none() {
                scheduler.apply(Input::Tick, now);
            }
        }
        now = now.before(900 * SECOND);
        scheduler.apply(Input::Added(spec("b", "h")), now);
        started(&mut scheduler);
        scheduler.apply(Input::Finished(id("b"), SUCCESS), now);
        assert_eq!(started(&mut scheduler).contains(&"a".to_owned()), revived);
        if revived {
            scheduler.apply(Input::Finished(id("a"), finish), now);
            let due = scheduler.status(&id("b")).unwrap().schedule.due;
            scheduler.apply(Input::Tick, due);
            scheduler.apply(Input::Finished(id("b"), SUCCESS), due);
            assert!(!started(&mut scheduler).contains(&"a".to_owned()), "a second success does not");
        }
    }
}

#[test]
fn a_host_hands_its_slot_on_in_the_same_step_to_the_least_recently_polled() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, ..Settings::default() });
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Added(spec(name, "shared")), Moment::START);
    }
    scheduler.apply(Input::Added(spec("z", "alone")), Moment::START);
    assert_eq!(started(&mut scheduler), ["a", "z"], "another host does not wait");
    assert_eq!(scheduler.status(&id("b")).unwrap().place, Place::WaitingForHost);
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(1.0));
    assert_eq!(started(&mut scheduler), ["b"]);
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(2.0));
    scheduler.apply(Input::Finished(id("b"), SUCCESS), at(3.0));
    assert_eq!(started(&mut scheduler), ["c"], "c was never polled, a was");
    scheduler.apply(Input::Finished(id("c"), SUCCESS), at(4.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}

#[test]
fn caps_hold_polls_back_and_count_them() {
    let mut scheduler = scheduler(Settings { max_in_flight: 2, ..Settings::default() });
    for name in ["a", "b", "c", "d"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a", "b"]);
    assert_eq!(scheduler.counters().held_in_flight, 2);
    assert_eq!(scheduler.next_wakeup(), Some(at(1.0)), "a poll that takes longer leaves its slot");
    scheduler.apply(Input::Tick, at(0.99));
    assert_eq!(started(&mut scheduler), Vec::<String>::new());
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.995));
    assert_eq!(started(&mut scheduler), ["c"]);
    scheduler.apply(Input::Tick, at(1.0));
    assert_eq!(started(&mut scheduler), ["d"], "b takes no slot any more");
    for name in ["e", "f", "g"] {
        scheduler.apply(Input::Added(spec(name, name)), at(1.0));
    }
    assert_eq!(scheduler.next_wakeup(), Some(at(1.995)));
    scheduler.apply(Input::Tick, at(5.0));
    assert_eq!(started(&mut scheduler), ["e"], "c takes none, and no more than two may take longer");
    assert_eq!(scheduler.next_wakeup(), Some(at(10.0)), "a is due again; before that, time alone frees no slot");
    scheduler.audit().unwrap();

    let mut scheduler = super::Scheduler::new(Settings { rate_per_second: 1, ..Settings::default() }, 7);
    for name in ["a", "b"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a"]);
    let wake = scheduler.next_wakeup().unwrap();
    near(wake.since(Moment::START).as_secs_f64(), 1.0, 1.001);
    scheduler.apply(Input::Tick, wake);
    assert_eq!(started(&mut scheduler), ["b"]);
}

#[test]
fn results_that_wait_for_the_database_hold_their_target_back() {
    let mut scheduler = scheduler(Settings::default());
    scheduler.apply(Input::Unwritten(id("a"), 5), Moment::START);
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    started(&mut scheduler);
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(1.0));
    scheduler.apply(Input::Unwritten(id("a"), 5), at(1.0));
    scheduler.apply(Input::Tick, at(10.0));
    assert_eq!(started(&mut scheduler), Vec::<String>::new());
    assert_eq!(scheduler.counters().skipped_unwritten, 1);
    scheduler.apply(Input::Unwritten(id("a"), 0), at(11.0));
    scheduler.apply(Input::Tick, at(20.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}

#[test]
fn targets_that_hang_leave_half_of_the_slots_to_the_others() {
    let mut scheduler = scheduler(Settings { max_in_flight: 4, cadence: Cadence::Fixed, ..Settings::default() });
    let hangs = |name: &str| name.starts_with('h');
    for name in ["h1", "h2", "h3", "h4"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["h1", "h2", "h3", "h4"], "nothing is known of them yet");
    for name in ["h1", "h2", "h3", "h4"] {
        scheduler.apply(Input::Finished(id(name), TRANSIENT), at(10.0));
    }
    for name in ["a", "b", "c"] {
        let quiet = TargetSpec { interval: Some(Duration::from_secs(250)), ..spec(name, name) };
        scheduler.apply(Input::Added(quiet), at(10.0));
        scheduler.apply(Input::Finished(id(name), SUCCESS), at(10.1));
    }
    started(&mut scheduler);
    // All of them are due.
    for name in ["h1", "h2", "h3", "h4", "a", "b", "c"] {
        scheduler.apply(Input::Asked(id(name), Ask::PollNow), at(30.0));
    }
    let now = started(&mut scheduler);
    assert_eq!(now.iter().filter(|name| hangs(name)).count(), 2, "{now:?}");
    assert_eq!(now.len(), 4, "{now:?}");
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(30.1));
    assert_eq!(started(&mut scheduler), ["c"], "and not one that hangs");
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Finished(id(name), SUCCESS), at(30.2));
    }
    assert!(started(&mut scheduler).iter().all(|name| !hangs(name)), "the half is taken");
    let explained = scheduler.explain(&id("h3"), at(30.3)).unwrap().summary;
    assert!(explained.contains("half"), "{explained}");
    scheduler.audit().unwrap();
    // One that answers at once again is like any other.
    let first = now.iter().find(|name| hangs(name)).unwrap();
    scheduler.apply(Input::Finished(id(first), SUCCESS), at(30.3));
    scheduler.audit().unwrap();
    assert_eq!(started(&mut scheduler).len(), 2, "it and the next one that hangs");
}

#[test]
fn targets_that_hang_leave_half_of_their_host_to_the_others() {
    let mut scheduler = scheduler(Settings { max_per_host: 2, ..Settings::default() });
    for name in ["h1", "h2"] {
        scheduler.apply(Input::Added(spec(name, "h")), Moment::START);
        scheduler.apply(Input::Finished(id(name), TRANSIENT), at(0.1));
    }
    scheduler.apply(Input::Added(spec("a", "h")), at(0.2));
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.3));
    started(&mut scheduler);
    for name in ["h1", "h2", "a"] {
        scheduler.apply(Input::Asked(id(name), Ask::PollNow), at(1.0));
    }
    assert_eq!(started(&mut scheduler), ["h1", "a"], "one of the two that failed, and the one that did not");
    let explained = scheduler.explain(&id("h2"), at(1.0)).unwrap().summary;
    assert!(explained.contains("max_per_host is 2"), "{explained}");
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(1.1));
    assert_eq!(started(&mut scheduler), Vec::<String>::new());
    let explained = scheduler.explain(&id("h2"), at(1.1)).unwrap().summary;
    assert!(explained.contains("share half of max_per_host"), "{explained}");
    scheduler.apply(Input::Finished(id("h1"), TRANSIENT), at(1.2));
    assert_eq!(started(&mut scheduler), ["h2"]);
    scheduler.audit().unwrap();
}

#[test]
fn a_slot_that_is_not_taken_is_handed_on() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, ..Settings::default() });
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Added(spec(name, "h")), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a"]);
    scheduler.apply(Input::Unwritten(id("b"), 5), at(1.0));
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(2.0));
    assert_eq!(started(&mut scheduler), ["c"], "b has results unwritten, and c must not wait for it");
}

#[test]
fn a_slot_of_a_target_that_steps_aside_is_handed_on() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, max_in_flight: 2, ..Settings::default() });
    for (name, host) in [("a", "h"), ("y", "h"), ("z", "h"), ("d", "g"), ("e", "f")] {
        scheduler.apply(Input::Added(spec(name, host)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a", "d"]);
    scheduler.apply(Input::Finished(id("a"), SUCCESS), Moment::START);
    assert_eq!(started(&mut scheduler), ["e"], "y has the slot of h, and waits for one of max_in_flight");
    scheduler.apply(Input::Asked(id("y"), Ask::Disable), Moment::START);
    scheduler.apply(Input::Finished(id("d"), SUCCESS), Moment::START);
    assert_eq!(started(&mut scheduler), ["z"], "y stepped aside, and nobody else of its host runs");
}

#[test]
fn every_poll_that_a_cap_holds_back_is_counted() {
    let mut scheduler = scheduler(Settings { max_in_flight: 1, ..Settings::default() });
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(scheduler.counters().held_in_flight, 2);
    // One starts and another becomes due: as many wait as before, and one more was held back.
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(1.0));
    assert_eq!(scheduler.counters().held_in_flight, 3);
}

#[test]
fn a_look_that_never_began_is_no_earlier_than_any_other() {
    let mut scheduler = scheduler(pulse());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    scheduler.apply(Input::Finished(id("a"), PERMANENT), at(1.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(2.0));
    scheduler.apply(Input::Finished(id("a"), Finish::Skipped), at(3.0));
    let due = scheduler.status(&id("a")).unwrap().schedule.due;
    assert_eq!(due.since(at(3.0)).as_secs(), 1800);
}

#[test]
fn a_removed_or_changed_target_forgets_the_poll_that_is_under_way() {
    let mut scheduler = scheduler(Settings::default());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    assert_eq!(started(&mut scheduler), ["a"]);
    scheduler.apply(Input::Removed(id("a")), at(1.0));
    scheduler.apply(Input::Added(spec("a", "h")), at(2.0));
    assert_eq!(started(&mut scheduler), Vec::<String>::new(), "never two polls of one target");
    scheduler.apply(Input::Finished(id("a"), PERMANENT), at(3.0));
    assert_eq!(started(&mut scheduler), ["a"], "the old outcome says nothing");
    assert_eq!(scheduler.status(&id("a")).unwrap().schedule.dead, None);
    scheduler.apply(Input::Changed(spec("a", "other"), Change::Reset), at(4.0));
    scheduler.apply(Input::Finished(id("a"), PERMANENT), at(5.0));
    assert_eq!(started(&mut scheduler), ["a"]);
    scheduler.apply(Input::Asked(id("a"), Ask::Disable), at(6.0));
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(7.0));
    assert_eq!(scheduler.next_wakeup(), None);
    scheduler.apply(Input::Asked(id("a"), Ask::Enable), at(8.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}

#[test]
fn a_kind_without_a_plugin_is_a_state_and_not_a_failure() {
    let mut scheduler = scheduler(Settings::default());
    let kind = Kind::new("http").unwrap();
    scheduler.apply(Input::KindServed(kind.clone(), false), Moment::START);
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    assert_eq!(started(&mut scheduler), Vec::<String>::new());
    assert_eq!(scheduler.status(&id("a")).unwrap().place, Place::NoPlugin);
    scheduler.apply(Input::KindServed(kind, true), at(2.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}

#[test]
fn a_plugin_that_fails_for_five_targets_in_a_row_is_tried_with_one_every_five_minutes() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut scheduler = scheduler(Settings { max_per_host: 10, ..Settings::default() });
    for name in names {
        scheduler.apply(Input::Added(spec(name, "h")), Moment::START);
    }
    assert_eq!(started(&mut scheduler).len(), 6);
    let finish = |scheduler: &mut Scheduler, name: &str, finish, now| {
        scheduler.apply(Input::Finished(id(name), finish), now);
        events(scheduler)
    };
    // A target's own failure in between shows that the plugin runs.
    for (name, how) in [("a", Finish::PluginFault), ("b", Finish::PluginFault), ("f", TRANSIENT)] {
        finish(&mut scheduler, name, how, at(1.0));
    }
    for name in ["c", "d"] {
        assert_eq!(finish(&mut scheduler, name, Finish::PluginFault, at(2.0)), Vec::<&str>::new());
    }
    finish(&mut scheduler, "e", Finish::PluginFault, at(2.0));
    scheduler.apply(Input::Tick, at(6.5));
    assert_eq!(started(&mut scheduler), ["a", "b", "f"], "three in a row are not five");
    finish(&mut scheduler, "a", Finish::PluginFault, at(6.8));
    assert_eq!(finish(&mut scheduler, "b", Finish::PluginFault, at(6.8)), ["plugin:quarantined"]);
    let place = |scheduler: &Scheduler, name| scheduler.status(&id(name)).unwrap().place;
    assert_eq!((place(&scheduler, "a"), place(&scheduler, "f")), (Place::Quarantined, Place::InFlight));
    finish(&mut scheduler, "f", Finish::PluginFault, at(8.0));
    assert_eq!(scheduler.next_wakeup(), Some(at(306.8)));
    scheduler.apply(Input::Tick, at(307.0));
    assert_eq!(started(&mut scheduler), ["c"], "the one that was polled longest ago");
    finish(&mut scheduler, "c", Finish::PluginFault, at(308.0));
    assert_eq!(scheduler.next_wakeup(), Some(at(608.0)));
    scheduler.apply(Input::Asked(id("b"), Ask::PollNow), at(309.0));
    assert_eq!(started(&mut scheduler), ["b"], "what an operator asks for is polled");
    finish(&mut scheduler, "b", SUCCESS, at(310.0));
    assert!(scheduler.quarantined().next().is_none());
    scheduler.apply(Input::Tick, at(330.0));
    assert!(started(&mut scheduler).len() >= 4, "and all are polled again");
}

#[test]
fn another_version_of_a_plugin_ends_its_quarantine() {
    let mut scheduler = scheduler(Settings::default());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    scheduler.apply(Input::Finished(id("a"), Finish::PluginFault), at(1.0));
    assert_eq!(scheduler.status(&id("a")).unwrap().place, Place::Quarantined, "the only one of its kind");
    let summary = scheduler.explain(&id("a"), at(2.0)).unwrap().summary;
    assert!(summary.contains("quarantine"), "{summary}");
    started(&mut scheduler);
    scheduler.apply(Input::KindServed(Kind::new("http").unwrap(), true), at(7.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}

#[test]
fn a_target_is_unreachable_when_nobody_looks_soon() {
    let asks = Finish::Transient { cause: Cause::Other, retry_after: Some(Duration::from_secs(3600)) };
    let mut seen = vec![];
    for (profile, finish) in [
        (Profile::Standard, TRANSIENT),
        (Profile::Standard, asks),
        (Profile::Pulse, TRANSIENT),
        (Profile::Pulse, PERMANENT),
    ] {
        let mut scheduler = scheduler(Settings { profile, ..Settings::default() });
        let is_unreachable = |scheduler: &Scheduler| scheduler.status(&id("a")).unwrap().unreachable;
        scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
        assert!(!is_unreachable(&scheduler), "not polled yet");
        scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.1));
        let mut after_each = Vec::new();
        for finish in [finish, TRANSIENT] {
            let now = scheduler.status(&id("a")).unwrap().schedule.due;
            scheduler.apply(Input::Tick, now);
            scheduler.apply(Input::Finished(id("a"), finish), now);
            after_each.push(is_unreachable(&scheduler));
        }
        seen.push(after_each);
    }
    assert_eq!(seen, [[false, true], [true, true], [false, true], [true, true]]);
}

#[test]
fn a_restart_keeps_streaks_and_spreads_what_fell_due() {
    let mut before = scheduler(pulse());
    let mut now = Moment::START;
    before.apply(Input::Added(spec("a", "h")), now);
    for _ in 0..3 {
        before.apply(Input::Finished(id("a"), TRANSIENT), now);
        now = before.status(&id("a")).unwrap().schedule.due;
        before.apply(Input::Tick, now);
    }
    // Killed while the probe is under way.
    let saved = before.saved(&id("a"), now).unwrap();
    assert_eq!(saved.breaker.state, BreakerState::Open);
    near(saved.due.since(now).as_secs_f64(), 40.0, 40.0);

    let mut after = scheduler(pulse());
    let overdue =
        |name: &str| (spec(name, name), Some(Schedule { last_polled: Some(at(-50.0)), ..Schedule::new(at(-5.0)) }));
    let far = (spec("far", "far"), Some(Schedule::new(at(1e7))));
    after.apply(Input::Started(vec![overdue("b"), overdue("c"), (spec("a", "a"), Some(saved)), far]), Moment::START);
    let due = |name| after.status(&id(name)).unwrap().schedule.due;
    let millis = ["b", "c", "far"].map(|name| due(name).as_nanos() / 1_000_000);
    assert_eq!(millis, [0, 50, 100], "a clock that jumped stalls nobody, and is no burst");
    assert_eq!(after.status(&id("a")).unwrap().schedule.failures, 3);
}

#[test]
fn a_clock_that_jumps_causes_neither_burst_nor_stall() {
    for jump in [3600.0_f64, 30.0 * 86_400.0, -3600.0] {
        let mut scheduler = scheduler(Settings::default());
        let target = |n: u64| (TargetSpec { url_hash: n, ..spec(&format!("t{n}"), &format!("h{n}")) }, None);
        let mut now = at(4000.0);
        scheduler.apply(Input::Started((0..600).map(target).collect()), now);
        let run = |scheduler: &mut Scheduler, now: &mut Moment, until: Moment| {
            let mut by_second = BTreeMap::<i64, usize>::new();
            while *now <= until {
                for target in started(scheduler) {
                    *by_second.entry(now.as_nanos() / 1_000_000_000).or_default() += 1;
                    scheduler.apply(Input::Finished(id(&target), SUCCESS), *now);
                }
                *now = scheduler.next_wakeup().expect("somebody is queued").max(*now);
                scheduler.apply(Input::Tick, *now);
            }
            by_second
        };
        run(&mut scheduler, &mut now, at(4030.0));
        // Nothing is heard of the host until then; a moment that lies in the past is taken to be now.
        scheduler.apply(Input::Tick, at(4030.0 + jump));
        now = now.max(at(4030.0 + jump));
        let until = now.after(30 * SECOND);
        let found = run(&mut scheduler, &mut now, until);
        assert!(found.values().sum::<usize>() >= 1200, "jump {jump}: a stall, {found:?}");
        assert!(found.values().all(|count| *count <= 130), "jump {jump}: a burst, {found:?}");
    }
}

#[test]
fn jitter_spreads_evenly_over_its_five_percent() {
    let mut counts = [0_usize; 10];
    let settings = Settings { cadence: Cadence::Pulse, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 11);
    for n in 0..4000 {
        let target = TargetSpec { cadence: None, ..spec(&format!("t{n}"), "h") };
        scheduler.apply(Input::Started(vec![(target, None)]), Moment::START);
        started(&mut scheduler);
        scheduler.apply(Input::Finished(id(&format!("t{n}")), SUCCESS), Moment::START);
        // The first interval is 184 s: 0.6 of the longest and 0.4 of the base.
        let due = scheduler.status(&id(&format!("t{n}"))).unwrap().schedule.due;
        let share = (due.since(Moment::START).as_secs_f64() / 184.0 - 0.95) / 0.1;
        assert!((0.0..1.0).contains(&share), "{share}");
        counts[(share * 10.0) as usize] += 1;
        scheduler.apply(Input::Removed(id(&format!("t{n}"))), Moment::START);
    }
    // Four hundred in each tenth; five standard deviations are a hundred.
    assert!(counts.iter().all(|count| (300..500).contains(count)), "{counts:?}");
}

#[test]
fn wake_ups_alone_keep_everybody_polled() {
    let mut scheduler = scheduler(Settings { rate_per_second: 2, ..Settings::default() });
    let targets = ["a", "b", "c"].map(|name| (spec(name, name), None));
    scheduler.apply(Input::Started(targets.to_vec()), Moment::START);
    let mut now = Moment::START;
    let mut polls = BTreeMap::<String, u32>::new();
    while now < at(100.0) {
        for target in started(&mut scheduler) {
            scheduler.apply(Input::Finished(id(&target), SUCCESS), now);
            *polls.entry(target).or_default() += 1;
        }
        let wake = scheduler.next_wakeup().expect("somebody is queued");
        assert!(wake >= now, "a wake-up in the past would spin");
        now = wake;
        scheduler.apply(Input::Tick, now);
    }
    assert!(polls.values().all(|count| (9..=11).contains(count)) && polls.len() == 3, "{polls:?}");
}

#[test]
fn the_same_inputs_give_the_same_actions() {
    let run = || {
        let mut scheduler = scheduler(Settings { max_in_flight: 3, cadence: Cadence::Adaptive, ..Settings::default() });
        let mut log = Vec::new();
        let targets = (0..20).map(|n| TargetSpec { cadence: None, ..spec(&format!("t{n}"), &format!("h{}", n % 4)) });
        scheduler.apply(Input::Started(targets.map(|spec| (spec, None)).collect()), Moment::START);
        let mut now = Moment::START;
        for step in 0..500_u32 {
            let actions = scheduler.drain();
            for action in &actions {
                if let Action::Start(target, _) = action {
                    let finish = if step % 7 == 0 { TRANSIENT } else { SUCCESS };
                    scheduler.apply(Input::Finished(target.clone(), finish), now);
                }
            }
            log.extend(actions);
            now = scheduler.next_wakeup().unwrap_or(now);
            scheduler.apply(Input::Tick, now);
        }
        log
    };
    assert_eq!(run(), run());
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u32),
    Finish(u8, u8),
    Add(u8),
    Remove(u8),
    Reset(u8),
    Ask(u8, u8),
    Served(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..100_000).prop_map(Step::Wait),
        8 => (0u8..12, 0u8..5).prop_map(|(target, how)| Step::Finish(target, how)),
        2 => (0u8..12).prop_map(Step::Add),
        1 => (0u8..12).prop_map(Step::Remove),
        1 => (0u8..12).prop_map(Step::Reset),
        1 => (0u8..12, 0u8..5).prop_map(|(target, ask)| Step::Ask(target, ask)),
        1 => any::<bool>().prop_map(Step::Served),
    ]
}

proptest! {
    /// Whatever happens: never two polls of one target, never more than the caps, never before the due time, and a
    /// target is in exactly one place.
    #[test]
    fn invariants_hold(steps in proptest::collection::vec(step(), 1..150)) {
        let settings = Settings { max_in_flight: 4, max_per_host: 2, ..Settings::default() };
        let mut scheduler = scheduler(settings);
        let mut now = Moment::START;
        let mut running = BTreeMap::new();
        let name = |n: u8| format!("t{n}");
        let made = |n: u8| spec(&format!("t{n}"), ["h0", "h1", "h2"][usize::from(n) % 3]);
        for step in steps {
            match step {
                Step::Wait(millis) => now = now.after(Duration::from_millis(millis.into())),
                Step::Finish(n, how) => {
                    if running.remove(&id(&name(n))).is_some() {
                        let finish = [SUCCESS, TRANSIENT, PERMANENT, Finish::PluginFault, Finish::Skipped][usize::from(how)];
                        scheduler.apply(Input::Finished(id(&name(n)), finish), now);
                    }
                }
                Step::Add(n) => scheduler.apply(Input::Added(made(n)), now),
                Step::Remove(n) => scheduler.apply(Input::Removed(id(&name(n))), now),
                Step::Reset(n) => scheduler.apply(Input::Changed(made(n), Change::Reset), now),
                Step::Ask(n, ask) => {
                    let ask = [Ask::PollNow, Ask::Retry, Ask::ResetBreaker, Ask::Enable, Ask::Disable][usize::from(ask)];
                    scheduler.apply(Input::Asked(id(&name(n)), ask), now);
                }
                Step::Served(served) => scheduler.apply(Input::KindServed(Kind::new("http").unwrap(), served), now),
            }
            scheduler.apply(Input::Tick, now);
            for action in scheduler.drain() {
                if let Action::Start(target, due) = action {
                    prop_assert!(due <= now, "{target} started before it was due");
                    let host = made(target.as_str()[1..].parse().unwrap()).host;
                    prop_assert_eq!(running.insert(target, host), None);
                }
            }
            prop_assert!(scheduler.young.len() <= 4 && running.len() <= 8);
            for host in ["h0", "h1", "h2"] {
                prop_assert!(running.values().filter(|held| &***held == host).count() <= 2);
            }
            prop_assert_eq!(scheduler.in_flight, running.len());
            prop_assert_eq!(scheduler.audit(), Ok(()));
            // Nobody is forgotten: whoever waits for a host comes next when a poll of that host ends, or when one of its
            // targets whose turn it is already has started or stepped aside.
            for waiting in scheduler.targets.iter().flatten().filter(|target| target.place == Place::WaitingForHost) {
                let host = &waiting.spec.host;
                let turns = |target: &Target| target.place == Place::Ready && target.spec.host == *host;
                let ahead = running.values().any(|held| held == host) || scheduler.targets.iter().flatten().any(turns);
                prop_assert!(ahead, "{} waits for {} in vain", waiting.spec.id, host);
            }
        }
    }
}
