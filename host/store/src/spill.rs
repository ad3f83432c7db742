//! The spill file: results that could not be written to the database before the host ended.
//!
//! The spill file is next to the database until the next start commits its results. It is created atomically, by a
//! rename, and removed after the commit.

use crate::changes::{Changes, ErrorEntry, PollErrorEntry, TargetRecord, Transition};
use crate::job::{Job, SettingChange};
use crate::record::{Commit, Progress, StoredSchedule};
use crate::stored_event::EventWire;
use crate::wire::{LiveWire, PointWire, ScheduleWire};
use model::{
    AccessChange, DependencyRecord, Event, FailureCategory, Json, Kind, LatencyWindow, PollFailure, Scope, Session,
    Sketch, Status, TargetId, Timestamp, Token,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The format version. It changes with the types below. A file of another version is kept and reported, but not read.
const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
struct SpillWire {
    version: u32,
    jobs: Vec<JobWire>,
}

#[derive(Serialize, Deserialize)]
enum JobWire {
    Commit(Box<CommitWire>),
    Event(StampedWire),
    Progress(Vec<ProgressWire>, i64),
    /// The number was a time in earlier versions, and is 0.
    Forget(String, i64),
    Token([u8; 32], i64),
    Session([u8; 32], Option<i64>),
    Setting(Vec<(String, Option<String>)>, i64),
    SessionOf([u8; 32], i64, [u8; 32]),
    NamedToken(TokenWire),
    Revoke([u8; 32]),
}

/// Hash, name, scope, created, expires, last used.
type TokenWire = ([u8; 32], String, String, i64, Option<i64>, Option<i64>);

/// The time of an event, and the event as JSON, as in its row.
type StampedWire = (i64, String);

#[derive(Serialize, Deserialize)]
struct CommitWire {
    target: String,
    kind: String,
    at: i64,
    changes: ChangesWire,
    schedule: Option<ScheduleWire>,
    events: Vec<StampedWire>,
}

#[derive(Serialize, Deserialize)]
struct ProgressWire {
    target: String,
    kind: String,
    schedule: ScheduleWire,
    last_report: Option<i64>,
    volatile: Vec<LiveWire>,
    changes: ChangesWire,
}

/// Category, code, message.
type FailureWire = (String, String, String);

/// Warnings, failure with its time, stale since.
type TargetWire = (Vec<String>, Option<(FailureWire, i64)>, Option<i64>);

#[derive(Serialize, Deserialize)]
struct ChangesWire {
    /// Dependency, before, after.
    transitions: Vec<(String, String, String)>,
    urgent: Vec<RecordWire>,
    details: Vec<RecordWire>,
    forgotten: Vec<String>,
    /// Dependency, error, message.
    errors: Vec<(String, Option<String>, Option<String>)>,
    poll_error: Option<Option<FailureWire>>,
    target: Option<TargetWire>,
    points: Vec<(u32, PointWire)>,
    values: Option<BTreeMap<String, Vec<u8>>>,
}

#[derive(Serialize, Deserialize)]
struct RecordWire {
    slot: u32,
    name: String,
    title: Option<String>,
    kind: String,
    status: String,
    skipped: bool,
    code: Option<i32>,
    description: Option<String>,
    impact: Option<String>,
    error: Option<String>,
    error_message: Option<String>,
    contact: Option<String>,
    check_details: Option<String>,
    independent: bool,
    valid_for_ms: Option<u64>,
    link: Option<String>,
    runs_on: Vec<String>,
    canonical: Option<String>,
    error_state: Option<String>,
    first_seen: i64,
    last_status_change: Option<i64>,
    missing_since: Option<i64>,
}

/// Writes jobs to a file atomically.
pub(crate) fn write<'a>(path: &Path, jobs: impl Iterator<Item = &'a Job>) -> io::Result<()> {
    let spill = SpillWire { version: VERSION, jobs: jobs.filter_map(JobWire::of).collect() };
    let bytes = postcard::to_stdvec(&spill).map_err(io::Error::other)?;
    let draft = crate::path::beside(path, ".draft");
    let mut file = fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// Reads the jobs of a spill file; `None` if there is no file. Fails if the file is damaged or has another version.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<Job>>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let spill: SpillWire = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    if spill.version != VERSION {
        return Err(io::Error::other(format!(
            "its version is {}, but this host reads version {VERSION}",
            spill.version
        )));
    }
    Ok(Some(spill.jobs.into_iter().filter_map(JobWire::restore).collect()))
}

impl JobWire {
    /// Returns `None` for a job that holds no results.
    fn of(job: &Job) -> Option<Self> {
        Some(match job {
            Job::Commit(commit, _) => Self::Commit(Box::new(CommitWire {
                target: commit.target.to_string(),
                kind: commit.kind.to_string(),
                at: commit.at.as_millis(),
                changes: ChangesWire::of(&commit.changes),
                schedule: commit.schedule.as_ref().map(ScheduleWire::from),
                events: commit.events.iter().filter_map(stamped).collect(),
            })),
            Job::Event(event) => Self::Event(stamped(event)?),
            Job::Progress(progress, at, _) => {
                Self::Progress(progress.iter().map(ProgressWire::of).collect(), at.as_millis())
            }
            Job::Forget(target) => Self::Forget(target.to_string(), 0),
            Job::Access(change) => Self::of_access(change),
            Job::Setting(change) => Self::Setting(change.values.clone(), change.at.as_millis()),
            // Alerts follow from the next reports. Their notifications were not sent: they are not on disk.
            Job::Alerts(..) => return None,
            // The next start reports again what the broker has not acknowledged.
            Job::Fleet(..) | Job::Publish(_) | Job::Begin(_) | Job::Finish(_) | Job::Abandon => return None,
        })
    }

    fn of_access(change: &AccessChange) -> Self {
        match change {
            AccessChange::First(hash, at) => Self::Token(*hash, at.as_millis()),
            AccessChange::Session(Session { hash, until, token: Some(token) }) => {
                Self::SessionOf(*hash, until.as_millis(), *token)
            }
            AccessChange::Session(Session { hash, until, token: None }) => {
                Self::Session(*hash, Some(until.as_millis()))
            }
            AccessChange::SessionEnded(hash) => Self::Session(*hash, None),
            AccessChange::Token(Token { hash, name, scope, created, expires, last_used }) => {
                let ms = |at: &Option<Timestamp>| at.map(Timestamp::as_millis);
                let scope = scope.as_str().to_owned();
                Self::NamedToken((*hash, name.clone(), scope, created.as_millis(), ms(expires), ms(last_used)))
            }
            AccessChange::Revoked(hash) => Self::Revoke(*hash),
        }
    }

    fn restore(self) -> Option<Job> {
        let at = Timestamp::from_millis;
        Some(match self {
            Self::Commit(wire) => {
                let commit = Commit {
                    target: TargetId::new(&wire.target).ok()?,
                    kind: Kind::new(&wire.kind).ok()?,
                    at: at(wire.at),
                    changes: wire.changes.restore(),
                    schedule: wire.schedule.as_ref().map(StoredSchedule::from),
                    events: wire.events.into_iter().filter_map(unstamped).collect(),
                    alerts: Vec::new(),
                    report: None,
                };
                Job::Commit(Box::new(commit), None)
            }
            Self::Event(event) => Job::Event(unstamped(event)?),
            // The time of an earlier run must not be used to prune history.
            Self::Progress(progress, when) => {
                Job::Progress(progress.into_iter().filter_map(ProgressWire::restore).collect(), at(when), false)
            }
            Self::Forget(target, _) => Job::Forget(TargetId::new(&target).ok()?),
            Self::Token(hash, when) => Job::Access(AccessChange::First(hash, at(when))),
            Self::Session(hash, None) => Job::Access(AccessChange::SessionEnded(hash)),
            Self::Session(hash, Some(until)) => {
                Job::Access(AccessChange::Session(Session { hash, until: at(until), token: None }))
            }
            Self::SessionOf(hash, until, token) => {
                Job::Access(AccessChange::Session(Session { hash, until: at(until), token: Some(token) }))
            }
            Self::NamedToken((hash, name, scope, created, expires, last_used)) => {
                let scope = Scope::from_word(&scope)?;
                let (expires, last_used) = (expires.map(at), last_used.map(at));
                Job::Access(AccessChange::Token(Token { hash, name, scope, created: at(created), expires, last_used }))
            }
            Self::Revoke(hash) => Job::Access(AccessChange::Revoked(hash)),
            Self::Setting(values, when) => {
                let (done, _) = std::sync::mpsc::sync_channel(1);
                // The host had told the change before it ended.
                Job::Setting(SettingChange { values, told: Vec::new(), at: at(when), done })
            }
        })
    }
}

fn stamped(event: &Event) -> Option<StampedWire> {
    let wire = EventWire::of(&event.kind)?;
    Some((event.at.as_millis(), serde_json::to_string(&wire).ok()?))
}

fn unstamped((at, text): StampedWire) -> Option<Event> {
    serde_json::from_str::<EventWire>(&text).ok()?.restore(Timestamp::from_millis(at))
}

impl ProgressWire {
    fn of(progress: &Progress) -> Self {
        let report = progress.last_report.unwrap_or_default();
        Self {
            target: progress.target.to_string(),
            kind: progress.kind.to_string(),
            schedule: ScheduleWire::from(&progress.schedule),
            last_report: progress.last_report.map(Timestamp::as_millis),
            volatile: progress.volatile.iter().map(|(slot, volatile)| LiveWire::new(*slot, volatile, report)).collect(),
            changes: ChangesWire::of(&progress.changes),
        }
    }

    fn restore(self) -> Option<Progress> {
        let last_report = self.last_report.map(Timestamp::from_millis);
        Some(Progress {
            target: TargetId::new(&self.target).ok()?,
            kind: Kind::new(&self.kind).ok()?,
            schedule: StoredSchedule::from(&self.schedule),
            last_report,
            volatile: self.volatile.iter().map(|live| live.restore(last_report.unwrap_or_default())).collect(),
            changes: self.changes.restore(),
        })
    }
}

impl ChangesWire {
    fn of(changes: &Changes) -> Self {
        let failure = |category: FailureCategory, code: &str, message: &str| {
            (category.as_str().to_owned(), code.to_owned(), message.to_owned())
        };
        let json = |json: &Option<Json>| json.as_ref().map(|json| json.as_str().to_owned());
        let record = |record: &[Arc<DependencyRecord>]| record.iter().map(|record| RecordWire::of(record)).collect();
        Self {
            transitions: (changes.transitions.iter())
                .map(|t| (t.dependency.clone(), t.previous.as_str().to_owned(), t.current.as_str().to_owned()))
                .collect(),
            urgent: record(&changes.urgent),
            details: record(&changes.details),
            forgotten: changes.forgotten.clone(),
            errors: changes.errors.iter().map(|e| (e.dependency.clone(), json(&e.error), e.message.clone())).collect(),
            poll_error: changes.poll_error.as_ref().map(|entry| match entry {
                PollErrorEntry::Failed { category, code, message } => Some(failure(*category, code, message)),
                PollErrorEntry::Recovered => None,
            }),
            target: changes.target.as_ref().map(|target| {
                let failed = target.failure.as_ref();
                let failed = failed.map(|f| (failure(f.category, &f.code, &f.message), f.at.as_millis()));
                (target.warnings.clone(), failed, target.stale_since.map(Timestamp::as_millis))
            }),
            points: changes.points.iter().map(|(slot, window)| (*slot, window.point.into())).collect(),
            values: changes.values.as_deref().cloned(),
        }
    }

    fn restore(self) -> Changes {
        let at = Timestamp::from_millis;
        let failure =
            |(category, code, message): FailureWire| Some((FailureCategory::from_word(&category)?, code, message));
        let transition = |(dependency, previous, current): (String, String, String)| {
            let (previous, current) = (Status::from_word(&previous)?, Status::from_word(&current)?);
            Some(Transition { dependency, previous, current })
        };
        let error = |(dependency, error, message): (String, Option<String>, Option<String>)| ErrorEntry {
            dependency,
            error: error.map(Json::checked),
            message,
        };
        let record = |record: Vec<RecordWire>| record.into_iter().map(|record| Arc::new(record.restore())).collect();
        Changes {
            transitions: self.transitions.into_iter().filter_map(transition).collect(),
            urgent: record(self.urgent),
            details: record(self.details),
            forgotten: self.forgotten,
            errors: self.errors.into_iter().map(error).collect(),
            poll_error: self.poll_error.and_then(|entry| match entry {
                Some(failed) => {
                    let (category, code, message) = failure(failed)?;
                    Some(PollErrorEntry::Failed { category, code, message })
                }
                None => Some(PollErrorEntry::Recovered),
            }),
            target: self.target.map(|(warnings, failed, stale_since)| TargetRecord {
                warnings,
                failure: failed.and_then(|(failed, when)| {
                    let (category, code, message) = failure(failed)?;
                    Some(PollFailure { category, code, message, at: at(when) })
                }),
                stale_since: stale_since.map(at),
            }),
            points: (self.points.into_iter())
                .map(|(slot, point)| (slot, LatencyWindow { point: point.into(), sketch: Sketch::default() }))
                .collect(),
            values: self.values.map(Arc::new),
        }
    }
}

impl RecordWire {
    fn of(record: &DependencyRecord) -> Self {
        let reported = &record.reported;
        let json = |json: &Option<Json>| json.as_ref().map(|json| json.as_str().to_owned());
        Self {
            slot: record.slot,
            name: reported.name.clone(),
            title: reported.title.clone(),
            kind: reported.kind.clone(),
            status: reported.status.as_str().to_owned(),
            skipped: reported.skipped,
            code: reported.code,
            description: reported.description.clone(),
            impact: reported.impact.clone(),
            error: json(&reported.error),
            error_message: reported.error_message.clone(),
            contact: json(&reported.contact),
            check_details: json(&reported.check_details),
            independent: reported.independent,
            valid_for_ms: reported.valid_for.map(|valid| u64::try_from(valid.as_millis()).unwrap_or(u64::MAX)),
            link: reported.link.as_deref().map(str::to_owned),
            runs_on: reported.runs_on.clone(),
            canonical: record.canonical.clone(),
            error_state: json(&record.error_state),
            first_seen: record.first_seen.as_millis(),
            last_status_change: record.last_status_change.map(Timestamp::as_millis),
            missing_since: record.missing_since.map(Timestamp::as_millis),
        }
    }

    fn restore(self) -> DependencyRecord {
        let (at, json) = (Timestamp::from_millis, |text: Option<String>| text.map(Json::checked));
        let status = Status::from_word(&self.status).unwrap_or(Status::Unknown);
        DependencyRecord {
            slot: self.slot,
            reported: model::Dependency {
                title: self.title,
                kind: self.kind,
                skipped: self.skipped,
                code: self.code,
                description: self.description,
                impact: self.impact,
                error: json(self.error),
                error_message: self.error_message,
                contact: json(self.contact),
                check_details: json(self.check_details),
                independent: self.independent,
                valid_for: self.valid_for_ms.map(Duration::from_millis),
                link: self.link.map(Into::into),
                runs_on: self.runs_on,
                ..model::Dependency::new(self.name, status)
            },
            canonical: self.canonical,
            error_state: json(self.error_state),
            first_seen: at(self.first_seen),
            last_status_change: self.last_status_change.map(at),
            missing_since: self.missing_since.map(at),
        }
    }
}
