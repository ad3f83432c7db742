//! Sends a body of 33 MiB.

use polliwog_sdk::{CallError, Endpoint, Report, http};

guests::guest!("sends-too-much", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let request = http::Request::new("POST", "/").body(vec![0; 33 << 20], http::BodyEncoding::Raw);
    request.send()?;
    Ok(Report::empty())
}
