//! Uses no CPU itself, but makes the host search for secrets in 30 MiB of escapes.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("exhausts-masking", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for _ in 0..30 {
        let request = http::Request::get("/echo/escapes").header("x-token", http::secret("token"));
        std::hint::black_box(request.send().map_err(CallError::from)?);
    }
    let mut report = Report::empty();
    report.dependencies.push(Dependency::ok("masked"));
    Ok(report)
}
