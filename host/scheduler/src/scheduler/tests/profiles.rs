//! Tests of the delays after failures: profiles, breaker, dead letters.

use super::*;

#[test]
fn standard_polls_a_failing_target_every_minute_and_after_an_hour_every_five() {
    let (mut scheduler, all) = failing_polls(Settings::default(), spec("a", "h"), TRANSIENT, 7200.0);
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
    assert!(explained.contains("has failed for an hour and is a dead letter: it is polled every 5 min"), "{explained}");
    // Back under the standard profile, a dead letter does not keep the half-hour delay of the profile `pulse`.
    scheduler.apply(Input::Settings(pulse()), at(7200.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(7200.0));
    scheduler.apply(Input::Finished(id("a"), TRANSIENT), at(7200.0));
    scheduler.apply(Input::Settings(Settings::default()), at(7201.0));
    let due = scheduler.status(&id("a")).unwrap().schedule.due;
    near(due.since(at(7201.0)).as_secs_f64(), 270.0, 300.0);
}

#[test]
fn standard_detects_the_end_of_a_ten_second_404_within_a_minute() {
    let (scheduler, all) = failing_polls(Settings::default(), spec("a", "h"), PERMANENT, 10.0);
    assert!(!all.is_empty() && scheduler.status(&id("a")).unwrap().schedule.dead.is_none());
    let next = scheduler.status(&id("a")).unwrap().schedule.due;
    near(next.since(at(10.0)).as_secs_f64(), 0.0, 60.0);
    // A lasting failure makes the target a dead letter after a minute at the earliest; it is then polled every five
    // minutes.
    let (scheduler, all) = failing_polls(Settings::default(), spec("a", "h"), PERMANENT, 1200.0);
    let dead = scheduler.status(&id("a")).unwrap().schedule.dead.unwrap();
    assert!(dead.since >= at(60.0) && dead.since <= at(90.0), "{dead:?}");
    let last = all.len() - 1;
    near(all[last] - all[last - 1], 270.0, 300.0);
}

#[test]
fn standard_polls_a_dead_letter_no_more_often_than_its_interval() {
    let slow = TargetSpec { interval: Some(Duration::from_secs(900)), ..spec("a", "h") };
    let (_, all) = failing_polls(Settings::default(), slow, TRANSIENT, 20_000.0);
    for pair in all[2..].windows(2) {
        near(pair[1] - pair[0], 810.0, 900.0);
    }
}

#[test]
fn five_hundred_recoveries_are_detected_within_a_minute_without_a_burst() {
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
    assert!(seen.values().all(|count| *count <= 250), "a burst: {seen:?}");
}

#[test]
fn pulse_backs_off_then_opens_the_breaker_then_makes_a_dead_letter() {
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
fn depsera_never_makes_a_dead_letter() {
    let settings = Settings { profile: Profile::Depsera, ..Settings::default() };
    let delays = delays(settings, &[TRANSIENT; 12]);
    assert_eq!(delays[..6], [10.0, 10.0, 10.0, 10.0, 16.0, 32.0]);
    near(delays[9], 300.0, 330.0);
    near(delays[11], 300.0, 330.0);
}

#[test]
fn a_permanent_failure_makes_a_dead_letter_until_a_poll_succeeds() {
    let delays = delays(pulse(), &[PERMANENT, TRANSIENT, SUCCESS, SUCCESS]);
    near(delays[0], 1800.0, 1980.0);
    near(delays[1], 1800.0, 1980.0);
    assert_eq!(delays[2..], [9.0, 9.0], "the interval is counted from the due time");
}

#[test]
fn retry_after_is_a_lower_bound_on_every_delay() {
    let after = |seconds| Some(Duration::from_secs(seconds));
    let transient = |seconds| Finish::Transient { cause: Cause::Other, retry_after: after(seconds) };
    let found = delays(Settings::default(), &[transient(60), transient(1), transient(500), transient(999_999)]);
    assert_eq!(found[0], 10.0, "no longer than the longest interval, the first time");
    near(found[1], 8.0, 12.0);
    assert_eq!(found[2], 500.0);
    assert_eq!(found[3], 3600.0, "no longer than an hour");
    let none = Finish::Transient { cause: Cause::Other, retry_after: None };
    let found = delays(Settings::default(), &[none, transient(60), none, transient(60), SUCCESS, transient(60)]);
    near(found[1], 10.0, 12.0);
    near(found[3], 60.0, 66.0);
    assert_eq!(found[5], 10.0, "after a success, it is the first time again");
    let patient = Settings { max: Some(Duration::from_secs(300)), ..Settings::default() };
    assert_eq!(delays(patient, &[transient(7200)]), [300.0]);
}

#[test]
fn plugin_faults_have_their_own_backoff_and_do_not_count_as_failures() {
    let found = delays(pulse(), &[Finish::PluginFault; 8]);
    assert_eq!(found, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
    let found = delays(pulse(), &[TRANSIENT, TRANSIENT, TRANSIENT, Finish::PluginFault, TRANSIENT]);
    near(found[2], 40.0, 44.0);
    assert_eq!(found[3], 40.0, "a lost probe opens the breaker for the same time");
    near(found[4], 300.0, 330.0);
}

#[test]
fn breaker_and_dead_letter_changes_emit_events() {
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
fn a_success_of_the_same_origin_revives_an_unreachable_dead_letter_once() {
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
            assert!(!started(&mut scheduler).contains(&"a".to_owned()), "a second success does not revive it");
        }
    }
}

#[test]
fn a_skipped_poll_of_a_dead_letter_is_repeated_after_the_full_delay() {
    let mut scheduler = scheduler(pulse());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    scheduler.apply(Input::Finished(id("a"), PERMANENT), at(1.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(2.0));
    scheduler.apply(Input::Finished(id("a"), Finish::Skipped), at(3.0));
    let due = scheduler.status(&id("a")).unwrap().schedule.due;
    assert_eq!(due.since(at(3.0)).as_secs(), 1800);
}

#[test]
fn a_target_is_unreachable_after_two_failures_or_when_the_next_poll_is_far_away() {
    let asks = Finish::Transient { cause: Cause::Other, retry_after: Some(Duration::from_secs(3600)) };
    let mut seen = vec![];
    for (profile, finish, max) in [
        (Profile::Standard, TRANSIENT, None),
        (Profile::Standard, asks, None),
        (Profile::Standard, asks, Some(Duration::from_secs(3600))),
        (Profile::Pulse, TRANSIENT, None),
        (Profile::Pulse, PERMANENT, None),
    ] {
        let mut scheduler = scheduler(Settings { profile, max, ..Settings::default() });
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
    assert_eq!(seen, [[false, true], [false, true], [true, true], [false, true], [true, true]]);
}
