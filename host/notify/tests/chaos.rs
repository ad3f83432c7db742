//! The notifier under random reports, failures, silences, restarts and changes of its configuration, checked after
//! every step against invariants and against a naive model.

#[allow(dead_code, reason = "each test uses a part")]
mod common;
#[path = "chaos/naive.rs"]
mod naive;

use common::{Heard, Report, World, id, matchers, settings, target};
use model::{AlertEvent, AlertState, Status, Subject};
use naive::{Naive, Told};
use notify::{Input, Now, Route, Silence, SilenceTime, TargetSpec};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TARGETS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const DEPENDENCIES: [&str; 4] = ["p", "q", "r", "s"];
const CHANNELS: [&str; 2] = ["ops", "mail"];
const STEPS: usize = 400;

/// The number of reports that confirm or end an alert.
const REPORTS: u32 = 2;

struct Run {
    world: World,
    naive: Naive,
    random: Pcg32,
    silences: Vec<Silence>,
    failures: BTreeMap<&'static str, u32>,
}

/// The events of a run: one that exercises nothing proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Summary {
    heard: usize,
    repeated: usize,
    flapping: usize,
    resolved: usize,
    suppressed: usize,
    silenced: usize,
    restarts: usize,
}

fn routes() -> Vec<Route> {
    let channels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    vec![
        Route { is_continued: true, ..Route::new("both", matchers(&[("target", "=~a|b|c")]), channels(&CHANNELS)) },
        Route {
            group_by: vec!["label.site".to_owned()],
            ..Route::new("rest", matchers(&[("class", "=~.*"), ("target", "!=d")]), channels(&["ops"]))
        },
        Route {
            unless_acknowledged: Some(Duration::from_secs(900)),
            ..Route::new("late", matchers(&[]), channels(&["boss"]))
        },
    ]
}

fn depends(name: &str, on: &[(&str, Option<&str>)]) -> TargetSpec {
    let depends_on = on.iter().map(|(on, part)| (id(on), part.map(ToOwned::to_owned))).collect();
    TargetSpec { depends_on, host: None, ..target(name) }
}

fn targets() -> Vec<TargetSpec> {
    vec![
        depends("a", &[]),
        depends("b", &[("a", None)]),
        depends("c", &[("b", Some("p")), ("f", None)]),
        depends("d", &[]),
        depends("e", &[("a", Some("q"))]),
        depends("f", &[("c", None)]),
    ]
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut routes = routes();
        if seed % 4 == 3 {
            // Without any wait, each change is notified at once.
            (routes[0].group_wait, routes[0].group_interval) = (Duration::ZERO, Duration::ZERO);
        }
        let world = World::new(settings(routes), targets());
        let (naive, silences, failures) = Default::default();
        Self { world, naive, random: Pcg32::seed_from_u64(seed), silences, failures }
    }

    fn step(&mut self, summary: &mut Summary) {
        let target = TARGETS[self.random.random_range(0..TARGETS.len())];
        match self.random.random_range(0..100) {
            0..55 => self.report(target),
            55..65 => self.fail(target),
            65..85 => {
                let longest = [3, 30, 400, 20_000][self.random.random_range(0..4)];
                let seconds = self.random.random_range(0..longest);
                self.world.advance(seconds);
            }
            85..88 => self.silence(),
            88..90 => self.flap(target),
            90..92 => {
                let subject = Subject::dependency(&id(target), DEPENDENCIES[self.random.random_range(0..4)]);
                let by = self.random.random_bool(0.8).then(|| "me".to_owned());
                self.world.apply(Input::Acknowledge { subject, by });
            }
            92..95 => {
                summary.restarts += 1;
                self.restart();
            }
            95..97 => self.toggle(target),
            97..99 => {
                self.world.settings.routes.rotate_left(1);
                self.world.apply(Input::Settings(self.world.settings.clone()));
            }
            _ => {
                let count = if self.random.random_bool(0.5) { notify::MAX_OPEN } else { 0 };
                self.world.apply(Input::Undelivered("ops".to_owned(), count));
            }
        }
    }

    fn report(&mut self, target: &'static str) {
        let last = self.world.reports.get(&id(target)).cloned();
        let is_repeated = self.random.random_bool(0.5);
        let report = last.filter(|_| is_repeated).unwrap_or_else(|| self.random_report(target));
        if self.is_enabled(target) {
            self.naive.report(&id(target), &report, self.world.now.wall);
        }
        self.failures.remove(target);
        self.world.report(target, &report);
    }

    fn random_report(&mut self, target: &'static str) -> Report {
        let mut report = Report::default();
        // Few reports differ from the last: otherwise everything flaps.
        let known: BTreeMap<&str, bool> = DEPENDENCIES
            .into_iter()
            .map(|name| (name, self.naive.is_firing(&Subject::dependency(&id(target), name))))
            .collect();
        if self.random.random_range(0..20) == 0 {
            report.missing = DEPENDENCIES.map(str::to_owned).to_vec();
            return report;
        }
        for name in DEPENDENCIES {
            let usual = if known[name] { Status::Critical } else { Status::Ok };
            let status = match self.random.random_range(0..20) {
                0..4 => Status::Critical,
                4..8 => Status::Ok,
                8 => Status::Unknown,
                9 => Status::Warning,
                10 => {
                    report.missing.push(name.to_owned());
                    continue;
                }
                _ => usual,
            };
            report.statuses.insert(name.to_owned(), status);
        }
        let chance = [0.0, 0.5][self.random.random_range(0..2)];
        for name in DEPENDENCIES {
            let others = (0..self.random.random_range(1..4)).map(|_| self.random.random_range(0..4));
            let others: Vec<String> = others.map(|at| DEPENDENCIES[at].to_owned()).collect();
            if self.random.random_bool(chance) {
                report.runs_on.insert(name.to_owned(), others);
            }
        }
        report
    }

    /// Breaks and repairs one dependency in quick succession.
    fn flap(&mut self, target: &'static str) {
        for change in 0..self.random.random_range(2..12) {
            let status = if change % 2 == 0 { Status::Critical } else { Status::Ok };
            let report = Report { statuses: [("p".to_owned(), status)].into(), ..Report::default() };
            for _ in 0..REPORTS {
                if self.is_enabled(target) {
                    self.naive.report(&id(target), &report, self.world.now.wall);
                }
                self.world.report(target, &report);
                self.world.advance(10);
            }
        }
        self.failures.remove(target);
    }

    fn fail(&mut self, target: &'static str) {
        let failures = self.failures.entry(target).or_default();
        *failures += 1;
        let is_unreachable = *failures >= 2;
        if self.is_enabled(target) {
            self.naive.fail(&id(target), is_unreachable);
        }
        self.world.fail(target, true, is_unreachable.then_some("timeout"));
    }

    fn silence(&mut self) {
        let now = self.world.now.wall;
        let start = now.after(Duration::from_secs(self.random.random_range(0..600)));
        let end = start.after(Duration::from_secs(self.random.random_range(1..7200)));
        let target = TARGETS[self.random.random_range(0..TARGETS.len())];
        self.silences.retain(|silence| matches!(silence.time, SilenceTime::Once(_, end) if end > now));
        self.silences.push(Silence {
            id: format!("s{}", self.silences.len()),
            matchers: matchers(&[("target", target)]),
            time: SilenceTime::Once(start, end),
            author: String::new(),
            comment: String::new(),
        });
        self.world.apply(Input::Silences(self.silences.clone()));
    }

    fn restart(&mut self) {
        self.world.restart();
        self.world.apply(Input::Silences(self.silences.clone()));
        // Reports in a row are counted in memory only: the count begins again, but for the first report of an alert.
        self.naive.unconfirmed.clear();
        for told in self.naive.told.values_mut() {
            told.streak = if told.is_firing { 0 } else { told.streak.min(1) };
            if told.streak > 0 {
                // The time since which a pending alert is unknown is in memory only.
                told.vague_since = None;
            }
            told.is_armed = false;
        }
    }

    fn is_enabled(&self, target: &str) -> bool {
        self.world.targets.iter().any(|spec| spec.id.as_str() == target && spec.is_enabled)
    }

    /// Removes, disables or restores a target.
    fn toggle(&mut self, name: &'static str) {
        let held = self.world.targets.iter().position(|spec| spec.id.as_str() == name);
        match held {
            None => self.world.targets.extend(targets().into_iter().filter(|spec| spec.id.as_str() == name)),
            Some(place) if self.random.random_bool(0.5) => drop(self.world.targets.remove(place)),
            Some(place) => self.world.targets[place].is_enabled = !self.world.targets[place].is_enabled,
        }
        if !self.is_enabled(name) {
            self.naive.forget(&id(name));
        }
        self.world.apply(Input::Targets(self.world.targets.clone()));
    }

    /// The invariants after every step.
    fn check(&mut self) -> Result<(), String> {
        self.naive.pass(self.world.now.wall);
        let states: BTreeMap<&Subject, AlertState> =
            self.world.notifier.records().map(|record| (&record.subject, record.state)).collect();
        for (subject, Told { is_firing, .. }) in &self.naive.told {
            let found = states.get(subject) == Some(&AlertState::Firing);
            if found != *is_firing {
                return Err(format!("{subject}: fires is {found}, and the reports say {is_firing}"));
            }
        }
        for record in self.world.notifier.records() {
            if record.state == AlertState::Firing && !self.naive.is_firing(&record.subject) {
                return Err(format!("{} fires, and no report says so", record.subject));
            }
            if self.world.records.get(&record.subject).map(|stored| (stored.state, &stored.notified))
                != Some((record.state, &record.notified))
            {
                return Err(format!("{} differs on disk", record.subject));
            }
            self.check_root(&record.subject)?;
        }
        self.check_groups()?;
        self.check_order()
    }

    /// Two notifications of a group are at least its wait apart and, if nothing in the second is new, its interval,
    /// unless routes changed in between.
    fn check_groups(&self) -> Result<(), String> {
        let mut last = BTreeMap::new();
        // Those of a storm have no group.
        let grouped = self.world.notifications.iter().zip(&self.world.epochs);
        for ((at, notification), epoch) in grouped.filter(|((_, notification), _)| !notification.group.is_empty()) {
            let key = (&notification.channel, &notification.route, &notification.group, epoch);
            let before: Option<&Now> = last.insert(key, at);
            let route = self.world.settings.routes.iter().find(|route| route.name == notification.route);
            let is_news = |event| matches!(event, AlertEvent::Firing | AlertEvent::Resolved);
            let interval = match notification.alerts.iter().any(|alert| is_news(alert.event)) {
                true => route.map_or(Route::GROUP_WAIT, |route| route.group_wait),
                false => route.map_or(Route::GROUP_INTERVAL, |route| route.group_interval),
            };
            if before.is_some_and(|before| at.moment.since(before.moment) < interval) {
                return Err(format!("{key:?} was notified at {before:?} and again at {at:?}"));
            }
        }
        Ok(())
    }

    /// Each chain of explanations ends at an open alert that is not suppressed.
    fn check_root(&self, subject: &Subject) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut at = subject.clone();
        while let Some(by) = self.world.record(&at).and_then(|record| record.suppressed_by.clone()) {
            let is_open = self.world.state(&by).is_some_and(|state| state != AlertState::Resolved);
            if !is_open || !seen.insert(by.clone()) {
                return Err(format!("{subject} is explained by {by}, which is not open or part of a cycle"));
            }
            at = by;
        }
        Ok(())
    }

    /// A channel hears the end only of what it heard, and each thing once.
    fn check_order(&self) -> Result<(), String> {
        let mut last: BTreeMap<(&str, &Subject), &Heard> = BTreeMap::new();
        for heard in &self.world.heard {
            let before = last.insert((&heard.channel, &heard.subject), heard);
            let is_right = match (before.map(|before| before.event), heard.event) {
                (None | Some(AlertEvent::Resolved), event) => {
                    matches!(event, AlertEvent::Firing | AlertEvent::Flapping)
                }
                (Some(AlertEvent::Firing | AlertEvent::Repeated), AlertEvent::Firing) => {
                    before.is_some_and(|before| heard.status > before.status)
                }
                (Some(AlertEvent::Flapping), event) => matches!(event, AlertEvent::Firing | AlertEvent::Resolved),
                _ => true,
            };
            if !is_right {
                return Err(format!("{} heard {:?} of {} after {before:?}", heard.channel, heard.event, heard.subject));
            }
            if heard.was_held && heard.event != AlertEvent::Resolved {
                return Err(format!(
                    "{} heard {:?} of {}, which is held back",
                    heard.channel, heard.event, heard.subject
                ));
            }
            let repeated_at = before.filter(|_| heard.event == AlertEvent::Repeated).map(|before| before.at.moment);
            if repeated_at.is_some_and(|at| heard.at.moment.since(at) < Route::REPEAT_INTERVAL) {
                return Err(format!("{} was repeated too soon", heard.subject));
            }
        }
        Ok(())
    }

    /// When nothing changes any more and nothing is silenced, each channel has heard the truth.
    fn check_end(&mut self) -> Result<(), String> {
        self.world.apply(Input::Silences(Vec::new()));
        self.world.apply(Input::Undelivered("ops".to_owned(), 0));
        self.world.advance(3 * 3600);
        self.check()?;
        let mut last: BTreeMap<(&str, &Subject), AlertEvent> = BTreeMap::new();
        last.extend(self.world.heard.iter().map(|heard| ((heard.channel.as_str(), &heard.subject), heard.event)));
        for ((channel, subject), event) in &last {
            let is_over = self.world.state(subject).is_none_or(|state| state == AlertState::Resolved);
            if is_over && *event != AlertEvent::Resolved {
                return Err(format!("{channel} was notified that {subject} broke, and not that it is fixed"));
            }
        }
        for (subject, Told { is_firing, streak, .. }) in &self.naive.told {
            let is_known = self.world.record(subject).is_some_and(|record| record.acknowledged.is_some());
            if *is_firing && *streak == 0 && subject.name() != "d" && !self.is_suppressed(subject) && !is_known {
                for channel in ["ops", "boss"] {
                    let heard = last.get(&(channel, subject));
                    if !matches!(heard, Some(AlertEvent::Firing | AlertEvent::Repeated)) {
                        return Err(format!("{subject} fires, and {channel} heard {heard:?} of it last"));
                    }
                }
            }
        }
        Ok(())
    }

    fn is_suppressed(&self, subject: &Subject) -> bool {
        self.world.record(subject).is_some_and(|record| record.suppressed_by.is_some())
    }
}

fn run(seed: u64) -> Result<Summary, String> {
    let (mut run, mut summary) = (Run::new(seed), Summary::default());
    for step in 0..STEPS {
        run.step(&mut summary);
        run.check().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
        summary.suppressed += run.world.notifier.records().filter(|record| record.suppressed_by.is_some()).count();
        summary.silenced += run.world.notifier.records().filter(|record| record.silenced_by.is_some()).count();
    }
    run.check_end().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    let count = |event| run.world.heard.iter().filter(|heard| heard.event == event).count();
    (summary.heard, summary.repeated) = (run.world.heard.len(), count(AlertEvent::Repeated));
    (summary.flapping, summary.resolved) = (count(AlertEvent::Flapping), count(AlertEvent::Resolved));
    Ok(summary)
}

#[test]
fn invariants_hold_for_many_seeds() {
    // More seeds find more: SEEDS=10000 cargo test --release -p notify --test chaos.
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut total = Summary::default();
    for seed in 0..seeds {
        let one = run(seed).unwrap_or_else(|why| panic!("{why}"));
        total.heard += one.heard;
        total.repeated += one.repeated;
        total.flapping += one.flapping;
        total.resolved += one.resolved;
        total.suppressed += one.suppressed;
        total.silenced += one.silenced;
        total.restarts += one.restarts;
    }
    println!("{seeds} seeds: {total:?}");
    let least = [total.repeated, total.flapping, total.resolved, total.suppressed, total.silenced, total.restarts];
    assert!(least.into_iter().all(|count| count > 100), "the runs exercise too little: {total:?}");
}

#[test]
fn the_same_seed_yields_the_same_run() {
    assert_eq!(run(7), run(7));
}
