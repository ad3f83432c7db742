//! Makes a server send the channel's secret back, and returns what it sees.

use polliwog_sdk::{Channel, Notification, SendError, http, log};

guests::notifier!("notifier-has-its-secret-echoed", send);

fn send(_: &Channel, _: &Notification) -> Result<(), SendError> {
    let mut seen = String::new();
    for form in ["plain", "json", "base64", "percent"] {
        let answer = http::Request::get(format!("/echo/{form}")).header("x-token", "${secret.token}").send()?;
        seen.push_str(&answer.text());
    }
    log::info!("{seen}");
    println!("{seen}");
    Err(SendError::permanent("echoed", seen))
}
