//! Fuzz entry points: builds reports from arbitrary bytes and checks the promises about the converted report.

use super::{MESSAGE, NAME, is_label_name, is_metric_name, outcome};
use crate::Limits;
use crate::host::v0_1::{poller, types};
use schema::Schema;
use std::collections::{HashMap, HashSet};

/// Limits that are small enough for arbitrary bytes to reach.
const SMALL: Limits = Limits {
    memory: 1 << 20,
    cpu: std::time::Duration::from_secs(1),
    requests: 1,
    body: 1 << 20,
    bodies: 1 << 20,
    dependencies: 24,
    samples: 24,
    warnings: 8,
    report: 1 << 20,
    log_lines: 1,
};

/// Builds a guest's result from bytes, converts it, and checks the promises about the converted result.
///
/// # Panics
/// Panics if a promise is broken.
pub fn convert(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    match outcome(bytes.answer(), &SMALL) {
        Ok(report) => check_report(&report),
        Err(failure) => {
            let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(!failure.code.is_empty() && failure.code.bytes().all(valid), "{failure:?}");
            assert!(shown(&failure.message, MESSAGE), "{failure:?}");
        }
    }
}

/// Validates the settings after the first empty line with the schema before it.
///
/// # Panics
/// Panics if a schema or settings are refused without a reason.
pub fn settings(text: &str) {
    let (schema, settings) = text.split_once("\n\n").unwrap_or((text, "{}"));
    match Schema::read(schema) {
        Ok((document, schema)) => {
            let Ok(settings) = serde_json::from_str(settings) else { return };
            for problem in schema.problems(&document, &settings) {
                assert!(!problem.message.is_empty(), "{problem:?}");
            }
        }
        Err(why) => assert!(!why.is_empty(), "a schema is refused without a reason"),
    }
}

fn check_report(report: &model::Report) {
    let mut names = HashSet::new();
    let runs_on: HashMap<&str, &[String]> =
        report.dependencies.iter().map(|found| (found.name.as_str(), &found.runs_on[..])).collect();
    for dependency in &report.dependencies {
        assert!(names.insert(&dependency.name), "two dependencies have the name {:?}", dependency.name);
        assert!(!dependency.name.trim().is_empty() && shown(&dependency.name, NAME));
        assert!(dependency.latency_ms.is_none_or(|ms| ms.is_finite() && ms >= 0.0));
        for text in [&dependency.title, &dependency.impact, &dependency.error_message].into_iter().flatten() {
            assert!(!text.is_empty() && shown(text, MESSAGE), "{text:?}");
        }
        for json in [&dependency.error, &dependency.contact, &dependency.check_details].into_iter().flatten() {
            serde_json::from_str::<serde::de::IgnoredAny>(json.as_str()).expect("checked JSON is JSON");
        }
        let (mut open, mut seen) = (vec![dependency.name.as_str()], HashSet::new());
        while let Some(name) = open.pop() {
            for other in *runs_on.get(name).expect("it runs on a dependency of the report") {
                assert_ne!(*other, dependency.name, "they form a cycle");
                open.extend(Some(other.as_str()).filter(|other| seen.insert(*other)));
            }
        }
    }
    let mut kinds = HashMap::new();
    for sample in &report.samples {
        assert!(sample.value.is_finite() && is_metric_name(&sample.name), "{sample:?}");
        assert_eq!(*kinds.entry(&sample.name).or_insert(sample.kind), sample.kind);
        assert!(sample.labels.iter().all(|(name, value)| is_label_name(name) && shown(value, NAME)), "{sample:?}");
    }
    assert!(report.dependencies.len() <= SMALL.dependencies && report.samples.len() <= SMALL.samples);
    assert!(report.warnings.len() <= SMALL.warnings && report.warnings.iter().all(|warning| shown(warning, MESSAGE)));
}

fn shown(text: &str, longest: usize) -> bool {
    text.len() <= longest && !text.chars().any(char::is_control)
}

/// Builds values from the remaining bytes. Missing bytes are zero.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 32).map(|_| one(self)).collect()
    }

    fn option<T>(&mut self, one: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.byte() & 1 == 1).then(|| one(self))
    }

    /// Returns short texts of few letters, so that names repeat. Some texts are arbitrary or long.
    fn text(&mut self) -> String {
        match self.byte() {
            length @ 0..200 => (0..length % 4).map(|_| char::from(b'a' + self.byte() % 3)).collect(),
            length @ 200..250 => {
                let bytes: Vec<u8> = (0..length - 190).map(|_| self.byte()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => "é\u{1b}".repeat(usize::from(self.byte()) * 20),
        }
    }

    fn label(&mut self) -> types::Label {
        types::Label { name: self.text(), value: self.text() }
    }

    fn extra(&mut self) -> types::Extra {
        types::Extra { key: self.text(), value: self.text() }
    }

    fn dependency(&mut self) -> poller::Dependency {
        poller::Dependency {
            name: self.text(),
            title: self.option(Self::text),
            kind: self.option(Self::text),
            status: [types::Status::Ok, types::Status::Warning, types::Status::Critical, types::Status::Unknown]
                [usize::from(self.byte() % 4)],
            flags: self.flags(),
            code: self.option(|bytes| bytes.number() as i32),
            latency_ms: self.option(|bytes| f64::from_bits(bytes.number())),
            description: self.option(Self::text),
            impact: self.option(Self::text),
            checked_at: self.option(|bytes| bytes.number() as i64),
            valid_for_ms: self.option(|bytes| bytes.number() as u32),
            error: self.option(Self::text),
            error_message: self.option(Self::text),
            contact: self.option(Self::text),
            check_details: self.option(Self::text),
            link: self.option(Self::text),
            runs_on: self.list(Self::text),
            extra: self.list(Self::extra),
        }
    }

    fn flags(&mut self) -> poller::DependencyFlags {
        let known = [poller::DependencyFlags::SKIPPED, poller::DependencyFlags::INDEPENDENT];
        let set = self.byte();
        (0_u8..)
            .zip(known)
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .fold(poller::DependencyFlags::empty(), |all, (_, flag)| all | flag)
    }

    fn sample(&mut self) -> poller::Sample {
        poller::Sample {
            name: self.text(),
            kind: [poller::SampleKind::Gauge, poller::SampleKind::Counter, poller::SampleKind::Untyped]
                [usize::from(self.byte() % 3)],
            labels: self.list(Self::label),
            value: f64::from_bits(self.number()),
            help: self.option(Self::text),
            unit: self.option(Self::text),
            dependency: self.option(Self::text),
            extra: self.list(Self::extra),
        }
    }

    fn failure(&mut self) -> types::Failure {
        let retry_after_ms = self.option(|bytes| bytes.number() as u32);
        types::Failure { code: self.text(), message: self.text(), retry_after_ms, extra: self.list(Self::extra) }
    }

    fn answer(&mut self) -> Result<poller::Report, types::Error> {
        match self.byte() {
            0..16 => Err(types::Error::Transient(self.failure())),
            16..32 => Err(types::Error::Permanent(self.failure())),
            _ => Ok(poller::Report {
                dependencies: self.list(Self::dependency),
                kept: self.list(Self::text),
                gone: self.list(Self::text),
                error_unless_known: self.option(|bytes| types::Error::Transient(bytes.failure())),
                samples: self.list(Self::sample),
                warnings: self.list(Self::text),
                next_poll_ms: self.option(|bytes| bytes.number() as u32),
                extra: self.list(Self::extra),
            }),
        }
    }
}
