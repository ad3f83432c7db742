//! Families of series that are encoded from present values at each scrape, without a copy of them.

use model::SampleKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Takes the labels and the value of one series.
pub(super) type Emit<'a> = dyn FnMut(&[(&str, &str)], f64) -> fmt::Result + 'a;

/// The series with one name. `each` passes every series to its argument and stops at the first error.
struct Family<F> {
    name: String,
    help: String,
    kind: SampleKind,
    each: F,
}

/// Adds a family, unless it has no series. `each` must not pass the same labels twice.
pub(super) fn register<F>(registry: &mut Registry, kind: SampleKind, name: &str, help: &str, each: F)
where
    F: Fn(&mut Emit<'_>) -> fmt::Result + Send + Sync + 'static,
{
    let is_empty = each(&mut |_, _| Err(fmt::Error)).is_ok();
    if !is_empty {
        // Registered metrics have the full stop as well.
        let (name, help) = (name.to_owned(), format!("{help}."));
        registry.register_collector(Box::new(Family { name, help, kind, each }));
    }
}

/// Adds a family that has one series, without labels.
pub(super) fn register_value(registry: &mut Registry, kind: SampleKind, name: &str, help: &str, value: f64) {
    register(registry, kind, name, help, move |emit| emit(&[], value));
}

impl<F> fmt::Debug for Family<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl<F> Collector for Family<F>
where
    F: Fn(&mut Emit<'_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metric_type = match self.kind {
            SampleKind::Gauge => MetricType::Gauge,
            SampleKind::Counter => MetricType::Counter,
            SampleKind::Untyped => MetricType::Unknown,
        };
        let mut family = encoder.encode_descriptor(&self.name, &self.help, None, metric_type)?;
        (self.each)(&mut |labels, value| match labels {
            [] => encode(self.kind, &mut family, value),
            labels => encode(self.kind, &mut family.encode_family(&labels)?, value),
        })
    }
}

fn encode(kind: SampleKind, encoder: &mut MetricEncoder<'_>, value: f64) -> fmt::Result {
    match kind {
        SampleKind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        SampleKind::Gauge | SampleKind::Untyped => encoder.encode_gauge(&value),
    }
}
