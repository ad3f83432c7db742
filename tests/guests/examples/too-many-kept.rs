//! Keeps more unchecked dependencies than a report may have.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("too-many-kept", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    Ok(Report { kept: (0..25_001).map(|number| number.to_string()).collect(), ..Report::empty() })
}
