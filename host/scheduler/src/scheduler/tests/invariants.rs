//! Tests of properties that hold for every sequence of inputs.

use super::*;
use proptest::prelude::*;

#[test]
fn the_same_inputs_yield_the_same_actions() {
    let run = || {
        let mut scheduler = scheduler(Settings { max_in_flight: 3, cadence: Cadence::Adaptive, ..Settings::default() });
        let mut log = Vec::new();
        let targets = (0..20).map(|n| TargetSpec { cadence: None, ..spec(&format!("t{n}"), &format!("h{}", n % 4)) });
        scheduler.apply(Input::Started(targets.map(|spec| (spec, None)).collect()), Moment::START);
        let mut now = Moment::START;
        for step in 0..500_u32 {
            let actions = scheduler.drain();
            for action in &actions {
                if let Action::Start(target, _) = action {
                    let finish = if step % 7 == 0 { TRANSIENT } else { SUCCESS };
                    scheduler.apply(Input::Finished(target.clone(), finish), now);
                }
            }
            log.extend(actions);
            now = scheduler.next_wakeup().unwrap_or(now);
            scheduler.apply(Input::Tick, now);
        }
        log
    };
    assert_eq!(run(), run());
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u32),
    Finish(u8, u8),
    Add(u8),
    Remove(u8),
    Reset(u8),
    Ask(u8, u8),
    Served(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..100_000).prop_map(Step::Wait),
        8 => (0u8..12, 0u8..5).prop_map(|(target, how)| Step::Finish(target, how)),
        2 => (0u8..12).prop_map(Step::Add),
        1 => (0u8..12).prop_map(Step::Remove),
        1 => (0u8..12).prop_map(Step::Reset),
        1 => (0u8..12, 0u8..5).prop_map(|(target, ask)| Step::Ask(target, ask)),
        1 => any::<bool>().prop_map(Step::Served),
    ]
}

proptest! {
    /// For any sequence of inputs: a target never has two polls at once, the caps hold, no poll starts before its due
    /// time, and a target is in exactly one place.
    #[test]
    fn invariants_hold(steps in proptest::collection::vec(step(), 1..150)) {
        let settings = Settings { max_in_flight: 4, max_per_host: 2, ..Settings::default() };
        let mut scheduler = scheduler(settings);
        let mut now = Moment::START;
        let mut running = BTreeMap::new();
        let name = |n: u8| format!("t{n}");
        let made = |n: u8| spec(&format!("t{n}"), ["h0", "h1", "h2"][usize::from(n) % 3]);
        for step in steps {
            match step {
                Step::Wait(millis) => now = now.after(Duration::from_millis(millis.into())),
                Step::Finish(n, how) => {
                    if running.remove(&id(&name(n))).is_some() {
                        let finish = [SUCCESS, TRANSIENT, PERMANENT, Finish::PluginFault, Finish::Skipped][usize::from(how)];
                        scheduler.apply(Input::Finished(id(&name(n)), finish), now);
                    }
                }
                Step::Add(n) => scheduler.apply(Input::Added(made(n)), now),
                Step::Remove(n) => scheduler.apply(Input::Removed(id(&name(n))), now),
                Step::Reset(n) => scheduler.apply(Input::Changed(made(n), Change::Reset), now),
                Step::Ask(n, ask) => {
                    let ask = [Ask::PollNow, Ask::Retry, Ask::ResetBreaker, Ask::Enable, Ask::Disable][usize::from(ask)];
                    scheduler.apply(Input::Asked(id(&name(n)), ask), now);
                }
                Step::Served(served) => scheduler.apply(Input::KindServed(Kind::new("http").unwrap(), served), now),
            }
            scheduler.apply(Input::Tick, now);
            for action in scheduler.drain() {
                if let Action::Start(target, due) = action {
                    prop_assert!(due <= now, "{target} started before it was due");
                    let host = made(target.as_str()[1..].parse().unwrap()).host;
                    prop_assert_eq!(running.insert(target, host), None);
                }
            }
            prop_assert!(scheduler.young.len() <= 4 && running.len() <= 8);
            for host in ["h0", "h1", "h2"] {
                prop_assert!(running.values().filter(|held| &***held == host).count() <= 2);
            }
            prop_assert_eq!(scheduler.in_flight, running.len());
            prop_assert_eq!(scheduler.audit(), Ok(()));
            // No target is forgotten: a target that waits for a host starts when a poll of that host ends, or when a
            // ready target of that host has started or was taken out.
            for waiting in scheduler.targets.iter().flatten().filter(|target| target.place == Place::WaitingForHost) {
                let host = &waiting.spec.host;
                let ready = |target: &Target| target.place == Place::Ready && target.spec.host == *host;
                let ahead = running.values().any(|held| held == host) || scheduler.targets.iter().flatten().any(ready);
                prop_assert!(ahead, "{} waits for {} in vain", waiting.spec.id, host);
            }
        }
    }
}
