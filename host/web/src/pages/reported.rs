//! Properties of a dependency as its plugin reported them: contact, links, values.

use maud::{Markup, html};
use model::{Dependency, Sample, TargetState};
use std::collections::BTreeMap;

/// The maximum number of names that a dependency is shown to run on.
const NAMES: usize = 5;
/// The longest contact that is shown, in bytes.
const CONTACT: usize = 1024;
/// The maximum number of values that are shown of a dependency.
const VALUES: usize = 20;

/// The values of a contact as text.
pub(super) fn contact(contact: &model::Json) -> String {
    let Ok(members) = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(contact.as_str()) else {
        return String::new();
    };
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    model::clean(&members.into_values().map(text).collect::<Vec<_>>().join(", "), CONTACT)
}

/// The dependencies that one runs on.
pub(super) fn runs_on(reported: &Dependency) -> Markup {
    let names = reported.runs_on.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    html! {
        @if !names.is_empty() {
            small.note { "on " (names) @if reported.runs_on.len() > NAMES { " and " (reported.runs_on.len() - NAMES) " more" } }
        }
    }
}

/// The link to the user interface of the source. The plugin chose its address.
pub(super) fn source_link(reported: &Dependency) -> Markup {
    html! {
        @if let Some(link) = &reported.link {
            " " a.note href=(link) rel="noopener noreferrer nofollow" title=(link) { "open at the source ↗" }
        }
    }
}

/// The values that a target reports about one of its dependencies.
pub(super) fn values(target: &TargetState, dependency: &str) -> Markup {
    let of_it = |sample: &&Sample| sample.dependency.as_deref() == Some(dependency);
    let mut found = target.observed.samples.iter().filter(of_it).peekable();
    html! {
        @if found.peek().is_some() && !target.is_stale() {
            ul.plain.values {
                @for sample in found.take(VALUES) {
                    li title=[sample.help.as_deref()] { (shown_name(sample)) ": " span.number { (sample.value) @if let Some(unit) = &sample.unit { " " (unit) } } }
                }
            }
        }
    }
}

/// The name of a metric with its labels.
fn shown_name(sample: &Sample) -> String {
    let labels: Vec<String> = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if labels.is_empty() { sample.name.clone() } else { format!("{} ({})", sample.name, labels.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{target, with};
    use model::{SampleKind, Status};
    use std::sync::Arc;

    #[test]
    fn values_are_shown_at_the_dependency_that_they_are_about() {
        let sample = |name: &str, value, dependency: Option<&str>| Sample {
            unit: Some("celsius".into()),
            dependency: dependency.map(Into::into),
            ..Sample::new(name, SampleKind::Gauge, value)
        };
        let mut hot = sample("temperature_celsius", 41.5, Some("disk"));
        hot.labels.push(("sensor".to_owned(), "1".to_owned()));
        let samples = vec![hot, sample("other", 1.0, None), sample("load", 2.0, Some("cpu"))];
        let target = with(target("a"), |observed| observed.samples = Arc::new(samples));
        let html = values(&target, "disk").into_string();
        assert!(html.contains("temperature_celsius (sensor=1)") && html.contains("41.5 celsius"), "{html}");
        assert!(!html.contains("load") && !html.contains("other"), "{html}");
        assert_eq!(values(&target, "none").into_string(), "");
    }

    #[test]
    fn many_that_it_runs_on_are_counted() {
        let mut reported = Dependency::new("pool", Status::Ok);
        assert_eq!(runs_on(&reported).into_string(), "");
        reported.runs_on = (1..=7).map(|n| format!("disk{n}")).collect();
        let html = runs_on(&reported).into_string();
        assert!(html.contains("disk5 and 2 more") && !html.contains("disk6"), "{html}");
    }
}
