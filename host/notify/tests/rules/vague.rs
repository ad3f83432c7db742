//! Dependencies that are unknown or missing, and empty reports.

use super::*;
use common::VAGUE_AFTER;

/// Reports statuses of dependencies and the names of those that are missing.
fn observe(world: &mut World, statuses: &[(&str, model::Status)], missing: &[&str]) {
    let statuses = statuses.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect();
    let missing = missing.iter().map(|name| (*name).to_owned()).collect();
    world.report("a", &Report { statuses, missing, ..Report::default() });
}

fn lasting() -> u64 {
    VAGUE_AFTER.as_secs()
}

#[test]
fn a_dependency_that_vanishes_while_its_alert_fires_keeps_it_firing() {
    let mut world = world(&["a"]);
    let db = Subject::dependency(&id("a"), "db");
    confirm(&mut world, "a", Critical);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    for _ in 0..10 {
        observe(&mut world, &[("web", Ok)], &["db"]);
        world.advance(3600);
    }
    assert_eq!(world.state(&db), Some(AlertState::Firing));
    let message = world.record(&db).unwrap().message.clone().unwrap();
    assert_eq!(message, "no longer reported since 2026-03-01 00:00 UTC; the last report said: it broke");
    assert!(world.news().iter().all(|(_, event)| *event == Repeated), "it did not get worse");
    // Unknown again, then one good report: it is over after the second.
    observe(&mut world, &[("db", Unknown)], &[]);
    observe(&mut world, &[("db", Ok)], &[]);
    assert_eq!(world.state(&db), Some(AlertState::Firing));
    observe(&mut world, &[("db", Ok)], &[]);
    world.advance(300);
    assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn a_vanished_dependency_ends_its_alert_if_it_is_gone_or_dismissed() {
    let gone = Report { statuses: [("web".to_owned(), Ok)].into(), gone: vec!["db".to_owned()], ..Report::default() };
    let dismissed = Input::Dismissed(vec![Subject::dependency(&id("a"), "db")]);
    for (is_gone, input, summary) in [
        (true, None, "over because it was removed, after 1 min"),
        (false, Some(dismissed), "over because it is no longer reported and was dismissed, after 1 min"),
    ] {
        let mut world = world(&["a"]);
        confirm(&mut world, "a", Critical);
        world.advance(60);
        match is_gone {
            true => world.report("a", &gone),
            false => observe(&mut world, &[("web", Ok)], &["db"]),
        }
        input.into_iter().for_each(|input| world.apply(input));
        world.advance(600);
        assert_eq!(world.heard.last().map(|heard| (heard.event, heard.summary.as_str())), Some((Resolved, summary)));
    }
}

#[test]
fn what_is_unknown_or_missing_for_long_alerts_once() {
    for (statuses, missing, status) in [
        (&[("web", Ok), ("db", Unknown)][..], &[][..], Unknown),
        (&[("web", Ok)], &["db"], Warning),
        (&[], &[], Unknown),
    ] {
        let mut world = world(&["a"]);
        let name = if statuses.is_empty() { "a" } else { "a/db" };
        observe(&mut world, statuses, missing);
        world.advance(lasting() - 1);
        assert_eq!(world.news(), []);
        // Time alone confirms it, and it is notified after the wait of its group.
        world.advance(60);
        let told = world.heard.clone();
        assert_eq!(world.news(), heard(&[(name, Firing)]), "{statuses:?}");
        assert_eq!(told[0].status, status);
        world.restart();
        observe(&mut world, statuses, missing);
        world.advance(3600);
        assert_eq!(world.news(), []);
        // It gets worse, which is notified, and is over with two good reports.
        if !statuses.is_empty() {
            confirm(&mut world, "a", Critical);
            world.advance(600);
            assert_eq!(world.news(), heard(&[(name, Firing)]));
        }
        confirm(&mut world, "a", Ok);
        world.advance(600);
        assert_eq!(world.news(), heard(&[(name, Resolved)]));
    }
}

#[test]
fn a_failure_is_confirmed_although_reports_in_between_leave_it_out() {
    for between in [&[][..], &["db"]] {
        let mut world = world(&["a"]);
        for _ in 0..2 {
            observe(&mut world, &[("db", Critical), ("web", Ok)], &[]);
            world.advance(5);
            observe(&mut world, &[("web", Ok)], between);
            world.advance(5);
        }
        world.advance(30);
        assert_eq!(world.news(), heard(&[("a/db", Firing)]), "{between:?}");
    }
    // One failure, and then nothing: confirmed by time.
    let mut world = world(&["a"]);
    observe(&mut world, &[("db", Critical), ("web", Ok)], &[]);
    for _ in 0..=lasting() / 60 + 2 {
        world.advance(60);
        observe(&mut world, &[("web", Ok)], &["db"]);
    }
    world.advance(60);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    // A good report in between: it is not two in a row.
    let mut world = self::world(&["a"]);
    for status in [Critical, Ok, Critical, Ok] {
        observe(&mut world, &[("db", status), ("web", Ok)], &[]);
        world.advance(60);
    }
    assert_eq!(world.news(), []);
}

#[test]
fn what_is_unknown_for_a_short_time_leaves_nothing() {
    let mut world = world(&["a"]);
    for _ in 0..4 {
        observe(&mut world, &[("db", Unknown)], &["web"]);
        world.advance(lasting() - 60);
        observe(&mut world, &[("db", Ok), ("web", Ok)], &[]);
    }
    world.advance(3600);
    assert_eq!((world.news(), world.records.len()), (Vec::new(), 0));
}

#[test]
fn the_wait_survives_a_restart_and_does_not_confirm_a_failure() {
    let mut world = world(&["a"]);
    observe(&mut world, &[("db", Unknown)], &[]);
    world.advance(lasting() - 60);
    world.restart();
    observe(&mut world, &[("db", Unknown)], &[]);
    world.advance(30);
    observe(&mut world, &[("db", Critical)], &[]);
    assert_eq!(
        world.state(&Subject::dependency(&id("a"), "db")),
        Some(AlertState::Pending),
        "one report is not enough"
    );
    let mut world = super::world(&["a"]);
    observe(&mut world, &[("db", Unknown)], &[]);
    world.advance(lasting() - 60);
    world.restart();
    observe(&mut world, &[("db", Unknown)], &[]);
    world.advance(90);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn what_is_unknown_because_another_fails_is_explained_by_it() {
    let mut world = world(&["a"]);
    let report = Report {
        statuses: [("response".to_owned(), Critical), ("body".to_owned(), Unknown)].into(),
        runs_on: [("body".to_owned(), vec!["response".to_owned()])].into(),
        ..Report::default()
    };
    for _ in 0..20 {
        world.report("a", &report);
        world.advance(120);
    }
    assert_eq!(world.news(), heard(&[("a/response", Firing)]));
}

#[test]
fn an_empty_report_explains_no_other_target() {
    let needs = TargetSpec { depends_on: vec![(id("a"), None)], ..target("b") };
    let mut world = World::new(settings(one_route()), vec![target("a"), needs]);
    observe(&mut world, &[], &[]);
    confirm(&mut world, "b", Critical);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("b/db", Firing)]));
}

#[test]
fn never_is_never() {
    let never = TargetSpec { unknown_after: None, missing_after: None, ..target("a") };
    let mut world = World::new(settings(one_route()), vec![never]);
    for statuses in [&[("db", Unknown)][..], &[]] {
        observe(&mut world, statuses, &["web"]);
        world.advance(100_000);
        observe(&mut world, statuses, &["web"]);
    }
    assert_eq!((world.news(), world.records.len()), (Vec::new(), 0));
}

#[test]
fn an_alert_about_a_missing_dependency_ends_when_missing_after_becomes_never() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.observe("a", &[("web", Ok), ("db", Critical)]);
    for _ in 0..3 {
        observe(&mut world, &[("up", Ok)], &["db", "web"]);
        world.advance(lasting());
    }
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/web", Firing)]));
    world.targets[0].missing_after = None;
    world.apply(Input::Targets(world.targets.clone()));
    observe(&mut world, &[("up", Ok)], &["db", "web"]);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("a/web", Resolved)]), "the database was critical before");
}

#[test]
fn what_was_critical_once_and_is_unknown_since_alerts_when_that_lasts() {
    let mut world = world(&["a"]);
    observe(&mut world, &[("db", Critical)], &[]);
    for _ in 0..40 {
        observe(&mut world, &[("db", Unknown)], &[]);
        world.advance(30);
    }
    let told = world.heard.clone();
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    assert_eq!((told[0].status, told[0].summary.as_str()), (Critical, "it broke"));
}

#[test]
fn what_is_unknown_explains_nothing_that_is_critical() {
    let mut world = world(&["a"]);
    let report = Report {
        statuses: [("datastore".to_owned(), Unknown), ("group".to_owned(), Critical)].into(),
        runs_on: [("group".to_owned(), vec!["datastore".to_owned()])].into(),
        ..Report::default()
    };
    for _ in 0..3 {
        world.report("a", &report);
        world.advance(30);
    }
    assert_eq!(world.news(), heard(&[("a/group", Firing)]));
    // Once it is critical as well, it explains the other.
    let worse = Report { statuses: report.statuses.keys().map(|name| (name.clone(), Critical)).collect(), ..report };
    world.report("a", &worse);
    let group = Subject::dependency(&id("a"), "group");
    assert_eq!(world.record(&group).unwrap().suppressed_by, Some(Subject::dependency(&id("a"), "datastore")));
}

#[test]
fn an_alert_that_was_acknowledged_is_not_sent_for_the_first_time() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    let subject = Subject::dependency(&id("a"), "db");
    world.apply(Input::Acknowledge { subject: subject.clone(), by: Some("me".to_owned()) });
    world.advance(600);
    assert_eq!(world.news(), []);
    world.apply(Input::Acknowledge { subject, by: None });
    world.advance(600);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn failures_whose_names_change_with_each_report_are_notified() {
    let mut world = world(&["a"]);
    let mut missing: Vec<String> = Vec::new();
    for run in 0..40 {
        let name = format!("job-{run}");
        let before: Vec<&str> = missing.iter().map(String::as_str).collect();
        observe(&mut world, &[(&name, Critical)], &before);
        missing.push(name);
        world.advance(60);
    }
    // Each is missing in the next report, and alerts once that has lasted.
    let expected = (0..24).map(|run| (format!("a/job-{run}"), Firing)).collect::<Vec<_>>();
    assert_eq!(world.news(), expected);
}
