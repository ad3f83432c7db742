//! Tests of restarts, clock jumps, jitter and wake-ups.

use super::*;

#[test]
fn a_restart_keeps_streaks_and_spreads_overdue_targets() {
    let mut before = scheduler(pulse());
    let mut now = Moment::START;
    before.apply(Input::Added(spec("a", "h")), now);
    for _ in 0..3 {
        before.apply(Input::Finished(id("a"), TRANSIENT), now);
        now = before.status(&id("a")).unwrap().schedule.due;
        before.apply(Input::Tick, now);
    }
    // The host is killed while the probe is in flight.
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
    assert_eq!(millis, [0, 50, 100], "a clock that jumped causes neither a stall nor a burst");
    assert_eq!(after.status(&id("a")).unwrap().schedule.failures, 3);
}

#[test]
fn a_clock_jump_causes_neither_a_burst_nor_a_stall() {
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
                *now = scheduler.next_wakeup().expect("a target is queued").max(*now);
                scheduler.apply(Input::Tick, *now);
            }
            by_second
        };
        run(&mut scheduler, &mut now, at(4030.0));
        // The scheduler gets no input until then. A moment in the past counts as the present.
        scheduler.apply(Input::Tick, at(4030.0 + jump));
        now = now.max(at(4030.0 + jump));
        let until = now.after(30 * SECOND);
        let found = run(&mut scheduler, &mut now, until);
        assert!(found.values().sum::<usize>() >= 1200, "jump {jump}: a stall, {found:?}");
        assert!(found.values().all(|count| *count <= 130), "jump {jump}: a burst, {found:?}");
    }
}

#[test]
fn jitter_is_uniform_over_its_range_of_five_percent() {
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
    // Expected are four hundred per tenth; five standard deviations are a hundred.
    assert!(counts.iter().all(|count| (300..500).contains(count)), "{counts:?}");
}

#[test]
fn wake_ups_alone_keep_all_targets_polled() {
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
        let wake = scheduler.next_wakeup().expect("a target is queued");
        assert!(wake >= now, "a wake-up in the past would spin");
        now = wake;
        scheduler.apply(Input::Tick, now);
    }
    assert!(polls.values().all(|count| (9..=11).contains(count)) && polls.len() == 3, "{polls:?}");
}
