//! One GET request and a parser: a JSON object of queue names and how many messages wait in each.
//!
//! `cargo build --example queue_depth --target wasm32-wasip2`

use polliwog_sdk::prelude::*;
use std::collections::BTreeMap;

polliwog_sdk::register! {
    kind: "queue-depth",
    title: "Queue depths",
    summary: "How many messages wait in each queue",
    parse: queues,
}

fn queues(body: &[u8]) -> Result<Report, CallError> {
    let depths: BTreeMap<String, u64> = json(body)?;
    let mut report = Report::empty();
    for (queue, depth) in depths {
        let dependency = match depth {
            0..1000 => Dependency::ok(&queue),
            _ => Dependency::warning(&queue, format!("{depth} messages wait")),
        };
        report.dependencies.push(dependency.with_kind("queue"));
        let sample =
            Sample::gauge("queue_messages", depth as f64).with_help("Messages that wait").with_label("queue", &queue);
        report.samples.push(sample.about(queue));
    }
    Ok(report)
}
