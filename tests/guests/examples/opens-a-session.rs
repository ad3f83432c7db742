//! Logs in with a refresh token that survives a restart, and logs out.

use polliwog_sdk::http::{CaptureSource, Request, forget_secret, has_secret, secret};
use polliwog_sdk::{CallError, Dependency, Endpoint, NoSettings, Report, Session};
use std::time::Duration;

mod guest {
    guests::guest!("opens-a-session", super::poll);

    #[cfg(target_arch = "wasm32")]
    const _: () = {
        type Export = polliwog_sdk::Exported<Guest>;
        polliwog_sdk::bindings::export_session!(Export with_types_in polliwog_sdk::bindings);
    };
}

const HOUR: Duration = Duration::from_secs(3600);

impl Session for guest::Guest {
    type Settings = NoSettings;

    fn close(_: &Endpoint, _: NoSettings) {
        let mut request = Request::new("POST", "/logout");
        for name in ["ticket", "refresh"] {
            if has_secret(name) {
                request = request.header(name, secret(name));
            }
        }
        let _ = request.send();
    }
}

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    if !has_secret("ticket") {
        let request = match has_secret("refresh") {
            true => Request::new("POST", "/renew").header("refresh", secret("refresh")),
            false => Request::new("POST", "/login"),
        };
        let value = |name: &str| CaptureSource::JsonPointer(format!("/{name}"));
        let answer = request
            .capture_durable("refresh", value("refresh"), HOUR)
            .capture("ticket", value("ticket"), HOUR)
            .send()
            .map_err(CallError::from)?
            .success();
        if answer.is_err() {
            forget_secret("refresh");
        }
        answer?;
    }
    Request::get("/state").header("ticket", secret("ticket")).send().map_err(CallError::from)?.success()?;
    Ok([Dependency::ok("state")].into_iter().collect())
}
