//! Sends more requests than the end of a session may, and never returns from it.

use polliwog_sdk::http::{CaptureSource, Request};
use polliwog_sdk::{CallError, Dependency, Endpoint, NoSettings, Report, Session};
use std::hint::black_box;
use std::time::Duration;

mod guest {
    guests::guest!("close-never-ends", super::poll);

    #[cfg(target_arch = "wasm32")]
    const _: () = {
        type Export = polliwog_sdk::Exported<Guest>;
        polliwog_sdk::bindings::export_session!(Export with_types_in polliwog_sdk::bindings);
    };
}

impl Session for guest::Guest {
    type Settings = NoSettings;

    fn close(_: &Endpoint, _: NoSettings) {
        for _ in 0..20 {
            let _ = Request::new("POST", "/logout").send();
        }
        loop {
            black_box(());
        }
    }
}

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let ticket = CaptureSource::JsonPointer("/ticket".to_owned());
    let request = Request::new("POST", "/login").capture_optional("ticket", ticket, Duration::from_secs(3600));
    let _ = request.send();
    Ok([Dependency::ok("state")].into_iter().collect())
}
