//! Logs and metrics for a collector of OpenTelemetry, by OTLP over HTTP with protobuf
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).
//!
//! - [`logs`] writes events as log records, [`metrics`] writes the text of `/metrics` as data points. Both are pure.
//! - [`Collector`] sends them, through `egress`, and says whether another attempt may succeed.
//! - [`Queue`] keeps records while the collector does not take them, and counts what does not fit.

#![forbid(unsafe_code)]

mod collector;
mod exposition;
mod queue;
mod records;

pub use collector::{Collector, Refusal, Signal};
pub use exposition::metrics;
pub use queue::{Counters, Queue};
pub use records::{Record, Severity, logs};

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1;

/// The process that everything comes from.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The version of the program.
    pub version: String,
    /// The name of this installation, which distinguishes it from others.
    pub instance: String,
}

impl Resource {
    fn wire(&self) -> v1::Resource {
        let attributes =
            [("service.name", "polliwog"), ("service.version", &self.version), ("service.instance.id", &self.instance)];
        v1::Resource { attributes: attributes.map(|(key, value)| text(key, value)).into(), ..v1::Resource::default() }
    }

    fn scope(&self) -> InstrumentationScope {
        InstrumentationScope {
            name: "polliwog".to_owned(),
            version: self.version.clone(),
            ..InstrumentationScope::default()
        }
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(plain(value)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Texts come from targets: `egress` must not read a reference to a secret in them.
fn plain(text: &str) -> String {
    text.replace("${", "$ {")
}

/// The nanoseconds since the Unix epoch.
fn nanos(at: model::Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}
