//! The text of `/metrics` as data points, so that a metric has the same name, labels and value on both ways.
//!
//! The text is OpenMetrics' (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), as this host writes it: families
//! with `# TYPE`, one sample a line, no exemplars and no times.

use crate::{Resource, nanos, text};
use model::Timestamp;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use prost::Message;

/// The number of data points of a request.
const POINTS: usize = 2_000;

/// The times of data points.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

/// A family of samples.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: String,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    /// The name without that of the family: empty, `_total`, `_bucket`, `_sum`, `_count`.
    suffix: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// Writes the text of `/metrics` as bodies of requests, each with the number of its data points. `started` is the start
/// of the counters.
pub fn metrics(resource: &Resource, text: &str, (started, now): (Timestamp, Timestamp)) -> Vec<(Vec<u8>, usize)> {
    let times = Times { start: nanos(started), now: nanos(now) };
    let mut requests = Vec::new();
    let (mut waiting, mut count) = (Vec::new(), 0);
    let mut send = |metrics: &mut Vec<Metric>, count: &mut usize| {
        if *count > 0 {
            requests.push((request(resource, std::mem::take(metrics)), std::mem::take(count)));
        }
    };
    for family in families(text) {
        for (data, points) in family.data(times) {
            if count + points > POINTS {
                send(&mut waiting, &mut count);
            }
            count += points;
            waiting.push(Metric {
                name: family.name.to_owned(),
                description: family.help.clone(),
                data: Some(data),
                ..Metric::default()
            });
        }
    }
    send(&mut waiting, &mut count);
    requests
}

fn request(resource: &Resource, metrics: Vec<Metric>) -> Vec<u8> {
    let scope_metrics = vec![ScopeMetrics { scope: Some(resource.scope()), metrics, ..ScopeMetrics::default() }];
    let of_resource = ResourceMetrics { resource: Some(resource.wire()), scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![of_resource] }.encode_to_vec()
}

fn families(text: &str) -> Vec<Family<'_>> {
    let mut all: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), rest) = (words.next(), words.next(), words.next().unwrap_or_default()) else {
                continue;
            };
            if all.last().is_none_or(|family| family.name != name) {
                all.push(Family { name, ..Family::default() });
            }
            let Some(family) = all.last_mut() else { continue };
            match what {
                "TYPE" => family.kind = rest,
                "HELP" => rest.trim_end_matches('.').clone_into(&mut family.help),
                _ => {}
            }
            continue;
        }
        let Some(family) = all.last_mut() else { continue };
        family.samples.extend(sample(family.name, line));
    }
    all
}

fn sample<'a>(family: &str, line: &'a str) -> Option<Sample<'a>> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, label_pairs(labels.strip_suffix('}')?)),
        None => (series, Vec::new()),
    };
    Some(Sample { suffix: name.strip_prefix(family)?, labels, value: value.parse().ok()? })
}

/// Reads `a="x",b="y"`, in which values have the escapes `\\`, `\"` and `\n`.
fn label_pairs(mut rest: &str) -> Vec<(&str, String)> {
    let mut pairs = Vec::new();
    while let Some((name, behind)) = rest.split_once("=\"") {
        let (mut value, mut is_escaped, mut end) = (String::new(), false, behind.len());
        for (place, c) in behind.char_indices() {
            match (is_escaped, c) {
                (true, 'n') => value.push('\n'),
                (false, '\\') => {
                    is_escaped = true;
                    continue;
                }
                (false, '"') => {
                    end = place + 1;
                    break;
                }
                (_, c) => value.push(c),
            }
            is_escaped = false;
        }
        pairs.push((name.trim_start_matches(','), value));
        rest = &behind[end..];
    }
    pairs
}

fn attributes<'a>(labels: impl Iterator<Item = &'a (&'a str, String)>) -> Vec<KeyValue> {
    labels.map(|(name, value)| text(name, value)).collect()
}

impl Family<'_> {
    /// The data of the family, in parts of at most [`POINTS`] data points.
    fn data(&self, times: Times) -> Vec<(Data, usize)> {
        let cumulative = AggregationTemporality::Cumulative.into();
        if self.kind == "histogram" {
            let parts = self.histograms(times);
            let data = |points: &[HistogramDataPoint]| {
                let data = Histogram { data_points: points.to_vec(), aggregation_temporality: cumulative };
                (Data::Histogram(data), points.len())
            };
            return parts.chunks(POINTS).map(data).collect();
        }
        let is_counter = self.kind == "counter";
        let points: Vec<NumberDataPoint> = self.samples.iter().map(|sample| point(sample, times, is_counter)).collect();
        let data = |points: &[NumberDataPoint]| {
            let data_points = points.to_vec();
            let data = match is_counter {
                true => Data::Sum(Sum { data_points, aggregation_temporality: cumulative, is_monotonic: true }),
                false => Data::Gauge(Gauge { data_points }),
            };
            (data, points.len())
        };
        points.chunks(POINTS).map(data).collect()
    }

    /// The histograms: the samples of one follow one another, its buckets in the order of their bounds.
    fn histograms(&self, times: Times) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        let mut last = None;
        for sample in &self.samples {
            let labels: Vec<_> = sample.labels.iter().filter(|(name, _)| *name != "le").collect();
            if last.as_ref() != Some(&labels) {
                points.push(HistogramDataPoint {
                    attributes: attributes(labels.iter().copied()),
                    start_time_unix_nano: times.start,
                    time_unix_nano: times.now,
                    ..HistogramDataPoint::default()
                });
                last = Some(labels);
            }
            let Some(point) = points.last_mut() else { continue };
            match sample.suffix {
                "_sum" => point.sum = Some(sample.value),
                "_count" => point.count = sample.value as u64,
                _ => {
                    // The text counts all values up to a bound, a data point those of each bucket.
                    let below: u64 = point.bucket_counts.iter().sum();
                    point.bucket_counts.push((sample.value as u64).saturating_sub(below));
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                    point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
                }
            }
        }
        points
    }
}

fn point(sample: &Sample<'_>, times: Times, is_counter: bool) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(sample.labels.iter()),
        start_time_unix_nano: if is_counter { times.start } else { 0 },
        time_unix_nano: times.now,
        value: Some(Value::AsDouble(sample.value)),
        ..NumberDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family as Labelled;
    use prometheus_client::metrics::gauge::Gauge as Level;
    use prometheus_client::metrics::histogram::Histogram as Distribution;
    use prometheus_client::registry::Registry;

    fn read(text: &str) -> Vec<Metric> {
        let resource = Resource { version: "1".to_owned(), instance: "here".to_owned() };
        let times = (Timestamp::from_millis(1), Timestamp::from_millis(2));
        let requests = metrics(&resource, text, times);
        let decoded = requests.iter().map(|(body, count)| {
            let request = ExportMetricsServiceRequest::decode(&**body).unwrap();
            let metrics = request.resource_metrics[0].scope_metrics[0].metrics.clone();
            assert!(*count <= POINTS);
            metrics
        });
        decoded.flatten().collect()
    }

    #[test]
    fn each_kind_of_family_keeps_its_name_labels_and_values() {
        let mut registry = Registry::default();
        let polls = Labelled::<Vec<(String, String)>, Counter>::default();
        polls.get_or_create(&vec![("target".to_owned(), "a\"b\\c\nd,e=\"".to_owned())]).inc_by(7);
        registry.register("polls", "Polls", polls);
        let depth: Level = Level::default();
        depth.set(-3);
        registry.register("depth", "Queue depth", depth);
        let seconds = Distribution::new([0.1, 1.0]);
        [0.05, 0.5, 0.6, 9.0].into_iter().for_each(|value| seconds.observe(value));
        registry.register("seconds", "Durations", seconds);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let found = read(&text);
        let named: Vec<(&str, &str)> = found.iter().map(|metric| (&*metric.name, &*metric.description)).collect();
        assert_eq!(named, [("polls", "Polls"), ("depth", "Queue depth"), ("seconds", "Durations")], "{text}");
        let Some(Data::Sum(sum)) = &found[0].data else { panic!("{found:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1_000_000, 2_000_000));
        assert_eq!(point.value, Some(Value::AsDouble(7.0)));
        assert_eq!(point.attributes, [crate::text("target", "a\"b\\c\nd,e=\"")]);
        let Some(Data::Gauge(gauge)) = &found[1].data else { panic!("{found:?}") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(-3.0)));
        let Some(Data::Histogram(histogram)) = &found[2].data else { panic!("{found:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((&*point.bucket_counts, &*point.explicit_bounds), (&[1, 2, 1][..], &[0.1, 1.0][..]));
        assert_eq!((point.count, point.sum), (4, Some(10.15)));
    }

    #[test]
    fn many_data_points_are_several_requests() {
        let lines: String = (0..POINTS * 2 + 1).map(|n| format!("up{{target=\"t{n}\"}} 1\n")).collect();
        let text = format!("# HELP up Up.\n# TYPE up gauge\n{lines}# EOF\n");
        let resource = Resource { version: "1".to_owned(), instance: "here".to_owned() };
        let now = Timestamp::from_millis(2);
        let counts: Vec<usize> = metrics(&resource, &text, (now, now)).into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [POINTS, POINTS, 1]);
        assert_eq!(read("no metrics\n\n{ }\n# TYPE\n"), []);
    }
}
