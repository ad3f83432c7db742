//! Converts a guest's report to the host's types and checks the limits.
//!
//! Invalid output is repaired with a warning if that is safe, otherwise refused.

mod json;
mod names;
mod repairs;
mod runs_on;

use crate::host::v0_1::{poller, types};
use crate::limits::Limits;
use model::{
    Cause, Dependency, Failure, FailureCategory, Json, Report, Sample, SampleKind, Status, Timestamp, clean, cleaned,
};
use names::NAME;
use repairs::Repairs;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Names that a report may keep or call gone, even if it may have fewer dependencies.
const NAMES: usize = 25_000;
/// Maximum length of a message in bytes.
const MESSAGE: usize = 1024;
/// Maximum length of a description in bytes.
const DESCRIPTION: usize = 4096;
/// Maximum length of a JSON text in bytes.
const JSON: usize = 64 * 1024;
/// The times that every later step can write: from the year 1 to 9999 (RFC 3339), in milliseconds.
const TIMES: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;
/// Maximum length of a failure's code in bytes.
const CODE: usize = 64;
/// Maximum length of an address in bytes.
const LINK: usize = 2048;
/// Maximum length of a unit in bytes.
const UNIT: usize = 64;

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
    for (names, what, code) in
        [(&report.kept, "names in kept", "too_many_kept"), (&report.gone, "names in gone", "too_many_gone")]
    {
        // A target with few dependencies may leave out many.
        let limit = limits.dependencies.max(NAMES);
        if names.len() > limit {
            let message = too_many(what, names.len(), limit);
            return Err(refused(FailureCategory::Plugin, code, message));
        }
    }
    let mut repairs = Repairs::default();
    names::repair(&mut report, &mut repairs);
    let mut contact = None;
    let mut dependencies: Vec<Dependency> = (report.dependencies.into_iter())
        .map(|dependency| self::dependency(dependency, &mut contact, &mut repairs))
        .collect();
    runs_on::check(&mut dependencies, &mut repairs);
    let samples = samples(report.samples, &mut repairs);
    let names = |names: Vec<String>| names.into_iter().filter(|name| !name.is_empty() && name.len() <= NAME).collect();
    let mut seen = HashSet::new();
    let warnings = report.warnings.into_iter().chain(repairs.into_warnings());
    let mut warnings: Vec<String> = warnings.map(|warning| cleaned(warning, MESSAGE)).collect();
    warnings.retain(|warning| !warning.is_empty() && seen.insert(warning.clone()));
    warnings.truncate(limits.warnings);
    Ok(Report {
        dependencies,
        kept: names(report.kept),
        gone: names(report.gone),
        error_unless_known: report.error_unless_known.map(|error| Box::new(failure(error))),
        samples,
        warnings,
        next_poll: report.next_poll_ms.map(|ms| Duration::from_millis(ms.into())),
    })
}

/// The expected shape of a JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Any,
    Object,
}

/// Converts a dependency, whose name is plain. `last_contact` is that of the previous dependency: a contact that is the
/// same is checked and kept once.
fn dependency(found: poller::Dependency, last_contact: &mut Option<Json>, repairs: &mut Repairs) -> Dependency {
    let name = found.name;
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
    let mut omitted = |field: &str, why: &str| repairs.note(format!("{field} of {name:?} is omitted: {why}"));
    let latency_ms = found.latency_ms.filter(|ms| {
        let good = ms.is_finite() && *ms >= 0.0;
        if !good {
            omitted("latency", &format!("{ms} is not a duration"));
        }
        good
    });
    let checked_at = found.checked_at.filter(|ms| {
        let good = TIMES.contains(ms);
        if !good {
            omitted("checked-at", "it is not between the years 1 and 9999");
        }
        good
    });
    let link = found.link.filter(|link| {
        let good = link.len() <= LINK && is_link(link);
        if !good {
            omitted("link", &format!("it is not an http or https URL of at most {LINK} bytes"));
        }
        good
    });
    let skipped = found.flags.contains(poller::DependencyFlags::SKIPPED);
    Dependency {
        title: text(found.title, NAME),
        kind: text(found.kind, NAME).unwrap_or_else(|| "other".to_owned()),
        status: if skipped { Status::Ok } else { status(found.status) },
        skipped,
        independent: found.flags.contains(poller::DependencyFlags::INDEPENDENT),
        code: found.code,
        latency_ms,
        description: text(found.description, DESCRIPTION),
        impact: text(found.impact, MESSAGE),
        checked_at: checked_at.map(Timestamp::from_millis),
        valid_for: found.valid_for_ms.map(|ms| Duration::from_millis(ms.into())),
        error,
        error_message: text(found.error_message, MESSAGE),
        contact,
        check_details,
        link: link.map(Into::into),
        runs_on: found.runs_on,
        name,
    }
}

fn status(status: types::Status) -> Status {
    match status {
        types::Status::Ok => Status::Ok,
        types::Status::Warning => Status::Warning,
        types::Status::Critical => Status::Critical,
        types::Status::Unknown => Status::Unknown,
    }
}

/// Whether a text is the absolute address of a page: http or https with a host, without user information and blanks.
fn is_link(link: &str) -> bool {
    let good =
        |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
    let rest = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let names_host = authority.is_some_and(|host| !host.is_empty() && !host.starts_with(':') && !host.contains('@'));
    names_host && link.bytes().all(good)
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
                let text = |text: Option<String>, longest| {
                    text.map(|text| cleaned(text, longest).into_boxed_str()).filter(|text| !text.is_empty())
                };
                samples.push(Sample {
                    name,
                    kind,
                    labels,
                    value: sample.value,
                    help: text(sample.help, MESSAGE),
                    unit: text(sample.unit, UNIT),
                    dependency: sample.dependency.filter(|name| name.len() <= NAME).map(Into::into),
                });
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
