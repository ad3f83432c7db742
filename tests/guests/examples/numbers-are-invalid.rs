//! Reports invalid numbers: NaN, infinite, negative.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, Sample};

guests::guest!("numbers-are-invalid", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0, f64::MAX, f64::MIN_POSITIVE];
    let dependency = |(index, latency): (usize, &f64)| Dependency {
        latency_ms: Some(*latency),
        ..Dependency::ok(index.to_string())
    };
    let samples = odd.iter().map(|value| Sample::gauge("g", *value)).collect();
    let far = Dependency { checked_at: Some(i64::MAX), code: Some(i32::MIN), ..Dependency::ok("far") };
    let dependencies = odd.iter().enumerate().map(dependency).chain([far]).collect();
    Ok(Report { dependencies, samples, ..Report::empty() })
}
