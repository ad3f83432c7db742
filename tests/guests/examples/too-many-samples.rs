//! Reports one sample more than a report may have.

use polliwog_sdk::{PollError, Report, Sample, Target};

guests::guest!("too-many-samples", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let samples = (0..100_001).map(|number| Sample::gauge("g", f64::from(number))).collect();
    Ok(Report { samples, ..Report::empty() })
}
