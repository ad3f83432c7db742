//! Families of series, built from values at each scrape.

use metrics::Labels;
use prometheus_client::metrics::family::Family;

/// The labels and the value of one series.
pub(super) type Value = (Labels, f64);

/// Builds a family of these series; `set` sets the value of each metric.
pub(super) fn family<M: Default, R>(values: &[Value], set: impl Fn(&M, f64) -> R) -> Family<Labels, M> {
    let family = Family::<Labels, M>::default();
    for (labels, value) in values {
        set(&family.get_or_create(labels), *value);
    }
    family
}
