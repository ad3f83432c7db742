//! Makes a server send the channel's secret back, and returns what it sees.

use polliwog_sdk::{CallError, Endpoint, Notification, http, log};

guests::notifier!("notifier-has-its-secret-echoed", send);

fn send(_: &Endpoint, _: &Notification) -> Result<(), CallError> {
    let mut seen = String::new();
    for form in ["plain", "json", "base64", "percent"] {
        let answer = http::Request::get(format!("/echo/{form}")).header("x-token", http::secret("token")).send()?;
        seen.push_str(&answer.text());
    }
    log::info!("{seen}");
    println!("{seen}");
    Err(CallError::permanent("echoed", seen))
}
