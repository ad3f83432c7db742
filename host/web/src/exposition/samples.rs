//! Samples that plugins report.

use super::series::{Value, family};
use metrics::{FloatCounter, FloatGauge, Labels};
use model::{Sample, SampleKind};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;

const HELP: &str = "Reported by a plugin";

/// Samples by name, from any number of targets. A name that plugins report with different types is untyped, so that one
/// plugin's type never hides another plugin's series, regardless of which reports first.
type Families<'a> = BTreeMap<&'a str, (SampleKind, Vec<Value>)>;

/// A number of unknown type.
#[derive(Debug, Default)]
struct Unknown(FloatGauge);

impl TypedMetric for Unknown {}

impl EncodeMetric for Unknown {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Adds samples, each with the labels of its target.
pub(super) fn register<'a>(states: &mut Registry, samples: impl Iterator<Item = (Labels, &'a Sample)>) {
    let mut families = Families::new();
    for (mut labels, sample) in samples {
        let (kind, values) = families.entry(&sample.name).or_insert_with(|| (sample.kind, Vec::new()));
        if *kind != sample.kind {
            *kind = SampleKind::Untyped;
        }
        labels.extend(sample.labels.iter().cloned());
        values.push((labels, sample.value));
    }
    for (name, (kind, values)) in &families {
        // OpenMetrics declares a counter without the suffix `_total`. The shortened name must not be the name of
        // another family; `_created` is reserved for the counter as well.
        let is_free = |base: &&str| !families.contains_key(base) && !families.contains_key(&*format!("{base}_created"));
        let base = name.strip_suffix("_total").filter(|base| !base.is_empty()).filter(is_free);
        match (kind, base) {
            (SampleKind::Gauge, _) => states.register(*name, HELP, family(values, FloatGauge::set)),
            (SampleKind::Counter, Some(base)) => states.register(base, HELP, family(values, count)),
            (SampleKind::Counter | SampleKind::Untyped, _) => {
                states.register(*name, HELP, family(values, |unknown: &Unknown, value| unknown.0.set(value)));
            }
        }
    }
}

/// Sets a counter. A negative value is shown as 0.
fn count(counter: &FloatCounter, value: f64) -> f64 {
    counter.inc_by(value.max(0.0))
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
            Sample { name: name.to_owned(), kind, labels: own, value }
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
        register(&mut registry, all);
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
        let sample = |kind, value| Sample { name: "temperature".to_owned(), kind, labels: Vec::new(), value };
        let (honest, other) = (sample(SampleKind::Gauge, 20.0), sample(SampleKind::Counter, 5.0));
        let scrape = |samples: &[(&str, &Sample)]| {
            let mut registry = Registry::default();
            let labels = |target: &str| vec![("instance".to_owned(), target.to_owned())];
            register(&mut registry, samples.iter().map(|(target, sample)| (labels(target), *sample)));
            let mut text = String::new();
            encode_registry(&mut text, &registry).unwrap();
            text
        };
        assert!(scrape(&[("z", &honest)]).contains("TYPE temperature gauge"));
        // Targets are ordered by id, so a new target may come first.
        for samples in [[("a", &other), ("z", &honest)], [("a", &honest), ("z", &other)]] {
            let both = scrape(&samples);
            assert!(both.contains("TYPE temperature unknown"), "{both}");
            assert!(both.contains("} 20.0") && both.contains("} 5.0"), "{both}");
        }
    }
}
