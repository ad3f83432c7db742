//! Kind `{{kind}}`: how many messages wait in each queue, from a JSON object of names and numbers. This is an example:
//! replace it with your own service.

use polliwog_sdk::lenient;
use polliwog_sdk::prelude::*;
use std::collections::BTreeMap;

/// The plugin.
pub struct Queues;

/// The settings under `[target.settings]`. Operators see the doc comments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// More messages than this are a warning.
    pub warning: f64,
    /// More messages than this are critical.
    pub critical: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { warning: 100.0, critical: 1000.0 }
    }
}

impl Poller for Queues {
    type Settings = Settings;
    const INFO: Info = Info {
        kind: "{{kind}}",
        title: "{{title}}",
        version: env!("CARGO_PKG_VERSION"),
        summary: "How many messages wait in each queue",
        ..Info::SERVICE
    };

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        let wrong = settings.warning > settings.critical;
        wrong.then(|| SettingsProblem::at("/warning", "it is above critical: swap them")).into_iter().collect()
    }

    fn poll(_: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        // Request the target's URL. Errors and statuses other than 2xx become failures.
        let response = http::get("")?;
        read(response.body(), &settings)
    }
}

polliwog_sdk::register!(Queues);

fn read(body: &[u8], settings: &Settings) -> Result<Report, CallError> {
    // Numbers, or numbers in quotes: real services send both.
    let queues: BTreeMap<String, lenient::Number> = json(body)?;
    let mut report = Report::empty();
    for (name, lenient::Number(waiting)) in queues {
        let message = format!("{waiting} messages wait");
        let queue = match waiting {
            n if n > settings.critical => Dependency::critical(&name, message),
            n if n > settings.warning => Dependency::warning(&name, message),
            _ => Dependency::ok(&name),
        };
        report.dependencies.push(queue.with_kind("queue"));
        report.samples.push(Sample::gauge("queue_messages", waiting).with_label("queue", &name).about(name));
    }
    log::debug!("{} queues", report.dependencies.len());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::{self, Recording};

    #[test]
    fn the_status_of_a_queue_depends_on_its_length() {
        let recording = Recording::of_body(r#"{"mail": 3, "orders": "120", "invoices": 5000}"#);
        let report = testing::poll::<Queues>(recording, testing::target("{}")).unwrap();
        let found: Vec<_> = report.dependencies.iter().map(|queue| (queue.name.as_str(), queue.status)).collect();
        assert_eq!(found, [("invoices", Status::Critical), ("mail", Status::Ok), ("orders", Status::Warning)]);
    }

    #[test]
    fn the_recording_produces_three_dependencies() {
        let recording = Recording::parse(include_str!("../recordings/queues.json"));
        let target = recording.target();
        assert_eq!(testing::poll::<Queues>(recording, target).unwrap().dependencies.len(), 3);
    }

    #[test]
    fn invalid_settings_are_refused() {
        assert_eq!(testing::check_settings::<Queues>(r#"{"warning": 5, "critical": 1}"#).len(), 1);
    }
}
