//! Targets that one device of a fleet polls at a time.

use super::*;
use model::{AlertRecord, TargetTraits};
use std::sync::Arc;

fn shared() -> TargetSpec {
    let spec = target("a");
    let traits = TargetTraits { shared_by: Some("shops".to_owned()), ..(*spec.traits).clone() };
    TargetSpec { traits: Arc::new(traits), ..spec }
}

/// A device that stands by.
fn device() -> World {
    let standby = ["shops".to_owned()].into();
    World::new(Settings { standby, ..settings(one_route()) }, Vec::new())
}

/// The device polls the target from now on. `alerts` are those of the device before it.
fn begin(world: &mut World, alerts: Vec<AlertRecord>) {
    configure(world, &[], vec![shared()]);
    world.apply(Input::TakenOver(alerts));
}

/// The device does not poll the target any more.
fn leave(world: &mut World) -> Vec<AlertRecord> {
    let open = world.notifier.records().filter(|record| record.state == AlertState::Firing).cloned().collect();
    configure(world, &["shops"], Vec::new());
    open
}

fn configure(world: &mut World, standby: &[&str], targets: Vec<TargetSpec>) {
    world.settings.standby = standby.iter().map(|name| (*name).to_owned()).collect();
    world.targets.clone_from(&targets);
    world.apply(Input::Settings(world.settings.clone()));
    world.apply(Input::Targets(targets));
}

/// Two devices, of which the first one polls and has notified of an alert.
fn first_fires() -> (World, World) {
    let (mut first, second) = (device(), device());
    begin(&mut first, Vec::new());
    confirm(&mut first, "a", Critical);
    first.advance(60);
    assert_eq!(first.news(), heard(&[("a/db", Firing)]));
    (first, second)
}

#[test]
fn the_next_device_says_how_the_alert_of_the_one_before_ends() {
    let db = Subject::dependency(&id("a"), "db");
    for (status, expected) in [(Ok, heard(&[("a/db", Resolved)])), (Critical, Vec::new())] {
        let (mut first, mut second) = first_fires();
        let since = first.record(&db).unwrap().since;
        begin(&mut second, leave(&mut first));
        assert_eq!(second.state(&db), Some(AlertState::Firing));
        confirm(&mut second, "a", status);
        first.advance(3_000);
        second.advance(3_000);
        assert_eq!(first.news(), [], "it does not know how the alert ends");
        assert_eq!(second.news(), expected);
        assert_eq!(second.record(&db).unwrap().since, since);
        assert!(first.announced.contains(&Action::Firing(db.clone())));
        assert!(!first.announced.contains(&Action::Resolved(db.clone())));
        let fingerprint = second.notifications.last().map(|(_, last)| last.alerts[0].fingerprint.clone());
        let before = first.notifications[0].1.alerts[0].fingerprint.clone();
        assert!(fingerprint.is_none_or(|fingerprint| fingerprint == before));
        assert!(first.announced.contains(&Action::HandedOver(before)));
    }
}

#[test]
fn a_device_that_polls_again_continues_with_what_the_others_left() {
    let (mut first, mut second) = first_fires();
    begin(&mut second, leave(&mut first));
    confirm(&mut second, "a", Ok);
    second.advance(60);
    assert_eq!(second.news(), heard(&[("a/db", Resolved)]));
    // What it notified of before is over: a new failure is news.
    begin(&mut first, leave(&mut second));
    confirm(&mut first, "a", Critical);
    first.advance(400);
    assert_eq!(first.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn a_restart_says_nothing_about_the_end() {
    let (mut first, _) = first_fires();
    let open: Vec<AlertRecord> = first.notifier.records().cloned().collect();
    first.settings.standby = ["shops".to_owned()].into();
    first.targets.clear();
    first.restart();
    first.advance(3_000);
    assert_eq!(first.news(), []);
    begin(&mut first, open);
    confirm(&mut first, "a", Ok);
    first.advance(400);
    assert_eq!(first.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn what_no_receiver_heard_is_notified_once_the_next_device_sees_it() {
    for (status, expected) in [(Ok, Vec::new()), (Critical, heard(&[("a/db", Firing)]))] {
        let (mut first, mut second) = first_fires();
        let mut open = leave(&mut first);
        open[0].notified.clear();
        begin(&mut second, open);
        second.advance(60);
        assert_eq!(second.news(), []);
        confirm(&mut second, "a", status);
        second.advance(400);
        assert_eq!(second.news(), expected);
    }
}

#[test]
fn a_dependency_that_the_next_device_does_not_report_keeps_its_alert() {
    let db = Subject::dependency(&id("a"), "db");
    let (mut first, mut second) = first_fires();
    begin(&mut second, leave(&mut first));
    let without = Report { gone: vec!["db".to_owned()], ..Report::default() };
    for _ in 0..3 {
        second.report("a", &without);
        second.advance(60);
    }
    assert_eq!((second.news(), second.state(&db)), (Vec::new(), Some(AlertState::Firing)));
    let message = second.record(&db).unwrap().message.clone().unwrap();
    assert!(message.starts_with("no longer reported since"), "{message}");
    second.apply(Input::Dismissed(vec![db]));
    second.advance(400);
    assert_eq!(second.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn a_deployment_that_is_withdrawn_ends_its_alerts_with_a_message() {
    let (mut first, _) = first_fires();
    configure(&mut first, &[], Vec::new());
    first.advance(400);
    assert_eq!(first.heard[0].summary, "over because the target was removed, after 1 min");
    assert_eq!(first.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn an_alert_of_a_target_that_this_host_has_not_or_that_fires_here_is_not_taken_over() {
    let db = Subject::dependency(&id("a"), "db");
    let (mut first, mut second) = first_fires();
    let open = leave(&mut first);
    second.apply(Input::TakenOver(open.clone()));
    assert_eq!(second.state(&db), None);
    begin(&mut second, Vec::new());
    confirm(&mut second, "a", Critical);
    second.advance(60);
    second.apply(Input::TakenOver(open));
    second.advance(400);
    assert_eq!(second.news(), heard(&[("a/db", Firing)]));
}
