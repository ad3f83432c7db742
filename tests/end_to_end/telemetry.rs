//! Events and metrics at a collector of OpenTelemetry, decoded by the protocol's own definitions.

use crate::notifying::switched;
use crate::operating::target;
use crate::receiver::{Received, Receiver};
use crate::support::{Host, Server, folder, ok, output, until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// The log records of each request to a collector.
fn requests(collector: &Receiver) -> Vec<Vec<LogRecord>> {
    let of_logs = collector.all().into_iter().filter(|received| received.path == "/otlp/v1/logs");
    let decoded = of_logs.map(|received| ExportLogsServiceRequest::decode(&*received.body).unwrap());
    let records = |request: ExportLogsServiceRequest| {
        let of_resource = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs);
        of_resource.flat_map(|logs| logs.log_records).collect()
    };
    decoded.map(records).collect()
}

fn records(collector: &Receiver) -> Vec<LogRecord> {
    requests(collector).into_iter().flatten().collect()
}

/// The names of the metrics that a collector took.
fn metrics(collector: &Receiver) -> BTreeSet<String> {
    let of_metrics = |received: &Received| received.path == "/otlp/v1/metrics";
    let requests = collector.all().into_iter().filter(of_metrics);
    let decoded = requests.map(|received| ExportMetricsServiceRequest::decode(&*received.body).unwrap());
    let of_resource = decoded.flat_map(|request| request.resource_metrics);
    of_resource.flat_map(|all| all.scope_metrics).flat_map(|all| all.metrics).map(|metric| metric.name).collect()
}

fn config(server: &Server, collector: &str, token: &Path) -> String {
    format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n[otlp]\nurl = \"{collector}\"\nmetrics = \"1s\"\n\
         headers = {{ Authorization = \"Bearer ${{secret.token}}\" }}\nsecrets = {{ token = {{ file = \"{}\" }} }}\n{}",
        token.display(),
        target("shop", &server.url("/shop"), "")
    )
}

#[test]
fn changes_and_metrics_arrive_even_after_a_time_without_a_collector() {
    let (_keep, folder) = folder();
    let (broken, token) = (folder.join("broken"), folder.join("token"));
    fs::write(&token, "a-secret-token").unwrap();
    let server = Server::start(vec![("/shop", switched(&broken, "token"))]);
    // The first two requests with logs are refused for a time, as by a collector with a wrong token.
    let refused = AtomicUsize::new(0);
    let collector = Receiver::start(Arc::new(move |_, received: &Received| {
        let is_refused = received.path.ends_with("logs") && refused.fetch_add(1, Ordering::Relaxed) < 2;
        match is_refused {
            true => Some(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 4\r\n\r\nbusy".to_vec()),
            false => Some(ok("")),
        }
    }));
    let host = Host::start(&folder, &config(&server, &collector.url("/otlp"), &token));
    until("polls", || server.count("/shop"), |count| *count > 0);
    fs::write(&broken, "").unwrap();
    let change = |record: &LogRecord| record.event_name == "status:change";
    let found = until("the change arrives", || records(&collector).into_iter().find(change), Option::is_some).unwrap();
    assert_eq!((text(found.body.as_ref()).as_str(), &*found.severity_text), ("shop: db: ok → critical", "ERROR"));
    let attribute = |name: &str| {
        text(found.attributes.iter().find(|attribute| attribute.key == name).and_then(|found| found.value.as_ref()))
    };
    assert_eq!(attribute("polliwog.currentStatus"), "critical");
    assert_eq!(attribute("polliwog.dependencyName"), "db");
    let alert = |record: &LogRecord| record.event_name == "alert:firing";
    let fired = until("the alert arrives", || records(&collector).into_iter().find(alert), Option::is_some).unwrap();
    assert!(text(fired.body.as_ref()).ends_with("refused $ {secret.token}"), "{fired:?}");
    until("metrics arrive", || metrics(&collector), |named| named.contains("polliwog_target_up"));
    // A refused request comes again whole.
    let requests = until("a third request", || requests(&collector), |all| all.len() > 2);
    assert!(!requests[0].is_empty() && requests[0].iter().all(|record| requests[2].contains(record)), "{requests:?}");
    for received in collector.all() {
        assert_eq!(received.header("authorization"), "Bearer a-secret-token");
        assert_eq!(received.header("content-type"), "application/x-protobuf");
    }
    assert!(!host.log.lock().unwrap().contains("a-secret-token"));
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_collector_that_does_not_answer_is_an_alert_and_delays_nothing() {
    let (_keep, folder) = folder();
    let token = folder.join("token");
    fs::write(&token, "a-secret-token").unwrap();
    let server = Server::start(vec![("/shop", switched(&folder.join("broken"), "token"))]);
    let host = Host::start(&folder, &config(&server, "http://127.0.0.1:1", &token));
    let alert = || host.get("/api/v1/alerts?state=firing")["alerts"].clone();
    let found = until("it is an alert", alert, |all| all.as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!((&found[0]["class"], &found[0]["name"]), (&"host".into(), &"otlp".into()), "{found}");
    assert!(found[0]["message"].as_str().unwrap().contains("nothing listens"), "{found}");
    let polls = server.count("/shop");
    until("polls go on", || server.count("/shop"), |count| *count > polls + 3);
    assert_eq!(host.terminate(), 0);
    // A secret that cannot be read is found before anything starts.
    fs::remove_file(&token).unwrap();
    let (code, out, why) = output(&folder, &["check"]);
    assert!(
        code != 0 && format!("{out}{why}").contains("[otlp]: the secret \"token\": there is no file"),
        "{out}{why}"
    );
}
