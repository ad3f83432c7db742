//! Events as log records.

use crate::{Resource, attribute, nanos, plain, text};
use model::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message;
use serde_json::Value;

/// The severity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing to do.
    Info,
    /// It may need attention.
    Warn,
    /// Something is broken.
    Error,
}

/// A log record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it happened.
    pub at: Timestamp,
    /// The severity.
    pub severity: Severity,
    /// The name of the event, such as `status:change`.
    pub event: &'static str,
    /// One sentence.
    pub body: String,
    /// The fields of the event: an object.
    pub fields: Value,
}

impl Record {
    fn wire(&self) -> LogRecord {
        let (number, word) = match self.severity {
            Severity::Info => (SeverityNumber::Info, "INFO"),
            Severity::Warn => (SeverityNumber::Warn, "WARN"),
            Severity::Error => (SeverityNumber::Error, "ERROR"),
        };
        let fields = self.fields.as_object().into_iter().flatten();
        let fields = fields.filter_map(|(name, value)| field(&format!("polliwog.{name}"), value));
        LogRecord {
            time_unix_nano: nanos(self.at),
            observed_time_unix_nano: nanos(self.at),
            severity_number: number.into(),
            severity_text: word.to_owned(),
            body: Some(AnyValue { value: Some(any_value::Value::StringValue(plain(&self.body))) }),
            attributes: fields.collect(),
            event_name: self.event.to_owned(),
            ..LogRecord::default()
        }
    }
}

/// A field as an attribute. `None` for a value that says nothing.
fn field(name: &str, value: &Value) -> Option<KeyValue> {
    match value {
        Value::Null => None,
        Value::Bool(value) => Some(attribute(name, any_value::Value::BoolValue(*value))),
        Value::Number(number) => Some(attribute(
            name,
            match number.as_i64() {
                Some(whole) => any_value::Value::IntValue(whole),
                None => any_value::Value::DoubleValue(number.as_f64().unwrap_or(f64::NAN)),
            },
        )),
        Value::String(value) => Some(text(name, value)),
        Value::Array(_) | Value::Object(_) => Some(text(name, &value.to_string())),
    }
}

/// Writes records as the body of a request.
pub fn logs(resource: &Resource, records: &[Record]) -> Vec<u8> {
    let scope_logs = vec![ScopeLogs {
        scope: Some(resource.scope()),
        log_records: records.iter().map(Record::wire).collect(),
        ..ScopeLogs::default()
    }];
    let resource_logs = vec![ResourceLogs { resource: Some(resource.wire()), scope_logs, ..ResourceLogs::default() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_a_record_with_its_fields_as_attributes() {
        let resource = Resource { version: "1.2.3".to_owned(), instance: "here".to_owned() };
        let record = Record {
            at: Timestamp::from_millis(1_500),
            severity: Severity::Error,
            event: "status:change",
            body: "refused ${secret.token}".to_owned(),
            fields: json!({ "serviceId": "shop", "healthy": false, "count": 3, "ms": 1.5, "error": null, "list": [1] }),
        };
        let request = ExportLogsServiceRequest::decode(&*logs(&resource, &[record])).unwrap();
        let [of_resource] = &request.resource_logs[..] else { panic!("{request:?}") };
        let named: Vec<&str> = of_resource.resource.as_ref().unwrap().attributes.iter().map(|a| &*a.key).collect();
        assert_eq!(named, ["service.name", "service.version", "service.instance.id"]);
        let found = &of_resource.scope_logs[0].log_records[0];
        assert_eq!(
            (found.time_unix_nano, found.severity_number, &*found.event_name),
            (1_500_000_000, 17, "status:change")
        );
        assert_eq!(
            found.body,
            Some(AnyValue { value: Some(any_value::Value::StringValue("refused $ {secret.token}".to_owned())) })
        );
        let value = |name: &str| {
            let found = found.attributes.iter().find(|attribute| attribute.key == name);
            found.and_then(|attribute| attribute.value.clone()?.value)
        };
        assert_eq!(value("polliwog.serviceId"), Some(any_value::Value::StringValue("shop".to_owned())));
        assert_eq!(value("polliwog.healthy"), Some(any_value::Value::BoolValue(false)));
        assert_eq!(value("polliwog.count"), Some(any_value::Value::IntValue(3)));
        assert_eq!(value("polliwog.ms"), Some(any_value::Value::DoubleValue(1.5)));
        assert_eq!(value("polliwog.list"), Some(any_value::Value::StringValue("[1]".to_owned())));
        assert_eq!(value("polliwog.error"), None);
    }
}
