//! Keeps more unchecked dependencies than a report may have.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("too-many-gone", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    Ok(Report { gone: (0..25_001).map(|number| number.to_string()).collect(), ..Report::empty() })
}
