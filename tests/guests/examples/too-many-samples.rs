//! Reports one sample more than a report may have.

use polliwog_sdk::{CallError, Endpoint, Report, Sample};

guests::guest!("too-many-samples", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let samples = (0..100_001).map(|number| Sample::gauge("g", f64::from(number))).collect();
    Ok(Report { samples, ..Report::empty() })
}
