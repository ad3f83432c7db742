//! Each rule of notifying, by scenarios.

mod common;
#[path = "rules/explained.rs"]
mod explained;
#[path = "rules/shared.rs"]
mod shared;
#[path = "rules/timely.rs"]
mod timely;
#[path = "rules/vague.rs"]
mod vague;

use common::{Report, World, id, matchers, one_route, settings, target};
use model::AlertEvent::{Firing, Flapping, Repeated, Resolved};
use model::Status::{Critical, Ok, Unknown, Warning};
use model::{AlertEvent, AlertState, Class, Subject};
use notify::{Action, ChannelTraits, Input, NETWORK, Route, Settings, Silence, SilenceTime, TargetSpec, Trouble};
use std::collections::BTreeMap;
use std::time::Duration;

fn world(targets: &[&str]) -> World {
    World::new(settings(one_route()), targets.iter().map(|name| target(name)).collect())
}

/// Reports the same state twice, which confirms it.
fn confirm(world: &mut World, target: &str, status: model::Status) {
    world.observe(target, &[("db", status)]);
    world.advance(1);
    world.observe(target, &[("db", status)]);
}

fn heard(expected: &[(&str, AlertEvent)]) -> Vec<(String, AlertEvent)> {
    expected.iter().map(|(subject, event)| ((*subject).to_owned(), *event)).collect()
}

#[test]
fn two_reports_confirm_and_two_end_an_alert() {
    let mut world = world(&["a"]);
    let subject = Subject::dependency(&id("a"), "db");
    world.observe("a", &[("db", Critical)]);
    let since = world.now.wall;
    assert_eq!(world.state(&subject), Some(AlertState::Pending));
    world.advance(5);
    world.observe("a", &[("db", Critical)]);
    assert_eq!((world.state(&subject), world.record(&subject).unwrap().since), (Some(AlertState::Firing), since));
    world.advance(9);
    assert_eq!(world.news(), []);
    world.advance(1);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    world.observe("a", &[("db", Ok)]);
    world.observe("a", &[("db", Critical)]);
    world.observe("a", &[("db", Ok)]);
    assert_eq!(world.state(&subject), Some(AlertState::Firing));
    world.observe("a", &[("db", Unknown)]);
    world.observe("a", &[("db", Warning)]);
    assert_eq!(world.state(&subject), Some(AlertState::Firing), "it was not seen between them");
    world.observe("a", &[("db", Warning)]);
    assert_eq!(world.state(&subject), Some(AlertState::Resolved));
    world.advance(300);
    let last = world.heard.last().unwrap();
    assert_eq!((last.summary.as_str(), last.status), ("only a warning now, after 15 s", Ok));
    assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
    let announced = [Action::Firing(subject.clone()), Action::Resolved(subject)];
    assert_eq!(world.announced, announced);
}

#[test]
fn one_bad_report_is_not_notified_and_leaves_nothing() {
    let mut world = world(&["a"]);
    for _ in 0..5 {
        world.observe("a", &[("db", Critical)]);
        world.observe("a", &[("db", Ok)]);
    }
    world.advance(3600);
    assert_eq!((world.news(), world.records.len()), (Vec::new(), 0));
}

#[test]
fn targets_and_routes_set_the_number_of_reports() {
    let route = |name, condition, confirm| Route {
        confirm: Some(confirm),
        ..Route::new(name, matchers(&[condition]), vec!["ops".to_owned()])
    };
    let routes = vec![route("one", ("target", "b"), 1), route("three", ("target", "=~.*"), 3)];
    let targets = vec![target("a"), target("b"), TargetSpec { confirm: Some(4), ..target("c") }];
    let mut world = World::new(settings(routes), targets);
    let mut first = BTreeMap::new();
    for count in 1..5 {
        for name in ["a", "b", "c"] {
            world.observe(name, &[("db", Critical)]);
            if world.state(&Subject::dependency(&id(name), "db")) == Some(AlertState::Firing) {
                first.entry(name).or_insert(count);
            }
        }
    }
    assert_eq!(first, BTreeMap::from([("a", 3), ("b", 1), ("c", 4)]));
}

#[test]
fn an_unreachable_target_is_one_alert() {
    let mut world = world(&["a"]);
    let all = [("x", Critical), ("y", Critical), ("z", Ok)];
    world.observe("a", &all);
    world.fail("a", true, None);
    world.fail("a", true, Some("connection refused"));
    world.advance(600);
    assert_eq!(world.heard[0].summary, "cannot be polled: connection refused");
    assert_eq!(world.news(), heard(&[("a", Firing)]));
    // Back, and still broken: the alerts behind it are notified after the reports that confirm them.
    world.observe("a", &all);
    world.advance(5);
    world.observe("a", &all);
    world.advance(600);
    assert_eq!(world.news(), heard(&[("a/x", Firing), ("a/y", Firing), ("a", Resolved)]));
}

#[test]
fn the_same_report_again_confirms_what_was_held_back() {
    for is_at_once in [false, true] {
        let needs_router = TargetSpec { depends_on: vec![(id("router"), None)], ..target("nas") };
        let mut world = World::new(settings(one_route()), vec![target("router"), needs_router]);
        world.fail("router", false, Some("timeout"));
        for _ in 0..4 {
            confirm(&mut world, "nas", Critical);
        }
        world.advance(60);
        assert_eq!(world.news(), heard(&[("router", Firing)]));
        world.observe("router", &[("db", Ok)]);
        world.advance(1);
        if is_at_once {
            // A report of the same moment that the notifier need not read.
            world.observe("nas", &[("db", Critical)]);
            world.observe("router", &[("db", Ok)]);
        } else {
            world.observe("router", &[("db", Ok)]);
            world.advance(60);
            assert_eq!(world.news(), heard(&[("router", Resolved)]), "nothing confirms the other");
            world.observe("nas", &[("db", Critical)]);
        }
        world.advance(60);
        assert!(world.news().contains(&("nas/db".to_owned(), Firing)), "at once: {is_at_once}");
    }
}

#[test]
fn silences_hold_back_and_end() {
    let mut world = world(&["a", "b"]);
    confirm(&mut world, "b", Critical);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("b/db", Firing)]));
    let (from, to) = (world.now.wall, world.now.wall.after(Duration::from_secs(3600)));
    let silence = |conditions: &[(&str, &str)]| Silence {
        id: "s1".to_owned(),
        matchers: matchers(conditions),
        time: SilenceTime::Once(from, to),
        author: "me".to_owned(),
        comment: "update".to_owned(),
    };
    world.apply(Input::Silences(vec![silence(&[("target", "=~a|b")])]));
    confirm(&mut world, "a", Critical);
    confirm(&mut world, "b", Ok);
    world.advance(1800);
    assert_eq!(world.record(&Subject::dependency(&id("a"), "db")).unwrap().silenced_by.as_deref(), Some("s1"));
    // A notified alert is resolved, silence or not.
    assert_eq!(world.news(), heard(&[("b/db", Resolved)]));
    world.advance(1900);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    assert_eq!(world.notifier.active_silences().count(), 0);
}

#[test]
fn alerts_repeat_until_they_are_acknowledged_or_get_worse() {
    let targets = vec![TargetSpec { alerts_on_warnings: true, ..target("a") }];
    let mut world = World::new(settings(one_route()), targets);
    confirm(&mut world, "a", Warning);
    world.advance(9 * 3600);
    assert_eq!(world.heard[1].summary, "still, for 4 h: it broke");
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Repeated), ("a/db", Repeated)]));
    let subject = Subject::dependency(&id("a"), "db");
    world.apply(Input::Acknowledge { subject: subject.clone(), by: Some("me".to_owned()) });
    world.advance(20 * 3600);
    assert_eq!(world.news(), []);
    world.observe("a", &[("db", Critical)]);
    world.advance(60);
    assert_eq!(world.heard[0].status, Critical);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    assert_eq!(world.record(&subject).unwrap().acknowledged, None);
    world.advance(4 * 3600);
    assert_eq!(world.news(), heard(&[("a/db", Repeated)]));
}

#[test]
fn a_repetition_has_the_texts_of_the_last_report() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.advance(60);
    for (texts, title, summary) in [
        ((None, Some("refused")), "db", "still, for 4 h: refused"),
        ((Some("Database"), Some("refused")), "Database", "still, for 8 h: refused"),
        ((None, None), "db", "still, for 12 h: it broke"),
    ] {
        world.report("a", &Report { statuses: [("db".to_owned(), Critical)].into(), texts, ..Report::default() });
        world.advance(4 * 3600);
        let (_, last) = world.notifications.last().unwrap();
        assert_eq!((last.alerts[0].title.as_str(), last.alerts[0].summary.as_str()), (title, summary));
    }
}

#[test]
fn readers_share_the_records_of_alerts_until_they_change() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.advance(60);
    let subject = Subject::dependency(&id("a"), "db");
    let is_shared = |world: &World| std::ptr::eq(&raw const *world.records[&subject], world.record(&subject).unwrap());
    assert!(is_shared(&world));
    world.apply(Input::Targets(vec![target("a")]));
    world.observe("a", &[("db", Critical)]);
    assert!(is_shared(&world), "nothing changed");
    world.restart();
    assert!(is_shared(&world), "nothing changed over a restart");
}

#[test]
fn a_flapping_hour_is_three_messages_and_one_at_its_end() {
    let names: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for last in [Critical, Ok] {
        let mut world = world(&names);
        for minute in 0..60 {
            let status = if minute % 2 == 0 { Critical } else { Ok };
            for wait in [1, 59] {
                names.iter().for_each(|name| world.observe(name, &[("db", status)]));
                world.advance(wait);
            }
        }
        let during = world.heard.len();
        for name in &names {
            confirm(&mut world, name, last);
        }
        world.advance(3600);
        let mut of: BTreeMap<&Subject, Vec<AlertEvent>> = BTreeMap::new();
        world.heard.iter().for_each(|heard| of.entry(&heard.subject).or_default().push(heard.event));
        assert_eq!(of.len(), 100);
        for (subject, events) in of {
            // The first failure, its recovery, that it flaps, and the truth.
            assert!(events.len() <= 4 && events.contains(&Flapping), "{subject}: {events:?}");
            assert_eq!(*events.last().unwrap(), if last == Ok { Resolved } else { Firing }, "{subject}");
        }
        assert!(during <= 300, "{during}");
        println!("100 alerts that change 60 times in an hour, {last:?} at the end: {} messages", world.heard.len());
    }
}

#[test]
fn a_storm_is_one_notification_a_minute() {
    let names: Vec<String> = (0..10_000).map(|number| format!("t{number}")).collect();
    let targets: Vec<TargetSpec> = names
        .iter()
        .map(|name| TargetSpec { host: None, confirm: Some(1), recover: Some(1), ..target(name) })
        .collect();
    let mut world = World::new(settings(one_route()), targets.clone());
    for (place, name) in names.iter().enumerate() {
        world.observe(name, &[("db", Critical)]);
        if place % 100 == 99 {
            world.advance(1);
        }
    }
    world.advance(600);
    let minutes: Vec<u64> =
        world.notifications.iter().map(|(at, _)| at.moment.as_nanos().unsigned_abs() / 60_000_000_000).collect();
    let mut single = minutes.clone();
    single.dedup();
    assert_eq!(minutes, single, "at most one a minute");
    let count =
        |(_, notification): &(_, model::Notification)| notification.alerts.len() + notification.omitted as usize;
    assert_eq!(world.notifications.iter().map(count).sum::<usize>(), 10_000);
    let counted = world.notifications.iter().map(|(_, notification)| notification.unlisted.len());
    assert_eq!(counted.sum::<usize>() + world.heard.len(), 10_000, "what is only counted is known");
    assert!(world.notifications.iter().all(|(_, notification)| notification.alerts.len() <= 100));
    let (messages, listed) = (world.notifications.len(), world.heard.len());
    println!("10,000 alerts within 100 s: {messages} notifications, which list {listed}");
    // A receiver that groups alerts gets each alert.
    let channels = BTreeMap::from([("ops".to_owned(), ChannelTraits { needs_every_alert: true })]);
    let mut world = World::new(Settings { channels, ..settings(one_route()) }, targets);
    names.iter().for_each(|name| world.observe(name, &[("db", Critical)]));
    world.advance(600);
    assert_eq!((world.notifications.len(), world.heard.len()), (100, 10_000));
}

#[test]
fn the_end_of_an_alert_says_how_it_ended() {
    for (status, summary) in [(Ok, "recovered after 1 min"), (Warning, "only a warning now, after 1 min")] {
        let mut world = world(&["a"]);
        confirm(&mut world, "a", Critical);
        world.advance(60);
        confirm(&mut world, "a", status);
        world.advance(600);
        let last = world.heard.last().unwrap();
        assert_eq!((last.event, last.summary.as_str(), last.status), (Resolved, summary, Ok));
    }
}

#[test]
fn frequent_news_of_one_group_holds_back_no_other() {
    let mut route = one_route();
    route[0].group_wait = Duration::from_millis(500);
    let mut world = World::new(settings(route), vec![target("a"), target("b")]);
    for number in 0..14 {
        let failed: Vec<(String, model::Status)> = (0..=number).map(|at| (format!("d{at}"), Critical)).collect();
        let failed: Vec<(&str, model::Status)> = failed.iter().map(|(name, status)| (name.as_str(), *status)).collect();
        for _ in 0..2 {
            world.observe("a", &failed);
        }
        world.advance(2);
    }
    assert!(world.notifications.len() > 11, "{}", world.notifications.len());
    world.news();
    confirm(&mut world, "b", Critical);
    world.advance(2);
    assert_eq!(world.news(), heard(&[("b/db", Firing)]));
}

#[test]
fn a_full_channel_is_told_the_state_at_the_end() {
    let mut world = world(&["a", "b"]);
    world.apply(Input::Undelivered("ops".to_owned(), notify::MAX_OPEN));
    confirm(&mut world, "a", Critical);
    confirm(&mut world, "b", Critical);
    world.advance(600);
    confirm(&mut world, "a", Ok);
    world.advance(600);
    assert_eq!(world.news(), []);
    world.apply(Input::Undelivered("ops".to_owned(), 3));
    world.advance(20);
    assert_eq!(world.news(), heard(&[("b/db", Firing)]));
}

#[test]
fn a_blind_host_says_that_it_is_blind() {
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = world(&names);
    names.iter().for_each(|name| world.observe(name, &[("db", Ok)]));
    world.advance(10);
    for _ in 0..3 {
        names.iter().for_each(|name| world.fail(name, true, Some("no route to host")));
        world.advance(5);
    }
    world.restart();
    world.advance(3600);
    assert_eq!(world.news(), heard(&[(&format!("host {NETWORK}"), Firing)]));
    for status in [Ok, Ok] {
        names.iter().take(19).for_each(|name| world.observe(name, &[("db", status)]));
        world.advance(10);
    }
    world.advance(100);
    assert_eq!(world.news(), heard(&[(&format!("host {NETWORK}"), Resolved)]));
    // One host did not come back.
    world.fail("t19", true, Some("no route to host"));
    world.advance(400);
    assert_eq!(world.news(), heard(&[("t19", Firing)]));
    println!("20 targets fail together for an hour, and 19 recover: {} notifications", world.notifications.len());
}

#[test]
fn troubles_of_a_class_are_a_complete_list() {
    let mut world = world(&["a"]);
    let trouble = |name: &str| Trouble { name: name.to_owned(), title: format!("{name} is refused"), message: None };
    world.apply(Input::Troubles(Class::Plugin, vec![trouble("x"), trouble("y")]));
    world.advance(20);
    assert_eq!(world.news(), heard(&[("plugin x", Firing), ("plugin y", Firing)]));
    let reworded = Trouble { message: Some("2 targets are not polled".to_owned()), ..trouble("y") };
    world.apply(Input::Troubles(Class::Plugin, vec![trouble("x"), reworded.clone()]));
    assert_eq!(world.records[&Subject::Other(Class::Plugin, "y".into())].message, reworded.message);
    world.restart();
    world.apply(Input::Troubles(Class::Plugin, vec![trouble("y")]));
    world.advance(400);
    assert_eq!(world.news(), heard(&[("plugin x", Resolved)]));
}

#[test]
fn removed_and_disabled_targets_are_resolved() {
    let mut world = world(&["a", "b", "c"]);
    ["a", "b", "c"].into_iter().for_each(|name| confirm(&mut world, name, Critical));
    world.observe("c", &[]);
    world.advance(60);
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("b/db", Firing), ("c/db", Firing)]));
    world.targets = vec![TargetSpec { is_enabled: false, ..target("b") }];
    world.restart();
    world.advance(400);
    let summaries: Vec<&str> = world.heard.iter().map(|heard| heard.summary.as_str()).collect();
    let why = ["the target was removed", "it was disabled", "the target was removed"];
    assert_eq!(summaries, why.map(|why| format!("over because {why}, after 1 min")));
}

#[test]
fn a_route_that_changes_still_resolves() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    world.advance(60);
    world.settings.routes = vec![Route::new("other", matchers(&[("target", "b")]), vec!["ops".to_owned()])];
    world.apply(Input::Settings(world.settings.clone()));
    confirm(&mut world, "a", Ok);
    world.advance(400);
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Resolved)]));
}

#[test]
fn a_restart_neither_repeats_nor_loses() {
    let mut world = world(&["a", "b"]);
    confirm(&mut world, "a", Critical);
    world.restart();
    world.advance(30);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    world.restart();
    world.advance(30);
    confirm(&mut world, "a", Ok);
    world.restart();
    world.advance(3600);
    assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
    let numbers: Vec<u64> = world.notifications.iter().map(|(_, notification)| notification.number).collect();
    assert_eq!(numbers, [1, 2]);
    let ids: Vec<&str> = world.notifications.iter().map(|(_, notification)| notification.id.as_str()).collect();
    assert!(ids[0].starts_with("test-") && ids[0].ends_with("-1") && ids[1].ends_with("-2"), "{ids:?}");
}

#[test]
fn a_restart_keeps_the_interval_of_a_group() {
    let mut world = world(&["a"]);
    for status in [Critical, Ok] {
        confirm(&mut world, "a", status);
        world.advance(20);
    }
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Resolved)]));
    world.restart();
    confirm(&mut world, "a", Critical);
    world.advance(200);
    assert_eq!(world.news(), []);
    world.advance(100);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}
