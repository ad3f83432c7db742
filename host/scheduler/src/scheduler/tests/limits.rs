//! Tests of the caps: per host, over the process, and per second.

use super::*;

#[test]
fn a_freed_host_slot_goes_to_the_least_recently_polled_target_in_the_same_step() {
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
fn caps_hold_polls_back_and_counters_count_them() {
    let mut scheduler = scheduler(Settings { max_in_flight: 2, ..Settings::default() });
    for name in ["a", "b", "c", "d"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a", "b"]);
    assert_eq!(scheduler.counters().held_in_flight, 2);
    assert_eq!(scheduler.next_wakeup(), Some(at(1.0)), "a longer poll frees its slot");
    scheduler.apply(Input::Tick, at(0.99));
    assert_eq!(started(&mut scheduler), Vec::<String>::new());
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.995));
    assert_eq!(started(&mut scheduler), ["c"]);
    scheduler.apply(Input::Tick, at(1.0));
    assert_eq!(started(&mut scheduler), ["d"], "b no longer takes a slot");
    for name in ["e", "f", "g"] {
        scheduler.apply(Input::Added(spec(name, name)), at(1.0));
    }
    assert_eq!(scheduler.next_wakeup(), Some(at(1.995)));
    scheduler.apply(Input::Tick, at(5.0));
    assert_eq!(started(&mut scheduler), ["e"], "c takes no slot, and at most two polls may run without one");
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
fn a_target_with_too_many_unwritten_results_is_not_polled() {
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
fn hanging_targets_take_at_most_half_of_max_in_flight() {
    let mut scheduler = scheduler(Settings { max_in_flight: 4, cadence: Cadence::Fixed, ..Settings::default() });
    let hangs = |name: &str| name.starts_with('h');
    for name in ["h1", "h2", "h3", "h4"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["h1", "h2", "h3", "h4"], "no target has been polled yet");
    for name in ["h1", "h2", "h3", "h4"] {
        scheduler.apply(Input::Finished(id(name), TRANSIENT), at(10.0));
    }
    for name in ["a", "b", "c"] {
        let quiet = TargetSpec { interval: Some(Duration::from_secs(250)), ..spec(name, name) };
        scheduler.apply(Input::Added(quiet), at(10.0));
        scheduler.apply(Input::Finished(id(name), SUCCESS), at(10.1));
    }
    started(&mut scheduler);
    // All targets are due.
    for name in ["h1", "h2", "h3", "h4", "a", "b", "c"] {
        scheduler.apply(Input::Asked(id(name), Ask::PollNow), at(30.0));
    }
    let now = started(&mut scheduler);
    assert_eq!(now.iter().filter(|name| hangs(name)).count(), 2, "{now:?}");
    assert_eq!(now.len(), 4, "{now:?}");
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(30.1));
    assert_eq!(started(&mut scheduler), ["c"], "a healthy target starts before a hanging one");
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Finished(id(name), SUCCESS), at(30.2));
    }
    assert!(started(&mut scheduler).iter().all(|name| !hangs(name)), "the half for hanging targets is taken");
    let explained = scheduler.explain(&id("h3"), at(30.3)).unwrap().summary;
    assert!(explained.contains("half"), "{explained}");
    scheduler.audit().unwrap();
    // A target that answers fast again counts as healthy.
    let first = now.iter().find(|name| hangs(name)).unwrap();
    scheduler.apply(Input::Finished(id(first), SUCCESS), at(30.3));
    scheduler.audit().unwrap();
    assert_eq!(started(&mut scheduler).len(), 2, "the recovered target and the next hanging one");
}

#[test]
fn hanging_targets_take_at_most_half_of_max_per_host() {
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
    assert_eq!(started(&mut scheduler), ["h1", "a"], "one of the two failed targets and the healthy one");
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
fn an_unused_host_slot_goes_to_the_next_waiting_target() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, ..Settings::default() });
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Added(spec(name, "h")), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a"]);
    scheduler.apply(Input::Unwritten(id("b"), 5), at(1.0));
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(2.0));
    assert_eq!(started(&mut scheduler), ["c"], "b has unwritten results, so c takes the slot");
}

#[test]
fn a_host_slot_does_not_stay_free_for_a_target_that_waits_for_hanging_targets_of_other_hosts() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, max_in_flight: 3, ..Settings::default() });
    for (name, host) in [("hangs", "g"), ("failed", "h"), ("healthy", "h"), ("busy", "h")] {
        let finish = if name == "hangs" || name == "failed" { TRANSIENT } else { SUCCESS };
        scheduler.apply(Input::Added(spec(name, host)), Moment::START);
        scheduler.apply(Input::Finished(id(name), finish), at(0.1));
    }
    started(&mut scheduler);
    for name in ["busy", "failed", "healthy", "hangs"] {
        scheduler.apply(Input::Asked(id(name), Ask::PollNow), at(1.0));
    }
    assert_eq!(started(&mut scheduler), ["busy", "hangs"]);
    scheduler.apply(Input::Finished(id("busy"), SUCCESS), at(2.0));
    assert_eq!(started(&mut scheduler), ["healthy"], "one poll that may hang is in flight, which is half of 3");
    scheduler.audit().unwrap();
    scheduler.apply(Input::Finished(id("healthy"), SUCCESS), at(3.0));
    scheduler.apply(Input::Finished(id("hangs"), SUCCESS), at(3.0));
    assert_eq!(started(&mut scheduler), ["failed"]);
    scheduler.audit().unwrap();
}

#[test]
fn the_host_slot_of_a_disabled_ready_target_goes_to_the_next_waiting_target() {
    let mut scheduler = scheduler(Settings { max_per_host: 1, max_in_flight: 2, ..Settings::default() });
    for (name, host) in [("a", "h"), ("y", "h"), ("z", "h"), ("d", "g"), ("e", "f")] {
        scheduler.apply(Input::Added(spec(name, host)), Moment::START);
    }
    assert_eq!(started(&mut scheduler), ["a", "d"]);
    scheduler.apply(Input::Finished(id("a"), SUCCESS), Moment::START);
    assert_eq!(started(&mut scheduler), ["e"], "y has the slot of h and waits for a slot of max_in_flight");
    scheduler.apply(Input::Asked(id("y"), Ask::Disable), Moment::START);
    scheduler.apply(Input::Finished(id("d"), SUCCESS), Moment::START);
    assert_eq!(started(&mut scheduler), ["z"], "y is disabled, and no other target of its host runs");
}

#[test]
fn every_poll_held_back_by_a_cap_is_counted() {
    let mut scheduler = scheduler(Settings { max_in_flight: 1, ..Settings::default() });
    for name in ["a", "b", "c"] {
        scheduler.apply(Input::Added(spec(name, name)), Moment::START);
    }
    assert_eq!(scheduler.counters().held_in_flight, 2);
    // One target starts and another becomes due: the number of waiting targets is unchanged, and one more was held
    // back.
    scheduler.apply(Input::Finished(id("a"), SUCCESS), at(0.0));
    scheduler.apply(Input::Asked(id("a"), Ask::PollNow), at(1.0));
    assert_eq!(scheduler.counters().held_in_flight, 3);
}
