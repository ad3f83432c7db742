//! Converts a guest's report to the host's types and checks the limits.
//!
//! Invalid output is repaired with a warning if that is safe, otherwise refused.

mod json;

use crate::host::v0_1::{poller, types};
use crate::limits::Limits;
use foldhash::fast::RandomState;
use model::{
    Cause, Dependency, Failure, FailureCategory, Json, Report, Sample, SampleKind, Status, Timestamp, clean, cleaned,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum length of a name in bytes.
const NAME: usize = 256;
/// Maximum length of a message in bytes.
const MESSAGE: usize = 1024;
/// Maximum length of a description in bytes.
const DESCRIPTION: usize = 4096;
/// Maximum length of a JSON text in bytes.
const JSON: usize = 64 * 1024;
/// The times that every later step can write: from the year 1 to 9999 (RFC 3339), in milliseconds.
const TIMES: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;
/// Maximum number of repairs that are listed. The others are counted.
const SHOWN_REPAIRS: usize = 50;
/// Maximum length of a failure's code in bytes.
const CODE: usize = 64;

/// Converts the result of a poll.
pub(crate) fn outcome(result: Result<poller::Report, types::Error>, limits: &Limits) -> Result<Report, Failure> {
    match result {
        Ok(report) => self::report(report, limits),
        Err(error) => Err(failure(error)),
    }
}

/// Converts the error of a poll.
pub(crate) fn failure(error: types::Error) -> Failure {
    let (category, failure) = match error {
        types::Error::Transient(failure) => (FailureCategory::Transient, failure),
        types::Error::Permanent(failure) => (FailureCategory::Permanent, failure),
        types::Error::Misconfigured(failure) => (FailureCategory::Misconfigured, failure),
    };
    Failure {
        category,
        code: code(&failure.code),
        cause: Cause::Other,
        message: match clean(&failure.message, MESSAGE) {
            empty if empty.trim().is_empty() => "the plugin returned no reason".to_owned(),
            message => message,
        },
        retry_after: failure.retry_after_ms.map(|ms| Duration::from_millis(ms.into())),
    }
}

fn code(code: &str) -> String {
    let good = !code.is_empty()
        && code.len() <= CODE
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if good { code.to_owned() } else { "unspecified".to_owned() }
}

fn refused(category: FailureCategory, code: &str, message: String) -> Failure {
    Failure { category, code: code.to_owned(), cause: Cause::Other, message, retry_after: None }
}

/// Descriptions of the repairs, for the warnings of the report.
#[derive(Default)]
struct Repairs {
    shown: BTreeSet<String>,
    more: usize,
}

impl Repairs {
    fn note(&mut self, repair: String) {
        if self.shown.len() < SHOWN_REPAIRS {
            self.shown.insert(repair);
        } else if !self.shown.contains(&repair) {
            self.more += 1;
        }
    }
}

fn report(mut report: poller::Report, limits: &Limits) -> Result<Report, Failure> {
    let too_many = |what: &str, count: usize, limit: usize| format!("the report has {count} {what}, more than {limit}");
    if report.dependencies.len() > limits.dependencies {
        let message = too_many("dependencies", report.dependencies.len(), limits.dependencies);
        return Err(refused(FailureCategory::Permanent, "too_many_dependencies", message));
    }
    if report.samples.len() > limits.samples {
        let message = too_many("samples", report.samples.len(), limits.samples);
        return Err(refused(FailureCategory::Plugin, "too_many_samples", message));
    }
    if report.kept.len() > limits.dependencies {
        let message = too_many("names in kept", report.kept.len(), limits.dependencies);
        return Err(refused(FailureCategory::Plugin, "too_many_kept", message));
    }
    let mut repairs = Repairs::default();
    for name in names(&mut report).filter(|name| name.contains(model::is_invisible)) {
        name.retain(|c| !model::is_invisible(c));
        repairs.note(format!("the name {:?} contained invisible characters, which are removed", clean(name, 60)));
    }
    let dependencies = without_repeats(report.dependencies, &mut repairs);
    let mut contact = None;
    let mut dependencies: Vec<Dependency> = (dependencies.into_iter())
        .filter_map(|dependency| self::dependency(dependency, &mut contact, &mut repairs))
        .collect();
    check_parents(&mut dependencies, &mut repairs);
    let samples = samples(report.samples, &mut repairs);
    let kept = report.kept.into_iter().filter(|name| !name.is_empty() && name.len() <= NAME).collect();
    let mut seen = HashSet::new();
    let mut warnings: Vec<String> = report.warnings.into_iter().map(|warning| cleaned(warning, MESSAGE)).collect();
    warnings.extend(repairs.shown);
    if repairs.more > 0 {
        warnings.push(format!("{} more repairs", repairs.more));
    }
    warnings.retain(|warning| !warning.is_empty() && seen.insert(warning.clone()));
    warnings.truncate(limits.warnings);
    Ok(Report { dependencies, kept, samples, warnings })
}

/// Returns all names of dependencies in a report, including references.
fn names(report: &mut poller::Report) -> impl Iterator<Item = &mut String> {
    let of_dependencies = report.dependencies.iter_mut().flat_map(|d| [&mut d.name].into_iter().chain(&mut d.parent));
    of_dependencies.chain(&mut report.kept)
}

/// Removes repeated names. The last dependency with a name replaces the first one at its position.
fn without_repeats(dependencies: Vec<poller::Dependency>, repairs: &mut Repairs) -> Vec<poller::Dependency> {
    let mut names = HashSet::with_capacity_and_hasher(dependencies.len(), RandomState::default());
    if dependencies.iter().all(|dependency| names.insert(dependency.name.as_str())) {
        return dependencies;
    }
    let mut place: HashMap<String, usize> = HashMap::with_capacity(dependencies.len());
    let mut kept: Vec<poller::Dependency> = Vec::with_capacity(dependencies.len());
    for dependency in dependencies {
        match place.get(&dependency.name) {
            Some(&index) => {
                repairs.note(format!(
                    "{:?} is reported more than once: the last report is used",
                    clean(&dependency.name, NAME)
                ));
                kept[index] = dependency;
            }
            None => {
                place.insert(dependency.name.clone(), kept.len());
                kept.push(dependency);
            }
        }
    }
    kept
}

/// The expected shape of a JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Any,
    Object,
}

/// Converts a dependency; `None` if it is omitted. `last_contact` is that of the previous dependency: a contact that is
/// the same is checked and kept once.
fn dependency(found: poller::Dependency, last_contact: &mut Option<Json>, repairs: &mut Repairs) -> Option<Dependency> {
    let name = found.name;
    let wrong = if name.trim().is_empty() {
        Some("is empty".to_owned())
    } else if name.len() > NAME {
        Some(format!("has {} bytes, more than {NAME}", name.len()))
    } else if name.chars().any(char::is_control) {
        Some("has control characters".to_owned())
    } else {
        None
    };
    if let Some(wrong) = wrong {
        repairs.note(format!("a dependency is omitted: its name {:?} {wrong}", clean(&name, 60)));
        return None;
    }
    let text = |text: Option<String>, longest| text.map(|text| cleaned(text, longest)).filter(|text| !text.is_empty());
    let mut checked = |field: &str, text: Option<String>, shape: Shape| {
        let text = text?;
        let good =
            text.len() <= JSON && json::is_sound(&text) && (shape == Shape::Any || text.trim_start().starts_with('{'));
        if !good {
            let shape = if shape == Shape::Object { "a JSON object" } else { "JSON" };
            repairs.note(format!(
                "{field} of {name:?} is omitted: it is not {shape} of at most {JSON} bytes with valid numbers, characters and \
                 nesting"
            ));
        }
        good.then(|| Json::checked(text))
    };
    let error = checked("error", found.error, Shape::Any).filter(|error| error.as_str().trim() != "null");
    let contact = match last_contact {
        Some(last) if found.contact.as_deref() == Some(last.as_str()) => Some(last.clone()),
        _ => checked("contact", found.contact, Shape::Object),
    };
    last_contact.clone_from(&contact);
    let check_details = checked("check-details", found.check_details, Shape::Object);
    let latency_ms = found.latency_ms.filter(|ms| {
        let good = ms.is_finite() && *ms >= 0.0;
        if !good {
            repairs.note(format!("latency of {name:?} is omitted: {ms} is not a duration"));
        }
        good
    });
    let checked_at = found.checked_at.filter(|ms| {
        let good = TIMES.contains(ms);
        if !good {
            repairs.note(format!("checked-at of {name:?} is omitted: it is not between the years 1 and 9999"));
        }
        good
    });
    Some(Dependency {
        title: text(found.title, NAME),
        kind: text(found.kind, NAME).unwrap_or_else(|| "other".to_owned()),
        status: if found.skipped { Status::Ok } else { status(found.status) },
        skipped: found.skipped,
        code: found.code,
        latency_ms,
        description: text(found.description, DESCRIPTION),
        impact: text(found.impact, MESSAGE),
        checked_at: checked_at.map(Timestamp::from_millis),
        error,
        error_message: text(found.error_message, MESSAGE),
        contact,
        check_details,
        parent: found.parent,
        name,
    })
}

fn status(status: types::Status) -> Status {
    match status {
        types::Status::Ok => Status::Ok,
        types::Status::Warning => Status::Warning,
        types::Status::Critical => Status::Critical,
        types::Status::Unknown => Status::Unknown,
    }
}

/// Removes parents that are not in the report, and parents that form a cycle.
fn check_parents(dependencies: &mut [Dependency], repairs: &mut Repairs) {
    if dependencies.iter().all(|dependency| dependency.parent.is_none()) {
        return;
    }
    let place: HashMap<&str, usize, RandomState> =
        dependencies.iter().enumerate().map(|(index, dependency)| (dependency.name.as_str(), index)).collect();
    let parents: Vec<Option<usize>> = (dependencies.iter())
        .map(|dependency| dependency.parent.as_deref().and_then(|parent| place.get(parent).copied()))
        .collect();
    let cyclic = on_cycles(&parents);
    for (index, dependency) in dependencies.iter_mut().enumerate() {
        let missing = dependency.parent.is_some() && parents[index].is_none();
        if missing || cyclic[index] {
            let why = if missing { "is not in the report" } else { "is part of a cycle" };
            repairs.note(format!("the parent of {:?} is omitted: it {why}", dependency.name));
            dependency.parent = None;
        }
    }
}

/// Returns for each node whether it is on a cycle. Each node is visited once.
fn on_cycles(parents: &[Option<usize>]) -> Vec<bool> {
    let mut cyclic = vec![false; parents.len()];
    let mut walk_of = vec![usize::MAX; parents.len()];
    for start in 0..parents.len() {
        let mut at = Some(start);
        while let Some(node) = at.filter(|&node| walk_of[node] == usize::MAX) {
            walk_of[node] = start;
            at = parents[node];
        }
        let mut node = at.filter(|&node| walk_of[node] == start && !cyclic[node]);
        while let Some(next) = node.filter(|&node| !cyclic[node]) {
            cyclic[next] = true;
            node = parents[next];
        }
    }
    cyclic
}

fn samples(found: Vec<poller::Sample>, repairs: &mut Repairs) -> Vec<Sample> {
    let mut kinds: HashMap<String, SampleKind> = HashMap::new();
    let mut samples = Vec::with_capacity(found.len());
    for sample in found {
        let kind = match sample.kind {
            poller::SampleKind::Gauge => SampleKind::Gauge,
            poller::SampleKind::Counter => SampleKind::Counter,
            poller::SampleKind::Untyped => SampleKind::Untyped,
        };
        let name = sample.name;
        let problem = if !is_metric_name(&name) {
            Some("its name is not a Prometheus metric name")
        } else if ["polliwog_", "pulse_monitor_", "scheduler_"].iter().any(|prefix| name.starts_with(prefix)) {
            Some("its name begins with a prefix that is reserved for the host")
        } else if name == "up" || name.starts_with("scrape_") {
            Some("Prometheus itself creates a metric with this name")
        } else if kind == SampleKind::Counter && sample.value < 0.0 {
            Some("it is a counter with a value below 0")
        } else if !sample.value.is_finite() {
            Some("its value is not a finite number")
        } else if sample.labels.iter().any(|label| !is_label_name(&label.name)) {
            Some("the name of one of its labels is not a Prometheus label name")
        } else if repeats(&sample.labels) {
            Some("it has the same label twice")
        } else if kinds.get(&name).is_some_and(|known| *known != kind) {
            Some("an earlier sample with this name has a different type")
        } else {
            None
        };
        match problem {
            Some(problem) => repairs.note(format!("a sample {:?} is omitted: {problem}", clean(&name, 60))),
            None => {
                kinds.insert(name.clone(), kind);
                let labels = sample.labels.into_iter().map(|label| (label.name, cleaned(label.value, NAME))).collect();
                samples.push(Sample { name, kind, labels, value: sample.value });
            }
        }
    }
    samples
}

fn repeats(labels: &[types::Label]) -> bool {
    let names: HashSet<&str> = labels.iter().map(|label| label.name.as_str()).collect();
    names.len() < labels.len()
}

fn is_metric_name(name: &str) -> bool {
    let head = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b == b':';
    name.len() <= NAME && name.bytes().next().is_some_and(head) && name.bytes().all(|b| head(b) || b.is_ascii_digit())
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name)
        && !name.contains(':')
        && !name.starts_with("__")
        && !matches!(name, "instance" | "instance_type" | "le")
}

#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod tests;
