//! Reports samples with the host's reserved names.

use polliwog_sdk::{CallError, Endpoint, Report, Sample};

guests::guest!("metrics-are-the-hosts", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let names = ["polliwog_poll_total", "pulse_monitor_poll_total", "scheduler_jobs_processed_total", "mine"];
    Ok(Report { samples: names.iter().map(|name| Sample::gauge(*name, 1.0)).collect(), ..Report::empty() })
}
