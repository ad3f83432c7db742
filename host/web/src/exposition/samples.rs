//! Samples that plugins report.

use super::labels::{Targets, instance};
use super::series::{Emit, register};
use crate::pauses::WithPauses as _;
use model::{Sample, SampleKind};
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashMap};

/// The description of a metric without one.
const HELP: &str = "Reported by a plugin";

/// Names and values of labels.
type Labels = Vec<(String, String)>;

/// The samples of one name.
struct Family<'a> {
    kind: SampleKind,
    help: Option<&'a str>,
    values: HashMap<Labels, f64>,
}

/// Samples by name, from any number of targets. A name that plugins report with different types is untyped, so that one
/// plugin's type never hides another plugin's series, regardless of which reports first. If a plugin reports a series
/// twice, the last value counts.
type Families<'a> = BTreeMap<&'a str, Family<'a>>;

/// Adds the samples of all targets that are not stale.
pub(super) fn register_all(states: &mut Registry, targets: &Targets) {
    let answering = targets.iter().with_pauses().filter(|target| !target.is_stale());
    let samples = answering.flat_map(|target| {
        let labels = move || instance(target).map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        target.observed.samples.iter().map(move |sample| (labels(), sample))
    });
    register_samples(states, samples);
}

/// Adds samples, each with the labels of its target.
fn register_samples<'a>(states: &mut Registry, samples: impl Iterator<Item = (Labels, &'a Sample)>) {
    let mut families = Families::new();
    for (mut labels, sample) in samples {
        let new = || Family { kind: sample.kind, help: None, values: HashMap::new() };
        let family = families.entry(&sample.name).or_insert_with(new);
        if family.kind != sample.kind {
            family.kind = SampleKind::Untyped;
        }
        family.help = family.help.or(sample.help.as_deref());
        labels.extend(sample.labels.iter().cloned());
        family.values.insert(labels, sample.value);
    }
    let names: Vec<&str> = families.keys().copied().collect();
    for (name, Family { kind, help, values }) in families {
        // OpenMetrics declares a counter without the suffix `_total`. The shortened name must not be the name of
        // another family; `_created` is reserved for the counter as well.
        let is_taken = |name: &str| names.binary_search(&name).is_ok();
        let is_free = |base: &&str| !is_taken(base) && !is_taken(&format!("{base}_created"));
        let base = name.strip_suffix("_total").filter(|base| !base.is_empty()).filter(is_free);
        let (kind, name) = match (kind, base) {
            (SampleKind::Counter, Some(base)) => (SampleKind::Counter, base),
            (SampleKind::Gauge, _) => (SampleKind::Gauge, name),
            (SampleKind::Counter | SampleKind::Untyped, _) => (SampleKind::Untyped, name),
        };
        let help = help.map_or(HELP.to_owned(), escaped);
        register(states, kind, name, &help, move |emit: &mut Emit<'_>| {
            values.iter().with_pauses().try_for_each(|(labels, value)| {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
                // A counter is never negative.
                emit(&labels, if kind == SampleKind::Counter { value.max(0.0) } else { *value })
            })
        });
    }
}

/// A description as the text format of Prometheus writes it. The registry adds the full stop, and escapes nothing.
fn escaped(help: &str) -> String {
    help.trim_end_matches('.').replace('\\', r"\\").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    #[test]
    fn each_name_belongs_to_one_family() {
        let labels = |target: &str| vec![("instance".to_owned(), target.to_owned())];
        let sample = |name: &str, kind, value| {
            let own = vec![("id".to_owned(), "a".to_owned())];
            Sample { labels: own, ..Sample::new(name, kind, value) }
        };
        let (gauge, counter) = (SampleKind::Gauge, SampleKind::Counter);
        let samples = [
            ("one", sample("read_bytes", gauge, 1.0)),
            ("one", sample("read_bytes_total", counter, 2.0)),
            ("one", sample("sent_total", counter, 3.0)),
            ("two", sample("sent_total", gauge, 4.0)),
            ("one", sample("kept_total", counter, 3.0)),
            ("two", sample("kept_total", counter, -5.0)),
            ("one", sample("odd", SampleKind::Untyped, 6.0)),
            ("one", sample("_total", counter, 7.0)),
            ("one", sample("bare", counter, 8.0)),
            ("one", sample("bare_total", counter, 9.0)),
        ];
        let mut registry = Registry::default();
        let all = samples.iter().map(|(target, sample)| (labels(target), sample));
        register_samples(&mut registry, all);
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        lines.sort_unstable();
        let expected = [
            "# TYPE _total unknown",
            "# TYPE bare unknown",
            "# TYPE bare_total unknown",
            "# TYPE kept counter",
            "# TYPE odd unknown",
            "# TYPE read_bytes gauge",
            "# TYPE read_bytes_total unknown",
            "# TYPE sent_total unknown",
            "_total{instance=\"one\",id=\"a\"} 7.0",
            "bare_total{instance=\"one\",id=\"a\"} 9.0",
            "bare{instance=\"one\",id=\"a\"} 8.0",
            "kept_total{instance=\"one\",id=\"a\"} 3.0",
            "kept_total{instance=\"two\",id=\"a\"} 0.0",
            "odd{instance=\"one\",id=\"a\"} 6.0",
            "read_bytes_total{instance=\"one\",id=\"a\"} 2.0",
            "read_bytes{instance=\"one\",id=\"a\"} 1.0",
            "sent_total{instance=\"one\",id=\"a\"} 3.0",
            "sent_total{instance=\"two\",id=\"a\"} 4.0",
        ];
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn a_name_with_two_types_keeps_every_series() {
        let sample = |kind, value| Sample::new("temperature", kind, value);
        let (honest, other) = (sample(SampleKind::Gauge, 20.0), sample(SampleKind::Counter, 5.0));
        let scrape = |samples: &[(&str, &Sample)]| {
            let mut registry = Registry::default();
            let labels = |target: &str| vec![("instance".to_owned(), target.to_owned())];
            register_samples(&mut registry, samples.iter().map(|(target, sample)| (labels(target), *sample)));
            let mut text = String::new();
            encode_registry(&mut text, &registry).unwrap();
            text
        };
        assert!(scrape(&[("z", &honest)]).contains("TYPE temperature gauge"));
        let described = Sample { help: Some("Of the\nair.".into()), ..honest.clone() };
        let text = scrape(&[("a", &other), ("z", &described)]);
        assert!(text.contains("HELP temperature Of the\\nair.\n"), "{text}");
        // Targets are ordered by id, so a new target may come first.
        for samples in [[("a", &other), ("z", &honest)], [("a", &honest), ("z", &other)]] {
            let both = scrape(&samples);
            assert!(both.contains("TYPE temperature unknown"), "{both}");
            assert!(both.contains("HELP temperature Reported by a plugin."), "{both}");
            assert!(both.contains("} 20.0") && both.contains("} 5.0"), "{both}");
        }
    }
}
