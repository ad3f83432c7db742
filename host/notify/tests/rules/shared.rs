//! Targets that one device of a fleet polls at a time.

use super::*;
use fleet::wire::OpenAlert;
use model::{AlertRecord, Before, LastPoller, TargetTraits};
use notify::{TakenOver, Unsent};
use proptest::prelude::*;
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

/// The device polls the target from now on. `alerts` are those of the last device.
fn begin(world: &mut World, alerts: Vec<AlertRecord>, by: LastPoller) {
    configure(world, &[], vec![shared()]);
    world.apply(Input::TakenOver(TakenOver { deployment: "shops".to_owned(), alerts, by }));
}

/// The alerts in the record of the device that polls.
fn recorded(world: &World) -> Vec<AlertRecord> {
    let open = world.notifier.records().filter_map(|record| OpenAlert::from_record(record, |_| false));
    open.filter_map(OpenAlert::into_record).collect()
}

/// The device does not poll the target any more. Returns its record.
fn leave(world: &mut World) -> Vec<AlertRecord> {
    let open = recorded(world);
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
    begin(&mut first, Vec::new(), LastPoller::ThisDevice);
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
        begin(&mut second, leave(&mut first), LastPoller::Another);
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
    begin(&mut second, leave(&mut first), LastPoller::Another);
    confirm(&mut second, "a", Ok);
    second.advance(60);
    assert_eq!(second.news(), heard(&[("a/db", Resolved)]));
    // Its earlier message is about another episode: a new failure is news.
    begin(&mut first, leave(&mut second), LastPoller::Another);
    confirm(&mut first, "a", Critical);
    first.advance(400);
    assert_eq!(first.news(), heard(&[("a/db", Firing)]));
}

#[test]
fn a_restart_says_nothing_about_the_end() {
    let (mut first, _) = first_fires();
    first.settings.standby = ["shops".to_owned()].into();
    first.targets.clear();
    first.restart();
    first.advance(3_000);
    assert_eq!(first.news(), []);
    begin(&mut first, Vec::new(), LastPoller::ThisDevice);
    confirm(&mut first, "a", Ok);
    first.advance(400);
    assert_eq!(first.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn an_episode_that_a_restart_interrupts_keeps_its_start_and_acknowledgement() {
    let db = Subject::dependency(&id("a"), "db");
    let (mut first, _) = first_fires();
    first.apply(Input::Acknowledge { subject: db.clone(), by: Some("me".to_owned()) });
    let since = first.record(&db).unwrap().since;
    first.settings.standby = ["shops".to_owned()].into();
    first.targets.clear();
    first.restart();
    first.advance(20);
    // It polls before it has read the record.
    configure(&mut first, &[], vec![shared()]);
    confirm(&mut first, "a", Critical);
    first.apply(Input::TakenOver(TakenOver {
        deployment: "shops".to_owned(),
        alerts: Vec::new(),
        by: LastPoller::ThisDevice,
    }));
    first.advance(400);
    let record = first.record(&db).unwrap();
    assert_eq!((record.since, record.acknowledged.is_some()), (since, true));
    assert_eq!(first.news(), []);
}

#[test]
fn what_no_receiver_heard_is_notified_once_the_next_device_sees_it() {
    for (status, expected) in [(Ok, Vec::new()), (Critical, heard(&[("a/db", Firing)]))] {
        let (mut first, mut second) = first_fires();
        let mut open = leave(&mut first);
        open[0].notified.clear();
        begin(&mut second, open, LastPoller::Another);
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
    begin(&mut second, leave(&mut first), LastPoller::Another);
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
fn an_alert_of_another_deployment_or_of_a_target_of_this_host_is_not_taken_over() {
    let db = Subject::dependency(&id("a"), "db");
    let (mut first, mut second) = first_fires();
    let open = leave(&mut first);
    configure(&mut second, &[], vec![target("a")]);
    second.apply(Input::TakenOver(TakenOver {
        deployment: "shops".to_owned(),
        alerts: open.clone(),
        by: LastPoller::Another,
    }));
    assert_eq!(second.state(&db), None);
    begin(&mut second, Vec::new(), LastPoller::Another);
    let foreign = TakenOver { deployment: "others".to_owned(), alerts: open, by: LastPoller::Another };
    second.apply(Input::TakenOver(foreign));
    assert_eq!(second.state(&db), None);
}

#[test]
fn an_alert_that_fires_here_already_keeps_the_start_and_the_channels_of_both() {
    let db = Subject::dependency(&id("a"), "db");
    let (mut first, mut second) = first_fires();
    let open = leave(&mut first);
    begin(&mut second, Vec::new(), LastPoller::Another);
    second.advance(100);
    confirm(&mut second, "a", Critical);
    second.advance(60);
    assert_eq!(second.news(), heard(&[("a/db", Firing)]));
    second.apply(Input::TakenOver(TakenOver {
        deployment: "shops".to_owned(),
        alerts: open.clone(),
        by: LastPoller::Another,
    }));
    second.advance(400);
    assert_eq!((second.news(), second.record(&db).unwrap().since), (Vec::new(), open[0].since));
}

#[test]
fn the_alerts_of_a_target_that_was_removed_meanwhile_are_over_with_a_message() {
    let (mut first, mut second) = first_fires();
    let open = leave(&mut first);
    configure(&mut second, &[], vec![target("b")]);
    let taken = TakenOver { deployment: "shops".to_owned(), alerts: open, by: LastPoller::Another };
    second.apply(Input::TakenOver(taken));
    second.advance(60);
    let last = second.notifications.last().unwrap().1.alerts[0].clone();
    assert_eq!(last.fingerprint, first.notifications[0].1.alerts[0].fingerprint);
    assert!(last.summary.starts_with("over because the target was removed"), "{}", last.summary);
    assert_eq!(second.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn without_a_record_a_device_notifies_again_and_says_the_end() {
    for (status, event) in [(Ok, Resolved), (Critical, Firing)] {
        let (mut first, _) = first_fires();
        leave(&mut first);
        begin(&mut first, Vec::new(), LastPoller::Unknown);
        confirm(&mut first, "a", status);
        first.advance(400);
        assert_eq!(first.news(), heard(&[("a/db", event)]));
    }
}

#[test]
fn a_message_that_was_dropped_is_sent_again_once_the_device_polls_again() {
    for (status, event) in [(Ok, Resolved), (Critical, Firing)] {
        let (mut first, _) = first_fires();
        leave(&mut first);
        let subject = Subject::dependency(&id("a"), "db");
        first.apply(Input::NotSent(vec![Unsent { channel: "ops".to_owned(), subject, before: Before::Unknown }]));
        begin(&mut first, Vec::new(), LastPoller::ThisDevice);
        confirm(&mut first, "a", status);
        first.advance(400);
        assert_eq!(first.news(), heard(&[("a/db", event)]));
    }
}

#[test]
fn an_end_that_waits_is_told_by_the_next_device_and_not_by_the_last_one() {
    let (mut first, mut second) = first_fires();
    confirm(&mut first, "a", Ok);
    begin(&mut second, leave(&mut first), LastPoller::Another);
    first.advance(400);
    assert_eq!(first.news(), []);
    confirm(&mut second, "a", Ok);
    second.advance(400);
    assert_eq!(second.news(), heard(&[("a/db", Resolved)]));
}

#[test]
fn a_target_that_is_no_longer_shared_is_notified_of_as_a_new_one() {
    let (mut first, _) = first_fires();
    leave(&mut first);
    configure(&mut first, &[], vec![target("a")]);
    confirm(&mut first, "a", Critical);
    first.advance(400);
    assert_eq!(first.news(), heard(&[("a/db", Firing)]));
}

/// An event for two devices, of which one polls.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Poll,
    /// The service breaks, or works again.
    Turn,
    /// The other device polls from now on.
    Move,
    /// The device that polls is killed and started again, and polls again.
    Restart,
    /// The device that polls is killed, and the other one polls. It is started again later.
    Die,
    /// The broker is away: no record is written, and the device polls for so many times before it loses the lease.
    Outage(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..90).prop_map(Step::Pass),
        6 => Just(Step::Poll),
        2 => Just(Step::Turn),
        1 => Just(Step::Move),
        1 => Just(Step::Restart),
        1 => Just(Step::Die),
        1 => (0_usize..4).prop_map(Step::Outage),
    ];
    prop::collection::vec(step, 1..60)
}

/// Two devices with one record, and the receiver of both.
struct Pair {
    devices: [World; 2],
    polls: usize,
    is_broken: bool,
    /// For how long a device can know that the service is as it is, in seconds: from the first poll on.
    since: u64,
    is_seen: bool,
    is_open: bool,
    log: Vec<String>,
}

impl Pair {
    fn new() -> Self {
        let mut devices = [device(), device()];
        begin(&mut devices[0], Vec::new(), LastPoller::ThisDevice);
        Self { devices, polls: 0, is_broken: false, since: 0, is_seen: false, is_open: false, log: Vec::new() }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.since += u64::from(self.is_seen);
            self.devices.iter_mut().for_each(|device| device.advance(1));
            self.hear();
        }
    }

    fn hear(&mut self) {
        for (place, device) in self.devices.iter_mut().enumerate() {
            for (subject, event) in device.news() {
                self.log.push(format!("{place} {subject} {event:?}"));
                let is_end = event == Resolved;
                self.is_open = !is_end;
                assert!(!is_end || !self.is_broken || self.since < 30, "a false end: {:?}", self.log);
            }
        }
    }

    fn poll(&mut self) {
        let status = if self.is_broken { Critical } else { Ok };
        self.devices[self.polls].observe("a", &[("db", status)]);
        self.is_seen = true;
        self.pass(1);
    }

    fn move_to(&mut self, next: usize, open: Vec<AlertRecord>, by: LastPoller) {
        self.polls = next;
        begin(&mut self.devices[next], open, by);
        self.hear();
    }

    fn step(&mut self, step: Step) {
        let polls = self.polls;
        match step {
            Step::Pass(seconds) => self.pass(seconds),
            Step::Poll => self.poll(),
            Step::Turn => (self.is_broken, self.since, self.is_seen) = (!self.is_broken, 0, false),
            Step::Move => {
                let open = leave(&mut self.devices[polls]);
                self.pass(4);
                self.move_to(1 - polls, open, LastPoller::Another);
            }
            Step::Restart => {
                self.restart(polls);
                self.move_to(polls, Vec::new(), LastPoller::ThisDevice);
            }
            Step::Die => {
                let open = recorded(&self.devices[polls]);
                self.restart(polls);
                self.pass(15);
                self.move_to(1 - polls, open, LastPoller::Another);
            }
            Step::Outage(count) => {
                let open = recorded(&self.devices[polls]);
                (0..count).for_each(|_| self.poll());
                leave(&mut self.devices[polls]);
                self.pass(20);
                self.move_to(polls, open, LastPoller::ThisDevice);
            }
        }
    }

    fn restart(&mut self, device: usize) {
        let world = &mut self.devices[device];
        world.settings.standby = ["shops".to_owned()].into();
        world.targets.clear();
        world.restart();
        self.hear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_receiver_of_two_devices_knows_what_is_true_in_the_end(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.log.push(format!("{step:?}"));
            pair.step(step);
        }
        for _ in 0..4 {
            pair.poll();
        }
        // As long as an alert that fires and ends repeatedly is silent.
        pair.pass(700);
        (0..2).for_each(|_| pair.poll());
        pair.pass(400);
        prop_assert_eq!(pair.is_open, pair.is_broken, "{:?}", pair.log);
    }
}
