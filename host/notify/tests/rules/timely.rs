//! When a message is sent: at once where it is news, and later where something else may explain it.

use super::*;
use common::PARENT_WAIT;
use model::Before;
use notify::Unsent;

/// The seconds until a channel hears something; `None` if it does not within an hour.
fn seconds_until_news(world: &mut World) -> Option<u64> {
    (1..3600).find(|_| {
        world.advance(1);
        !world.heard.is_empty()
    })
}

#[test]
fn a_recovery_and_the_first_failure_of_something_else_wait_only_for_the_group() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    assert_eq!(seconds_until_news(&mut world), Some(10));
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
    let both = [("db", Critical), ("web", Critical)];
    world.observe("a", &both);
    world.observe("a", &both);
    assert_eq!(seconds_until_news(&mut world), Some(10));
    assert_eq!(world.news(), heard(&[("a/web", Firing)]));
    let well = [("db", Ok), ("web", Critical)];
    world.observe("a", &well);
    world.observe("a", &well);
    assert_eq!(seconds_until_news(&mut world), Some(10));
    assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
    // It failed a moment ago and waits for the interval: an alert that comes and goes is not heard each time.
    let again = |world: &mut World, status| {
        world.observe("a", &[("db", status), ("web", Critical)]);
        world.observe("a", &[("db", status), ("web", Critical)]);
    };
    again(&mut world, Critical);
    world.advance(200);
    assert_eq!(world.news(), []);
    world.advance(100);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn news_overtake_what_waits_for_the_interval() {
    let mut world = world(&["a"]);
    for status in [Critical, Ok, Critical] {
        confirm(&mut world, "a", status);
        world.advance(20);
    }
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Resolved)]), "the third waits");
    let both = [("db", Critical), ("web", Critical)];
    world.observe("a", &both);
    world.observe("a", &both);
    world.advance(10);
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/web", Firing)]), "both in one message");
}

#[test]
fn a_parent_that_fails_a_moment_later_than_its_child_explains_it() {
    for (delay, expected) in [
        (0, &[("router/db", Firing)][..]),
        (20, &[("router/db", Firing)]),
        (PARENT_WAIT.as_secs() + 60, &[("nas/db", Firing), ("router/db", Firing)]),
    ] {
        let needs_router = TargetSpec { depends_on: vec![(id("router"), None)], ..target("nas") };
        let mut world = World::new(settings(one_route()), vec![target("router"), needs_router]);
        confirm(&mut world, "router", Ok);
        confirm(&mut world, "nas", Critical);
        world.advance(delay);
        confirm(&mut world, "router", Critical);
        world.advance(600);
        assert_eq!(world.news(), heard(expected), "{delay} s later");
    }
    // Without a parent, nothing waits.
    let mut alone = world(&["nas"]);
    confirm(&mut alone, "nas", Critical);
    assert_eq!(seconds_until_news(&mut alone), Some(10));
}

#[test]
fn a_parent_that_was_down_before_a_restart_explains_what_fails_after_it() {
    let needs_router = TargetSpec { depends_on: vec![(id("router"), None)], ..target("nas") };
    let mut world = World::new(settings(one_route()), vec![target("router"), needs_router]);
    confirm(&mut world, "router", Critical);
    world.advance(60);
    world.targets[0].was_down = true;
    world.restart();
    confirm(&mut world, "nas", Critical);
    world.advance(600);
    assert_eq!(world.news(), heard(&[("router/db", Firing)]));
}

#[test]
fn after_the_start_a_failure_needs_one_more_report_and_all_are_one_message() {
    let grace = Settings { startup_grace: Duration::from_secs(120), ..settings(one_route()) };
    let names = ["a", "b", "c", "d"];
    let mut world = World::new(grace, names.iter().map(|name| target(name)).collect());
    for name in names {
        confirm(&mut world, name, Critical);
    }
    world.fail("d", true, Some("refused"));
    assert!(world.records.values().all(|record| record.state == AlertState::Pending), "two reports are not enough");
    for name in names {
        world.observe(name, &[("db", Critical)]);
    }
    world.advance(15);
    assert_eq!((world.notifications.len(), world.heard.len()), (1, 4), "one message: {:?}", world.heard);
    world.advance(120);
    world.news();
    // Later, each target has its own message, after two reports.
    for name in names {
        world.observe(name, &[("db", Critical), ("web", Critical)]);
        world.observe(name, &[("db", Critical), ("web", Critical)]);
    }
    world.advance(15);
    assert_eq!((world.notifications.len(), world.heard.len()), (5, 4));
}

#[test]
fn an_alert_without_an_acknowledgement_escalates() {
    let late = |world: &mut World| {
        let channel = "boss".to_owned();
        world.settings.channels.insert(channel.clone(), world.settings.channels["ops"]);
        let after = Some(Duration::from_secs(900));
        let route = Route { unless_acknowledged: after, ..Route::new("late", matchers(&[]), vec![channel]) };
        world.settings.routes.insert(0, route);
        world.apply(Input::Settings(world.settings.clone()));
    };
    let of_boss = |world: &mut World| -> Vec<AlertEvent> {
        let heard = std::mem::take(&mut world.heard);
        heard.into_iter().filter(|heard| heard.channel == "boss").map(|heard| heard.event).collect()
    };
    let acknowledge = |world: &mut World, by: Option<&str>| {
        let (subject, by) = (Subject::dependency(&id("a"), "db"), by.map(str::to_owned));
        world.apply(Input::Acknowledge { subject, by });
    };
    let mut world = world(&["a"]);
    late(&mut world);
    confirm(&mut world, "a", Critical);
    world.advance(880);
    assert_eq!(of_boss(&mut world), [], "there is time left");
    world.restart();
    world.advance(40);
    assert_eq!(of_boss(&mut world), [Firing]);
    confirm(&mut world, "a", Ok);
    world.advance(20);
    assert_eq!(of_boss(&mut world), [Resolved]);

    world.advance(1200);
    confirm(&mut world, "a", Critical);
    acknowledge(&mut world, Some("me"));
    world.advance(3600);
    assert_eq!(of_boss(&mut world), [], "an operator has seen it");
    acknowledge(&mut world, None);
    world.advance(20);
    assert_eq!(of_boss(&mut world), [Firing], "that was taken back");
}

#[test]
fn the_end_of_an_alert_that_fired_again_does_not_wait_for_the_interval() {
    let mut world = world(&["a"]);
    let both = |world: &mut World, db: model::Status, web: model::Status| {
        for _ in 0..2 {
            world.observe("a", &[("db", db), ("web", web)]);
            world.advance(1);
        }
        world.advance(10);
        world.news()
    };
    assert_eq!(both(&mut world, Critical, Ok), heard(&[("a/db", Firing)]));
    assert_eq!(both(&mut world, Ok, Ok), heard(&[("a/db", Resolved)]));
    assert_eq!(both(&mut world, Critical, Ok), []);
    // The first failure of something else takes it along.
    assert_eq!(both(&mut world, Critical, Critical), heard(&[("a/db", Firing), ("a/web", Firing)]));
    assert_eq!(both(&mut world, Ok, Critical), heard(&[("a/db", Resolved)]));
}

#[test]
fn a_configuration_that_changes_often_delays_nothing() {
    let mut world = world(&["a"]);
    confirm(&mut world, "a", Critical);
    for _ in 0..5 {
        world.advance(2);
        world.apply(Input::Settings(world.settings.clone()));
    }
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn what_was_acknowledged_or_silenced_before_it_arrived_is_not_sent_again() {
    let db = Subject::dependency(&id("a"), "db");
    for (is_acknowledged, before) in
        [(true, Before::Unknown), (false, Before::Unknown), (true, Before::Nothing), (false, Before::Nothing)]
    {
        let mut world = world(&["a"]);
        confirm(&mut world, "a", Critical);
        world.advance(20);
        assert_eq!(world.news(), heard(&[("a/db", Firing)]));
        let fingerprint = world.notifications[0].1.alerts[0].fingerprint.clone();
        match is_acknowledged {
            true => world.apply(Input::Acknowledge { subject: db.clone(), by: Some("me".to_owned()) }),
            false => {
                let (start, end) = (world.now.wall, world.now.wall.after(Duration::from_secs(600)));
                let silence = Silence {
                    id: "s".to_owned(),
                    matchers: matchers(&[("target", "a")]),
                    time: SilenceTime::Once(start, end),
                    author: String::new(),
                    comment: String::new(),
                };
                world.apply(Input::Silences(vec![silence]));
            }
        }
        assert!(world.announced.contains(&Action::Withdraw(fingerprint)));
        let unsent = Unsent { channel: "ops".to_owned(), subject: db.clone(), before: before.clone() };
        world.apply(Input::NotSent(vec![unsent]));
        confirm(&mut world, "a", Critical);
        world.advance(60);
        assert_eq!(world.news(), []);
        confirm(&mut world, "a", Ok);
        world.advance(20);
        // A channel that heard nothing of the alert hears nothing of its end.
        let end: &[(&str, AlertEvent)] = if before == Before::Nothing { &[] } else { &[("a/db", Resolved)] };
        assert_eq!(world.news(), heard(end));
    }
}

#[test]
fn what_became_worse_before_it_was_acknowledged_is_not_sent_afterwards() {
    let targets = || vec![TargetSpec { alerts_on_warnings: true, ..target("a") }];
    for is_acknowledged in [false, true] {
        let mut world = World::new(settings(one_route()), targets());
        confirm(&mut world, "a", Warning);
        world.advance(20);
        assert_eq!(world.news(), heard(&[("a/db", Firing)]));
        confirm(&mut world, "a", Critical);
        let subject = Subject::dependency(&id("a"), "db");
        let by = is_acknowledged.then(|| "me".to_owned());
        world.apply(Input::Acknowledge { subject: subject.clone(), by });
        world.advance(600);
        let told: &[(&str, AlertEvent)] = if is_acknowledged { &[] } else { &[("a/db", Firing)] };
        assert_eq!(world.news(), heard(told));
        world.apply(Input::Acknowledge { subject, by: None });
        world.advance(600);
        let told: &[(&str, AlertEvent)] = if is_acknowledged { &[("a/db", Firing)] } else { &[] };
        assert_eq!(world.news(), heard(told), "the acknowledgement was taken back");
        confirm(&mut world, "a", Ok);
        world.advance(600);
        assert_eq!(world.news(), heard(&[("a/db", Resolved)]));
    }
}

#[test]
fn the_end_of_an_alert_is_told_if_only_messages_about_a_later_episode_were_withdrawn() {
    let subject = Subject::dependency(&id("a"), "db");
    let unsent =
        |before: &Before| Unsent { channel: "ops".to_owned(), subject: subject.clone(), before: before.clone() };
    // The number of messages that were sent, and whether the channel has the alert open then.
    for (sent, is_open) in [(0, false), (1, true), (2, false), (3, true)] {
        let mut world = world(&["a"]);
        let mut befores = Vec::new();
        for status in [Critical, Ok, Critical, Ok] {
            confirm(&mut world, "a", status);
            world.advance(400);
            befores.push(world.notifications.last().unwrap().1.alerts[0].before.clone());
        }
        assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Resolved), ("a/db", Firing), ("a/db", Resolved)]));
        world.advance(600);
        // A third episode, of which nothing was made yet.
        world.observe("a", &[("db", Critical)]);
        world.apply(Input::Acknowledge { subject: subject.clone(), by: Some("me".to_owned()) });
        world.apply(Input::NotSent(befores[sent..].iter().map(unsent).collect()));
        confirm(&mut world, "a", Critical);
        world.advance(400);
        assert_eq!(world.news(), []);
        confirm(&mut world, "a", Ok);
        world.advance(400);
        let end: &[(&str, AlertEvent)] = if is_open { &[("a/db", Resolved)] } else { &[] };
        assert_eq!(world.news(), heard(end), "{sent}");
    }
}

#[test]
fn of_several_messages_that_are_not_sent_the_first_one_says_what_the_channel_knows() {
    let db = Subject::dependency(&id("a"), "db");
    for (first, end) in [(Before::Nothing, None), (Before::Unknown, Some(("a/db", Resolved)))] {
        let mut world = world(&["a"]);
        confirm(&mut world, "a", Critical);
        world.advance(20);
        let told = world.notifier.record(&db).unwrap().notified[0].clone();
        let befores = [first.clone(), Before::Message(told)];
        let unsent = befores.map(|before| Unsent { channel: "ops".to_owned(), subject: db.clone(), before });
        world.apply(Input::Acknowledge { subject: db.clone(), by: Some("me".to_owned()) });
        // The second one alone: the first one was sent.
        world.apply(Input::NotSent(vec![unsent[1].clone()]));
        assert_eq!(world.notifier.record(&db).unwrap().notified[0].event, Firing);
        world.apply(Input::NotSent(unsent.to_vec()));
        world.news();
        confirm(&mut world, "a", Ok);
        world.advance(20);
        assert_eq!(world.news(), heard(end.as_slice()), "{first:?}");
    }
}

#[test]
fn what_is_worse_than_before_does_not_wait_for_the_interval() {
    let mut world = World::new(settings(one_route()), vec![TargetSpec { alerts_on_warnings: true, ..target("a") }]);
    for status in [Warning, Ok] {
        confirm(&mut world, "a", status);
        world.advance(20);
    }
    assert_eq!(world.news(), heard(&[("a/db", Firing), ("a/db", Resolved)]));
    confirm(&mut world, "a", Warning);
    world.advance(20);
    assert_eq!(world.news(), [], "it waits for the interval");
    confirm(&mut world, "a", Critical);
    world.advance(20);
    assert_eq!(world.news(), heard(&[("a/db", Firing)]));
}
