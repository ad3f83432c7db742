//! Alerts that another explains, and those of dependencies that were removed on purpose.

use crate::common::{Report, World, id, one_route, settings, target};
use crate::{confirm, heard, world};
use model::AlertEvent::{Firing, Resolved};
use model::Status::{Critical, Ok};
use model::Subject;
use notify::{Action, TargetSpec};

#[test]
fn what_a_dependency_runs_on_explains_it() {
    let mut world = world(&["a"]);
    let runs_on = [("vm", "node"), ("node", "rack")];
    let report = |rack, node, vm| Report {
        statuses: [("rack", rack), ("node", node), ("vm", vm)].map(|(n, s): (&str, _)| (n.to_owned(), s)).into(),
        runs_on: runs_on.map(|(name, other)| (name.to_owned(), vec![other.to_owned()])).into(),
        ..Report::default()
    };
    let twice = |world: &mut World, report: Report| {
        world.report("a", &report);
        world.advance(20);
        world.report("a", &report);
        world.advance(400);
    };
    // The node between them is healthy; the rack explains the machine all the same.
    twice(&mut world, report(Critical, Ok, Critical));
    assert_eq!(world.notifications[0].1.alerts[0].suppresses, 1);
    assert_eq!(world.news(), heard(&[("a/rack", Firing)]));
    let vm = Subject::dependency(&id("a"), "vm");
    assert_eq!(world.record(&vm).unwrap().suppressed_by, Some(Subject::dependency(&id("a"), "rack")));
    // The rack recovers, the machine does not.
    twice(&mut world, report(Ok, Ok, Critical));
    assert_eq!(world.news(), heard(&[("a/vm", Firing), ("a/rack", Resolved)]));
    // A child that was notified before it was suppressed is resolved when it recovers.
    twice(&mut world, report(Critical, Critical, Critical));
    assert_eq!(world.news(), heard(&[("a/rack", Firing)]));
    twice(&mut world, report(Critical, Critical, Ok));
    assert_eq!(world.news(), heard(&[("a/vm", Resolved)]));
    let suppressed = world.announced.iter().filter(|action| matches!(action, Action::Suppressed(..))).count();
    assert_eq!(suppressed, 3);
}

#[test]
fn what_it_runs_on_explains_it_if_reported_later() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.advance(60);
    let (db, node) = (Subject::dependency(&id("a"), "db"), Subject::dependency(&id("a"), "node"));
    let statuses = ["db", "node"].map(|name| (name.to_owned(), Critical)).into();
    let runs_on = [("db".to_owned(), vec!["node".to_owned()])].into();
    world.report("a", &Report { statuses, runs_on, ..Report::default() });
    assert_eq!(world.record(&db).unwrap().suppressed_by, Some(node));
}

#[test]
fn one_of_several_that_it_runs_on_explains_it() {
    let mut world = world(&["a"]);
    let report = |disk: model::Status| Report {
        statuses: [("disk1", Ok), ("disk2", disk), ("pool", Critical)]
            .map(|(name, status)| (name.to_owned(), status))
            .into(),
        runs_on: [("pool".to_owned(), vec!["disk1".to_owned(), "disk2".to_owned()])].into(),
        ..Report::default()
    };
    for _ in 0..2 {
        world.report("a", &report(Critical));
        world.advance(20);
    }
    world.advance(400);
    assert_eq!(world.news(), heard(&[("a/disk2", Firing)]));
}

#[test]
fn what_was_removed_on_purpose_ends_its_alert_with_that_reason() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.advance(60);
    world.news();
    world.report("a", &Report { gone: vec!["db".to_owned()], ..Report::default() });
    world.advance(400);
    assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
    let summary = &world.notifications.last().unwrap().1.alerts[0].summary;
    assert!(summary.starts_with("over because it was removed"), "{summary}");
}

#[test]
fn a_target_explains_those_that_depend_on_it() {
    let depends = |name: &str, on: &[(&str, Option<&str>)]| TargetSpec {
        depends_on: on.iter().map(|(on, part)| (id(on), part.map(ToOwned::to_owned))).collect(),
        ..target(name)
    };
    let targets = vec![
        depends("router", &[]),
        depends("nas", &[("router", None)]),
        depends("app", &[("nas", Some("db"))]),
        depends("own", &[("own", None)]),
    ];
    let mut world = World::new(settings(one_route()), targets);
    assert_eq!(world.notifier.cut(), [(id("own"), id("own"))]);
    world.fail("router", false, Some("timeout"));
    confirm(&mut world, "nas", Critical);
    confirm(&mut world, "app", Critical);
    world.advance(400);
    assert_eq!(world.news(), heard(&[("router", Firing)]));
    // A target is down as well if nothing in its report is healthy.
    confirm(&mut world, "router", Critical);
    world.advance(400);
    assert_eq!(world.news(), heard(&[("router/db", Firing), ("router", Resolved)]));
    confirm(&mut world, "router", Ok);
    world.advance(200);
    assert_eq!(world.news(), heard(&[("router/db", Resolved)]));
    // The next report confirms that it was not only the router.
    world.observe("nas", &[("db", Critical)]);
    world.advance(400);
    assert_eq!(world.news(), heard(&[("nas/db", Firing)]));
}

#[test]
fn an_alert_of_what_is_out_of_sight_explains_nothing_before_it_is_confirmed() {
    let app = TargetSpec { depends_on: vec![(id("nas"), Some("db".to_owned()))], ..target("app") };
    let mut world = World::new(settings(one_route()), vec![target("nas"), app]);
    world.observe("nas", &[("db", Critical), ("web", Ok)]);
    confirm(&mut world, "app", Critical);
    world.advance(60);
    assert_eq!(world.news(), [], "the report of nas explains it");
    let missing =
        Report { statuses: [("web".to_owned(), Ok)].into(), missing: vec!["db".to_owned()], ..Report::default() };
    world.report("nas", &missing);
    world.advance(60);
    assert_eq!(world.news(), []);
    world.observe("app", &[("db", Critical)]);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("app/db", Firing)]));
}

/// A part of a target that fails and recovers in turns is never confirmed, so that no channel hears of it. It must not
/// explain others for ever.
#[test]
fn what_is_never_confirmed_explains_only_once() {
    let app = TargetSpec { depends_on: vec![(id("nas"), Some("db".to_owned()))], ..target("app") };
    let mut world = World::new(settings(one_route()), vec![target("nas"), app]);
    for turn in 0..6 {
        world.observe("nas", &[("db", if turn % 2 == 0 { Critical } else { Ok })]);
        world.observe("app", &[("db", Critical)]);
        world.advance(10);
    }
    world.advance(60);
    assert_eq!(world.news(), heard(&[("app/db", Firing)]));
    // One that is confirmed explains again.
    confirm(&mut world, "nas", Critical);
    assert_eq!(
        world.record(&Subject::dependency(&id("app"), "db")).unwrap().suppressed_by,
        Some(Subject::dependency(&id("nas"), "db"))
    );
}

#[test]
fn a_target_of_which_always_something_else_fails_alerts() {
    let mut world = world(&["a"]);
    for turn in 0..8 {
        let (one, other) = if turn % 2 == 0 { (Critical, Ok) } else { (Ok, Critical) };
        let whole = Report {
            statuses: [("one", one), ("other", other), ("all", Critical)]
                .map(|(name, status)| (name.to_owned(), status))
                .into(),
            runs_on: [("all".to_owned(), vec![if turn % 2 == 0 { "one" } else { "other" }.to_owned()])].into(),
            ..Report::default()
        };
        world.report("a", &whole);
        world.advance(10);
    }
    world.advance(400);
    assert_eq!(world.news(), heard(&[("a/all", Firing), ("a/other", Firing), ("a/one", Firing)]));
    let mut parts = self::world(&["a"]);
    for turn in 0..8 {
        let (one, other) = if turn % 2 == 0 { (Critical, Ok) } else { (Ok, Critical) };
        parts.observe("a", &[("one", one), ("other", other)]);
        parts.advance(10);
    }
    parts.advance(400);
    assert_eq!(parts.news(), heard(&[("a/other", Firing), ("a/one", Firing)]));
    // Something else in each report, as when machines restart one after the other.
    let mut others = self::world(&["a"]);
    for turn in 0..8 {
        let statuses: Vec<(String, model::Status)> =
            (0..8).map(|part| (format!("vm-{part}"), if part == turn { Critical } else { Ok })).collect();
        others.report("a", &Report { statuses: statuses.into_iter().collect(), ..Report::default() });
        others.advance(10);
    }
    others.advance(400);
    assert_eq!(others.news(), []);
}
