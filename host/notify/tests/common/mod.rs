//! A notifier with a clock, a database of records, and receivers that remember what they were notified.

use model::{
    AlertEvent, AlertRecord, AlertState, Moment, Notification, Status, Subject, TargetId, TargetTraits, Timestamp,
};
use notify::{
    Action, ChannelTraits, Finding, Health, Input, Matcher, Matchers, Notifier, Now, Outcome, Polled, Reading, Route,
    Settings, TargetSpec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The wall clock at the start of the process: 1 March 2026.
pub(crate) const START: i64 = 1_772_323_200_000;

/// How long an alert waits for one that explains it.
pub(crate) const PARENT_WAIT: Duration = Duration::from_secs(30);
/// How long something is unknown or missing before that alerts.
pub(crate) const VAGUE_AFTER: Duration = Duration::from_secs(15 * 60);

/// A report: each dependency with its status, and what some of them run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) statuses: BTreeMap<String, Status>,
    pub(crate) runs_on: BTreeMap<String, Vec<String>>,
    /// Dependencies that an earlier report had.
    pub(crate) missing: Vec<String>,
    /// Dependencies that were removed on purpose.
    pub(crate) gone: Vec<String>,
    /// The title and the message of what is unhealthy. Without a message, it is "it broke".
    pub(crate) texts: (Option<&'static str>, Option<&'static str>),
}

impl Reading for Report {
    fn findings(&self) -> Vec<Finding<'_>> {
        let (title, message) = (self.texts.0, self.texts.1.or(Some("it broke")));
        (self.statuses.keys().chain(&self.missing))
            .map(|name| Finding { dependency: name, health: self.health(name), title, message, link: None })
            .filter(|finding| finding.health != Health::Healthy)
            .collect()
    }

    fn empty(&self) -> Option<String> {
        self.statuses.is_empty().then(|| "its report has no dependency".to_owned())
    }

    fn health(&self, dependency: &str) -> Health {
        match self.statuses.get(dependency) {
            None if self.gone.iter().any(|name| name == dependency) => Health::Gone,
            None => Health::Missing(Timestamp::from_millis(START)),
            Some(Status::Ok) => Health::Healthy,
            Some(Status::Unknown) => Health::Unknown,
            Some(status) => Health::Unhealthy(*status),
        }
    }

    fn runs_on(&self, dependency: &str) -> &[String] {
        self.runs_on.get(dependency).map_or(&[], Vec::as_slice)
    }

    fn is_down(&self) -> bool {
        !self.statuses.is_empty() && self.statuses.values().all(|status| *status == Status::Critical)
    }
}

/// One alert in one notification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) at: Now,
    pub(crate) id: String,
    pub(crate) channel: String,
    pub(crate) route: String,
    pub(crate) subject: Subject,
    pub(crate) event: AlertEvent,
    pub(crate) status: Status,
    pub(crate) summary: String,
    /// Whether the alert was suppressed or silenced at that time.
    pub(crate) was_held: bool,
}

pub(crate) struct World {
    pub(crate) notifier: Notifier,
    pub(crate) now: Now,
    pub(crate) settings: Settings,
    pub(crate) targets: Vec<TargetSpec>,
    /// The records on disk.
    pub(crate) records: BTreeMap<Subject, Arc<AlertRecord>>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) notifications: Vec<(Now, Notification)>,
    /// The number of restarts and changes of the routes before each notification.
    pub(crate) epochs: Vec<usize>,
    pub(crate) epoch: usize,
    /// Announcements.
    pub(crate) announced: Vec<Action>,
    /// The last report of each target.
    pub(crate) reports: BTreeMap<TargetId, Report>,
}

pub(crate) fn id(text: &str) -> TargetId {
    TargetId::new(text).expect("the tests use valid ids")
}

pub(crate) fn target(name: &str) -> TargetSpec {
    TargetSpec {
        id: id(name),
        traits: Arc::new(TargetTraits {
            name: name.to_owned(),
            kind: "http".to_owned(),
            labels: vec![("site".to_owned(), "zurich".to_owned())],
            shared_by: None,
        }),
        host: Some(format!("{name}.example")),
        confirm: None,
        recover: None,
        depends_on: Vec::new(),
        is_enabled: true,
        alerts_on_warnings: false,
        unknown_after: Some(VAGUE_AFTER),
        missing_after: Some(VAGUE_AFTER),
        was_down: false,
    }
}

pub(crate) fn matchers(conditions: &[(&str, &str)]) -> Matchers {
    Matchers(
        conditions
            .iter()
            .map(|(attribute, text)| Matcher::new(attribute, text).expect("the tests use valid conditions"))
            .collect(),
    )
}

pub(crate) fn settings(routes: Vec<Route>) -> Settings {
    let names = routes.iter().flat_map(|route| route.channels.clone());
    let channels = names.map(|name| (name, ChannelTraits::default())).collect();
    let (installation, address) = ("test".to_owned(), Some("https://polliwog.example".to_owned()));
    let (parent_wait, startup_grace) = (PARENT_WAIT, Duration::ZERO);
    let standby = BTreeSet::new();
    Settings { routes, channels, confirm: 2, recover: 2, parent_wait, startup_grace, installation, address, standby }
}

/// One route for everything to the channel `ops`.
pub(crate) fn one_route() -> Vec<Route> {
    vec![Route::new("all", Matchers::default(), vec!["ops".to_owned()])]
}

impl World {
    pub(crate) fn new(settings: Settings, targets: Vec<TargetSpec>) -> Self {
        let now = Now { moment: Moment::START, wall: Timestamp::from_millis(START) };
        let notifier = Notifier::new(settings.clone(), targets.clone(), Vec::new(), 1, now);
        let (records, heard, notifications, announced, epochs, reports) = Default::default();
        let mut world = Self {
            notifier,
            now,
            settings,
            targets,
            records,
            heard,
            notifications,
            epochs,
            epoch: 0,
            announced,
            reports,
        };
        world.carry_out();
        world
    }

    pub(crate) fn apply(&mut self, input: Input<'_>) {
        self.epoch += usize::from(matches!(input, Input::Settings(_)));
        self.notifier.apply(input, self.now);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for action in self.notifier.drain() {
            match action {
                Action::Save(record) => drop(self.records.insert(record.subject.clone(), record)),
                Action::Forget(subject) => drop(self.records.remove(&subject)),
                Action::Notify(notification) => {
                    let Notification { id, channel, route, alerts, .. } = &notification;
                    for alert in alerts {
                        let is_held =
                            |record: &AlertRecord| record.suppressed_by.is_some() || record.silenced_by.is_some();
                        self.heard.push(Heard {
                            at: self.now,
                            id: id.clone(),
                            channel: channel.clone(),
                            route: route.clone(),
                            subject: alert.subject.clone(),
                            event: alert.event,
                            status: alert.status,
                            summary: alert.summary.clone(),
                            was_held: self.notifier.record(&alert.subject).is_some_and(is_held),
                        });
                    }
                    self.epochs.push(self.epoch);
                    self.notifications.push((self.now, notification));
                }
                announced => self.announced.push(announced),
            }
        }
    }

    /// Lets time pass, with every wake-up in between.
    pub(crate) fn advance(&mut self, seconds: u64) {
        let end = self.now.moment.after(Duration::from_secs(seconds));
        while let Some(next) = self.notifier.next_wakeup().filter(|next| *next <= end) {
            self.set_clock(next);
            self.apply(Input::Tick);
        }
        self.set_clock(end);
    }

    fn set_clock(&mut self, moment: Moment) {
        let passed = moment.since(self.now.moment);
        let nanos = (self.now.moment.as_nanos() % 1_000_000).unsigned_abs();
        let millis = (passed + Duration::from_nanos(nanos)).as_millis();
        self.now.wall = self.now.wall.after(Duration::from_millis(u64::try_from(millis).expect("the tests are short")));
        self.now.moment = moment;
    }

    /// Ends the process and starts another from the records on disk.
    pub(crate) fn restart(&mut self) {
        self.epoch += 1;
        let next = self.notifications.len() as u64 + 1;
        let records = self.records.values().cloned().collect();
        self.notifier = Notifier::new(self.settings.clone(), self.targets.clone(), records, next, self.now);
        self.carry_out();
    }

    pub(crate) fn report(&mut self, target: &str, report: &Report) {
        let target = id(target);
        let is_repeated = self.reports.insert(target.clone(), report.clone()).is_some_and(|last| last == *report);
        let outcome = if is_repeated { Outcome::Repeated(report) } else { Outcome::Report(report) };
        self.apply(Input::Polled(Polled { target: &target, outcome }));
    }

    /// Reports statuses in which nothing runs on another.
    pub(crate) fn observe(&mut self, target: &str, statuses: &[(&str, Status)]) {
        let statuses = statuses.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect();
        self.report(target, &Report { statuses, ..Report::default() });
    }

    pub(crate) fn fail(&mut self, target: &str, is_network: bool, unreachable: Option<&str>) {
        let target = id(target);
        self.apply(Input::Polled(Polled { target: &target, outcome: Outcome::Failed { is_network, unreachable } }));
    }

    pub(crate) fn record(&self, subject: &Subject) -> Option<&AlertRecord> {
        self.notifier.records().find(|record| record.subject == *subject)
    }

    pub(crate) fn state(&self, subject: &Subject) -> Option<AlertState> {
        self.record(subject).map(|record| record.state)
    }

    /// Subjects and events heard since the last call, in order.
    pub(crate) fn news(&mut self) -> Vec<(String, AlertEvent)> {
        self.heard.drain(..).map(|heard| (heard.subject.to_string(), heard.event)).collect()
    }
}
