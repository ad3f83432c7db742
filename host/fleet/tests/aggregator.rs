//! The aggregator against a naive model: after any sequence of inputs, with duplicates, disorder, voided epochs,
//! devices that leave and come back, and selectors that change, each aggregate is what a recount over the newest
//! records gives.

use fleet::{
    Aggregate, Aggregator, Applied, Happened, Input, Labels, Phase, Requirement, STALE_AFTER, Selector, Stamp, digest,
};
use model::Timestamp;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const DEVICES: [&str; 5] = ["a", "b", "c", "d", "e"];
const DEPLOYMENTS: [&str; 4] = ["dns", "web", "db", "all"];
const KEYS: [&str; 3] = ["site", "env", "rack"];
const VALUES: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
enum Step {
    Info {
        device: usize,
        stamp: Stamp,
        floor: u32,
        labels: Option<Labels>,
    },
    State {
        device: usize,
        deployment: usize,
        stamp: Stamp,
        phase: Phase,
        term: u64,
    },
    Heartbeat(usize),
    Deployment {
        deployment: usize,
        selector: Option<Selector>,
        is_once: bool,
    },
    Lease {
        deployment: usize,
        owner: Option<usize>,
        term: u64,
    },
    Tick(u32),
    /// Repeats an earlier input, counted from the last.
    Again(usize),
}

/// The newest records, without indexes and counters.
#[derive(Default)]
struct Naive {
    now: u32,
    infos: BTreeMap<usize, (Stamp, Option<Labels>)>,
    floors: BTreeMap<usize, u32>,
    states: BTreeMap<(usize, usize), (Stamp, Phase, u64)>,
    leases: BTreeMap<usize, (usize, u64)>,
    once: BTreeSet<usize>,
    selectors: BTreeMap<usize, Selector>,
    /// Devices of which anything arrived, with the second of the last heartbeat.
    heard: BTreeMap<usize, u32>,
    /// Devices with a heartbeat.
    lively: BTreeSet<usize>,
}

impl Naive {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Info { device, stamp, floor, labels } => {
                self.heard.entry(*device).or_insert(self.now);
                if self.infos.get(device).is_none_or(|(known, _)| stamp > known) {
                    self.infos.insert(*device, (*stamp, labels.clone()));
                    let held = self.floors.entry(*device).or_default();
                    *held = (*held).max(*floor);
                }
            }
            Step::State { device, deployment, stamp, phase, term } => {
                self.heard.entry(*device).or_insert(self.now);
                let is_valid = stamp.epoch >= self.floor(*device);
                let held = self.states.get(&(*device, *deployment));
                if is_valid && held.is_none_or(|(known, ..)| stamp > known) {
                    self.states.insert((*device, *deployment), (*stamp, *phase, *term));
                }
            }
            Step::Heartbeat(device) => {
                if let Some(heard) = self.heard.get_mut(device) {
                    *heard = self.now;
                    self.lively.insert(*device);
                }
            }
            Step::Deployment { deployment, selector, is_once } => {
                match selector {
                    Some(selector) => drop(self.selectors.insert(*deployment, selector.clone())),
                    None => drop(self.selectors.remove(deployment)),
                }
                match is_once {
                    true => self.once.insert(*deployment),
                    false => self.once.remove(deployment),
                };
            }
            Step::Lease { deployment, owner, term } => match owner {
                Some(owner) => drop(self.leases.insert(*deployment, (*owner, *term))),
                None => drop(self.leases.remove(deployment)),
            },
            Step::Tick(seconds) => self.now += seconds,
            Step::Again(_) => {}
        }
    }

    fn floor(&self, device: usize) -> u32 {
        self.floors.get(&device).copied().unwrap_or_default()
    }

    fn counters(&self, deployment: usize) -> Aggregate {
        let mut found = Aggregate::default();
        let is_once = self.once.contains(&deployment);
        let lease = self.leases.get(&deployment).filter(|_| is_once);
        found.holder = lease.map(|(device, term)| (DEVICES[*device].to_owned(), *term));
        let Some(selector) = self.selectors.get(&deployment) else { return found };
        for (device, (_, labels)) in &self.infos {
            if !labels.as_ref().is_some_and(|labels| selector.matches(labels)) {
                continue;
            }
            found.matched += 1;
            let has_right = |term: u64| !is_once || lease == Some(&(*device, term));
            let valid = self.states.get(&(*device, deployment));
            let valid = valid.filter(|(stamp, _, term)| stamp.epoch >= self.floor(*device) && has_right(*term));
            let is_stale = self.now - self.heard[device] >= STALE_AFTER;
            if let Some((stamp, Phase::Failed, _)) = valid.filter(|_| !is_stale) {
                let (at, device) = (Timestamp::from_millis(i64::from(stamp.counter)), DEVICES[*device].to_owned());
                found.failing.push(Happened { at, device, phase: Phase::Failed, error: Some("it failed".to_owned()) });
            }
            let counter = match valid {
                _ if is_stale => &mut found.stale,
                Some((_, Phase::Pending, _)) => &mut found.pending,
                Some((_, Phase::Succeeded, _)) => &mut found.succeeded,
                Some((_, Phase::Failed, _)) => &mut found.failed,
                Some((_, Phase::Removed, _)) | None => &mut found.unreported,
            };
            *counter += 1;
        }
        found
    }

    fn digest(&self, device: usize) -> u64 {
        let valid =
            self.states.iter().filter(|((of, _), (stamp, ..))| *of == device && stamp.epoch >= self.floor(device));
        valid.map(|((_, deployment), (stamp, ..))| digest(DEPLOYMENTS[*deployment], *stamp)).fold(0, u64::wrapping_add)
    }
}

fn apply(aggregator: &mut Aggregator, naive: &Naive, step: &Step) -> Option<Applied> {
    Some(aggregator.apply(&match step {
        Step::Info { device, stamp, floor, labels } => {
            Input::Info { device: DEVICES[*device], stamp: *stamp, floor: *floor, labels: labels.as_ref() }
        }
        Step::State { device, deployment, stamp, phase, term } => Input::State {
            device: DEVICES[*device],
            deployment: DEPLOYMENTS[*deployment],
            stamp: *stamp,
            phase: *phase,
            at: Timestamp::from_millis(i64::from(stamp.counter)),
            error: (*phase == Phase::Failed).then_some("it failed"),
            term: *term,
        },
        Step::Heartbeat(device) => Input::Heartbeat { device: DEVICES[*device], digest: naive.digest(*device) },
        Step::Deployment { deployment, selector, is_once } => {
            Input::Deployment { name: DEPLOYMENTS[*deployment], selector: selector.as_ref(), is_once: *is_once }
        }
        Step::Lease { deployment, owner, term } => {
            Input::Lease { deployment: DEPLOYMENTS[*deployment], owner: owner.map(|owner| DEVICES[owner]), term: *term }
        }
        Step::Tick(_) => {
            aggregator.tick(naive.now);
            return None;
        }
        Step::Again(_) => return None,
    }))
}

fn labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map(0..KEYS.len(), 0..VALUES.len(), 0..=3)
        .prop_map(|chosen| chosen.into_iter().map(|(k, v)| (KEYS[k].to_owned(), VALUES[v].to_owned())).collect())
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let values = prop::collection::vec(prop::sample::select(&VALUES[..]).prop_map(ToOwned::to_owned), 1..3);
    (0..4, prop::sample::select(&KEYS[..]), values).prop_map(|(operator, key, values)| {
        let key = key.to_owned();
        match operator {
            0 => Requirement::In(key, values),
            1 => Requirement::NotIn(key, values),
            2 => Requirement::Exists(key),
            _ => Requirement::DoesNotExist(key),
        }
    })
}

fn selector() -> impl Strategy<Value = Selector> {
    (labels(), prop::collection::vec(requirement(), 0..3))
        .prop_map(|(labels, requirements)| Selector { labels, requirements })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (1_u32..4, 1_u32..12).prop_map(|(epoch, counter)| Stamp { epoch, counter })
}

fn step() -> impl Strategy<Value = Step> {
    let phase = prop::sample::select(vec![Phase::Pending, Phase::Succeeded, Phase::Failed, Phase::Removed]);
    let device = || 0..DEVICES.len();
    prop_oneof![
        3 => (device(), stamp(), 0_u32..4, prop::option::weighted(0.8, labels()))
            .prop_map(|(device, stamp, floor, labels)| Step::Info { device, stamp, floor, labels }),
        6 => (device(), 0..DEPLOYMENTS.len(), stamp(), phase, 0_u64..3)
            .prop_map(|(device, deployment, stamp, phase, term)| Step::State { device, deployment, stamp, phase, term }),
        2 => (0..DEPLOYMENTS.len(), prop::option::weighted(0.8, device()), 0_u64..3)
            .prop_map(|(deployment, owner, term)| Step::Lease { deployment, owner, term }),
        2 => device().prop_map(Step::Heartbeat),
        2 => (0..DEPLOYMENTS.len(), prop::option::weighted(0.8, selector()), any::<bool>())
            .prop_map(|(deployment, selector, is_once)| Step::Deployment { deployment, selector, is_once }),
        1 => (1_u32..400).prop_map(Step::Tick),
        1 => (1_usize..20).prop_map(Step::Again),
    ]
}

fn without_changes(mut aggregate: Aggregate) -> Aggregate {
    (aggregate.last_error, aggregate.recent) = (None, Vec::new());
    aggregate.failing.sort_by(|a, b| a.device.cmp(&b.device));
    aggregate
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_those_of_a_recount(
        steps in prop::collection::vec(step(), 1..80),
        loaded in 0_usize..40,
    ) {
        let (mut aggregator, mut naive) = (Aggregator::new(0), Naive::default());
        let mut shown: BTreeMap<usize, Aggregate> = BTreeMap::new();
        let mut done: Vec<Step> = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            if n == loaded {
                aggregator.match_devices();
            }
            let repeated = if let Step::Again(back) = step { done.len().checked_sub(*back).map(|at| done[at].clone()) } else { None };
            let step = repeated.unwrap_or_else(|| step.clone());
            naive.apply(&step);
            // It has no effect, not even for devices that are unknown.
            aggregator.prefetch(DEVICES.iter().copied());
            let applied = apply(&mut aggregator, &naive, &step);
            if let (Step::Heartbeat(device), Some(applied)) = (&step, applied) {
                let expected = if naive.heard.contains_key(device) { Applied::Same } else { Applied::Refused };
                prop_assert_eq!(applied, expected, "the digest of {}", DEVICES[*device]);
            }
            done.push(step);
            if n < loaded {
                continue;
            }
            for patch in aggregator.drain() {
                let deployment = DEPLOYMENTS.iter().position(|name| *name == patch.deployment).unwrap();
                shown.insert(deployment, patch.aggregate);
            }
            for (deployment, name) in DEPLOYMENTS.iter().enumerate() {
                let found = aggregator.aggregate(name).map(without_changes).unwrap_or_default();
                prop_assert_eq!(found, naive.counters(deployment), "{} after step {}: {:?}", name, n, done.last());
            }
        }
        // Everything that changed is shown at the latest a second later.
        if loaded < steps.len() {
            naive.apply(&Step::Tick(2));
            aggregator.tick(naive.now);
            for patch in aggregator.drain() {
                let deployment = DEPLOYMENTS.iter().position(|name| *name == patch.deployment).unwrap();
                shown.insert(deployment, patch.aggregate);
            }
            for deployment in 0..DEPLOYMENTS.len() {
                let held = shown.remove(&deployment).map(without_changes).unwrap_or_default();
                prop_assert_eq!(held, naive.counters(deployment));
            }
            prop_assert!(aggregator.drain().is_empty());
            for (device, heard) in &naive.heard {
                let view = aggregator.device_view(DEVICES[*device]).unwrap();
                prop_assert_eq!((view.heard, view.is_heard), (*heard, naive.lively.contains(device)));
            }
        }
    }
}

fn at(epoch: u32, counter: u32) -> Stamp {
    Stamp { epoch, counter }
}

fn state<'a>(device: &'a str, counter: u32, phase: Phase, error: Option<&'a str>) -> Input<'a> {
    let time = Timestamp::from_millis(i64::from(counter));
    Input::State { device, deployment: "dns", stamp: at(1, counter), phase, at: time, error, term: 0 }
}

/// An aggregator with one deployment for all devices, and some devices.
fn all_of(devices: &[&str]) -> Aggregator {
    let mut aggregator = Aggregator::new(0);
    aggregator.match_devices();
    aggregator.apply(&Input::Deployment { name: "dns", selector: Some(&Selector::default()), is_once: false });
    for device in devices {
        let labels = Labels::new();
        aggregator.apply(&Input::Info { device, stamp: at(1, 1), floor: 1, labels: Some(&labels) });
    }
    aggregator
}

#[test]
fn the_last_error_and_the_ten_latest_changes_follow_the_time_of_the_change() {
    let mut aggregator = all_of(&["a", "b"]);
    aggregator.apply(&state("a", 50, Phase::Failed, Some("newer")));
    aggregator.apply(&state("b", 40, Phase::Failed, Some("older, but arrived later")));
    let found = aggregator.aggregate("dns").unwrap();
    assert_eq!(found.last_error.unwrap().error.as_deref(), Some("newer"));
    assert_eq!(found.recent.iter().map(|change| change.device.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for counter in 51..80 {
        let phase = if counter % 2 == 0 { Phase::Failed } else { Phase::Succeeded };
        aggregator.apply(&state("a", counter, phase, None));
    }
    let times: Vec<i64> =
        aggregator.aggregate("dns").unwrap().recent.iter().map(|change| change.at.as_millis()).collect();
    assert_eq!(times, (70..80).rev().collect::<Vec<_>>());
    // A device that does not match cannot place its errors.
    aggregator.apply(&state("stranger", 99, Phase::Failed, Some("not for you")));
    assert_eq!(aggregator.aggregate("dns").unwrap().last_error.unwrap().error.as_deref(), Some("newer"));
}

#[test]
fn the_reason_is_that_of_a_device_that_fails_now() {
    let mut aggregator = Aggregator::new(0);
    aggregator.apply(&Input::Deployment { name: "dns", selector: Some(&Selector::default()), is_once: false });
    let labels = Labels::new();
    for device in ["a", "b"] {
        aggregator.apply(&Input::Info { device, stamp: at(1, 1), floor: 1, labels: Some(&labels) });
    }
    let reason = |aggregator: &Aggregator| aggregator.aggregate("dns").unwrap().reason().map(fleet::Happened::why);
    // States that were loaded before the devices were matched count, too.
    aggregator.apply(&state("a", 10, Phase::Failed, Some("refused")));
    aggregator.match_devices();
    assert_eq!(reason(&aggregator).as_deref(), Some("a: refused"));
    aggregator.apply(&state("b", 20, Phase::Failed, Some("timed out")));
    assert_eq!(reason(&aggregator).as_deref(), Some("b: timed out"));
    aggregator.apply(&state("b", 30, Phase::Succeeded, None));
    assert_eq!(reason(&aggregator).as_deref(), Some("a: refused"), "b no longer fails");
    aggregator.apply(&state("a", 40, Phase::Failed, Some("no route")));
    assert_eq!(reason(&aggregator).as_deref(), Some("a: no route"), "it fails for another reason now");
    aggregator.apply(&state("a", 50, Phase::Succeeded, None));
    let found = aggregator.aggregate("dns").unwrap();
    assert_eq!((found.failing.len(), found.last_error.unwrap().why()), (0, "b: timed out".to_owned()));
}

#[test]
fn the_errors_of_the_latest_ten_of_many_failing_devices_are_shown() {
    let names: Vec<String> = (0..15).map(|n| format!("d{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut aggregator = all_of(&names);
    for (counter, device) in (10..).zip(&names) {
        aggregator.apply(&state(device, counter, Phase::Failed, Some("refused")));
    }
    let times = |aggregator: &Aggregator| -> Vec<i64> {
        aggregator.aggregate("dns").unwrap().failing.iter().map(|failure| failure.at.as_millis()).collect()
    };
    assert_eq!(times(&aggregator), (15..25).rev().collect::<Vec<_>>());
    let since = |needed| aggregator.failed_since("dns", needed).map(Timestamp::as_millis);
    assert_eq!([0, 1, 12, 15, 16].map(since), [None, Some(10), Some(21), Some(24), None]);
    // When those recover, the others are shown.
    for (counter, device) in (30..).zip(&names[5..]) {
        aggregator.apply(&state(device, counter, Phase::Succeeded, None));
    }
    assert_eq!(times(&aggregator), (10..15).rev().collect::<Vec<_>>());
}

#[test]
fn a_deployment_is_patched_at_most_once_a_second() {
    let mut aggregator = all_of(&["a"]);
    assert_eq!(aggregator.drain().len(), 1);
    for counter in 2..50 {
        aggregator.apply(&state("a", counter, if counter % 2 == 0 { Phase::Failed } else { Phase::Succeeded }, None));
        assert!(aggregator.drain().is_empty());
    }
    aggregator.tick(1);
    let patches = aggregator.drain();
    assert_eq!((patches.len(), patches[0].aggregate.succeeded), (1, 1));
    assert!(aggregator.drain().is_empty());
}

#[test]
fn another_error_of_a_failing_device_is_shown() {
    let mut aggregator = all_of(&["a"]);
    aggregator.apply(&state("a", 2, Phase::Failed, Some("refused")));
    assert_eq!(aggregator.drain().len(), 1);
    aggregator.tick(1);
    aggregator.apply(&state("a", 3, Phase::Failed, Some("timed out")));
    let patches = aggregator.drain();
    let shown = patches.first().and_then(|patch| patch.aggregate.reason());
    assert_eq!(shown.map(fleet::Happened::why).as_deref(), Some("a: timed out"));
    // A device that the deployment does not choose changes nothing that is shown.
    aggregator.tick(2);
    aggregator.apply(&state("stranger", 4, Phase::Failed, Some("refused")));
    assert!(aggregator.drain().is_empty());
}

#[test]
fn an_agent_cannot_invent_deployments_without_end() {
    let mut aggregator = all_of(&["a"]);
    let mut refused = BTreeSet::new();
    for n in 0..1_000_u32 {
        let name = format!("invented-{n}");
        let input = Input::State {
            device: "a",
            deployment: &name,
            stamp: at(1, n + 2),
            phase: Phase::Failed,
            at: Timestamp::from_millis(0),
            error: None,
            term: 0,
        };
        refused.insert(aggregator.apply(&input) == Applied::Refused);
        assert_eq!(aggregator.aggregate(&name).is_some(), (n as usize) < fleet::LEGROOM);
    }
    assert_eq!(refused.len(), 2);
    // Its own deployment still counts.
    assert_eq!(aggregator.apply(&state("a", 5_000, Phase::Failed, None)), Applied::New);
    assert_eq!(aggregator.aggregate("dns").unwrap().failed, 1);
}

#[test]
fn a_heartbeat_reveals_a_record_that_was_lost() {
    let mut aggregator = all_of(&["a"]);
    aggregator.apply(&state("a", 2, Phase::Succeeded, None));
    let beat = |stamp| Input::Heartbeat { device: "a", digest: digest("dns", stamp) };
    assert_eq!(aggregator.apply(&beat(at(1, 2))), Applied::Same);
    assert_eq!(aggregator.apply(&beat(at(1, 3))), Applied::Differs);
    aggregator.apply(&state("a", 3, Phase::Failed, None));
    assert_eq!(aggregator.apply(&beat(at(1, 3))), Applied::Same);
}

#[test]
fn only_the_holder_of_the_lease_counts_and_only_under_its_present_term() {
    let mut aggregator = all_of(&["a", "b"]);
    aggregator.apply(&Input::Deployment { name: "dns", selector: Some(&Selector::default()), is_once: true });
    let mut counted = |inputs: &[Input<'_>]| {
        for input in inputs {
            aggregator.apply(input);
        }
        let found = aggregator.aggregate("dns").unwrap();
        (found.succeeded, found.failed, found.unreported, found.recent.len())
    };
    let under = |term: u64, state: Input<'static>| match state {
        Input::State { device, deployment, stamp, phase, at, error, .. } => {
            Input::State { device, deployment, stamp, phase, at, error, term }
        }
        other => other,
    };
    let lease = |owner: &'static str, term| Input::Lease { deployment: "dns", owner: Some(owner), term };
    assert_eq!(counted(&[under(1, state("a", 2, Phase::Succeeded, None))]), (0, 0, 2, 0));
    assert_eq!(counted(&[lease("a", 1)]), (1, 0, 1, 0));
    // The lease moves. What the earlier holder sends afterwards neither counts nor is shown.
    assert_eq!(counted(&[lease("b", 2), under(1, state("a", 3, Phase::Failed, Some("stale")))]), (0, 0, 2, 0));
    assert_eq!(counted(&[under(2, state("b", 2, Phase::Succeeded, None))]), (1, 0, 1, 1));
    // The earlier holder has it again; its report of the earlier term does not count.
    assert_eq!(counted(&[lease("a", 3)]), (0, 0, 2, 1));
    assert_eq!(counted(&[under(3, state("a", 4, Phase::Failed, Some("now")))]), (0, 1, 1, 1));
}
