//! A rate from a counter: the plugin stores the last value, which survives restarts of the host and new versions.
//!
//! `cargo build --example counter --target wasm32-wasip2`

use polliwog_sdk::prelude::*;
use polliwog_sdk::store;

polliwog_sdk::register! {
    kind: "counter",
    title: "Errors per minute",
    summary: "How fast the number of errors of a service grows",
    parse: rate,
}

/// The counter of the service.
#[derive(Deserialize)]
struct Counter {
    errors: u64,
}

/// The value at the poll before: its time in milliseconds, and the counter.
#[derive(Debug, Deserialize, polliwog_sdk::serde::Serialize, PartialEq)]
#[serde(crate = "polliwog_sdk::serde")]
struct Before {
    at: i64,
    errors: u64,
}

fn rate(body: &[u8]) -> Result<Report, CallError> {
    let (now, counter): (i64, Counter) = (clock::now(), json(body)?);
    let before: Option<Before> =
        store::get("before").and_then(|value| polliwog_sdk::serde_json::from_slice(&value).ok());
    let value = polliwog_sdk::serde_json::to_vec(&Before { at: now, errors: counter.errors });
    let stored = value.ok().map(|value| store::set("before", &value));
    let mut report: Report = [evaluate(now, &counter, before)].into_iter().collect();
    if !matches!(stored, Some(Ok(()))) {
        report.warn("the counter could not be stored: the next poll knows no rate");
    }
    report.samples.push(
        Sample::counter("errors_total", counter.errors as f64).with_help("Errors of the service").about("errors"),
    );
    Ok(report)
}

fn evaluate(now: i64, counter: &Counter, before: Option<Before>) -> Dependency {
    // A counter that fell has begun again.
    let Some(before) = before.filter(|before| before.errors <= counter.errors && before.at < now) else {
        return Dependency::unknown("errors", "the rate is known from the next poll on");
    };
    let minutes = (now - before.at) as f64 / 60_000.0;
    let rate = (counter.errors - before.errors) as f64 / minutes;
    match rate {
        0.0..10.0 => Dependency::ok("errors"),
        _ => Dependency::warning("errors", format!("{rate:.1} errors a minute")),
    }
}
