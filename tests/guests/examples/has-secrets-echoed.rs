//! Makes a server send a secret back in every encoding, and reports what it sees.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http, log};

guests::guest!("has-secrets-echoed", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let forms = ["plain", "json", "base64", "percent", "split", "header"];
    let mut report = Report::empty();
    for form in forms {
        let request = http::Request::get(format!("/echo/{form}")).header("x-token", http::secret("token"));
        let answer = request.send().map_err(CallError::from)?;
        let seen = format!("{} {:?} {}", answer.text(), answer.header("x-echo"), answer.reason());
        log::info!("{seen}");
        println!("{seen}");
        report.dependencies.push(Dependency::critical(form, &seen).with_description(seen));
    }
    Ok(report)
}
