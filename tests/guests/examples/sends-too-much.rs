//! Sends a body of 40 MB.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("sends-too-much", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let request = http::Request::new(http::Method::Post, "/").body(vec![0; 40 << 20], http::BodyEncoding::Raw);
    request.send()?;
    Ok(Report::empty())
}
