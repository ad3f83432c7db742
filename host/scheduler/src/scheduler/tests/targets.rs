//! Tests of changed and removed targets, and of the quarantine of plugins.

use super::*;

#[test]
fn the_outcome_of_a_poll_is_ignored_if_the_target_was_removed_or_changed_meanwhile() {
    let mut scheduler = scheduler(Settings::default());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    assert_eq!(started(&mut scheduler), ["a"]);
    scheduler.apply(Input::Removed(id("a")), at(1.0));
    scheduler.apply(Input::Added(spec("a", "h")), at(2.0));
    assert_eq!(started(&mut scheduler), Vec::<String>::new(), "never two polls of one target");
    scheduler.apply(Input::Finished(id("a"), PERMANENT), at(3.0));
    assert_eq!(started(&mut scheduler), ["a"], "the old outcome is ignored");
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
fn targets_of_a_kind_without_a_plugin_wait_until_it_is_served() {
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
fn five_faulty_targets_in_a_row_put_the_plugin_in_quarantine_with_a_probe_every_five_minutes() {
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
    // A failure of the target itself in between shows that the plugin runs.
    for (name, how) in [("a", Finish::PluginFault), ("b", Finish::PluginFault), ("f", TRANSIENT)] {
        finish(&mut scheduler, name, how, at(1.0));
    }
    for name in ["c", "d"] {
        assert_eq!(finish(&mut scheduler, name, Finish::PluginFault, at(2.0)), Vec::<&str>::new());
    }
    finish(&mut scheduler, "e", Finish::PluginFault, at(2.0));
    scheduler.apply(Input::Tick, at(6.5));
    assert_eq!(started(&mut scheduler), ["a", "b", "f"], "three faults in a row do not reach the limit of five");
    finish(&mut scheduler, "a", Finish::PluginFault, at(6.8));
    assert_eq!(finish(&mut scheduler, "b", Finish::PluginFault, at(6.8)), ["plugin:quarantined"]);
    let place = |scheduler: &Scheduler, name| scheduler.status(&id(name)).unwrap().place;
    assert_eq!((place(&scheduler, "a"), place(&scheduler, "f")), (Place::Quarantined, Place::InFlight));
    finish(&mut scheduler, "f", Finish::PluginFault, at(8.0));
    assert_eq!(scheduler.next_wakeup(), Some(at(306.8)));
    scheduler.apply(Input::Tick, at(307.0));
    assert_eq!(started(&mut scheduler), ["c"], "the target that was polled longest ago");
    finish(&mut scheduler, "c", Finish::PluginFault, at(308.0));
    assert_eq!(scheduler.next_wakeup(), Some(at(608.0)));
    scheduler.apply(Input::Asked(id("b"), Ask::PollNow), at(309.0));
    assert_eq!(started(&mut scheduler), ["b"], "a poll that an operator requests runs");
    finish(&mut scheduler, "b", SUCCESS, at(310.0));
    assert!(scheduler.quarantined().next().is_none());
    scheduler.apply(Input::Tick, at(330.0));
    assert!(started(&mut scheduler).len() >= 4, "all targets are polled again");
}

#[test]
fn a_replaced_plugin_leaves_quarantine() {
    let mut scheduler = scheduler(Settings::default());
    scheduler.apply(Input::Added(spec("a", "h")), Moment::START);
    scheduler.apply(Input::Finished(id("a"), Finish::PluginFault), at(1.0));
    assert_eq!(scheduler.status(&id("a")).unwrap().place, Place::Quarantined, "the only target of its kind");
    let summary = scheduler.explain(&id("a"), at(2.0)).unwrap().summary;
    assert!(summary.contains("quarantine"), "{summary}");
    started(&mut scheduler);
    scheduler.apply(Input::KindServed(Kind::new("http").unwrap(), true), at(7.0));
    assert_eq!(started(&mut scheduler), ["a"]);
}
