//! The labels of a target's series.

use metrics::{INSTANCE, INSTANCE_TYPE};
use model::TargetState;
use std::sync::Arc;

/// The targets of one scrape.
pub(super) type Targets = Arc<Vec<Arc<TargetState>>>;

/// The labels that name a target.
pub(super) fn instance(target: &TargetState) -> [(&str, &str); 2] {
    [(INSTANCE_TYPE, target.info.kind.as_str()), (INSTANCE, target.info.id.as_str())]
}

/// A target's constant labels. A label from the configuration is renamed if Prometheus would refuse its name.
pub(super) fn info(target: &TargetState) -> Vec<(String, &str)> {
    let info = &target.info;
    let known = [("name", &*info.name), ("url", &info.url), ("kind", info.kind.as_str())];
    let mut labels: Vec<(String, &str)> =
        instance(target).into_iter().chain(known).map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in &info.labels {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut plain: String = name.chars().map(plain).collect();
        let taken = |name: &str| labels.iter().any(|(held, _)| held == name);
        if plain.starts_with(|c: char| c.is_ascii_digit()) || plain.starts_with("__") || taken(&plain) {
            plain = format!("label_{plain}");
        }
        if !taken(&plain) {
            labels.push((plain, value));
        }
    }
    labels
}
