//! Sends to addresses that are not the channel's.

use polliwog_sdk::{CallError, Endpoint, Notification, http};

guests::notifier!("notifier-sends-elsewhere", send);

fn send(channel: &Endpoint, _: &Notification) -> Result<(), CallError> {
    let host = channel.url.trim_start_matches("http://");
    for url in ["http://169.254.169.254/", "http://localhost/", "https://example.com/", &format!("http://evil@{host}")]
    {
        match http::Request::post_json(url, &polliwog_sdk::serde_json::json!({})).send() {
            Err(error) if matches!(error.code.as_str(), "denied" | "bad_request") => {}
            Err(error) => return Err(CallError::permanent(error.code, url)),
            Ok(_) => return Err(CallError::permanent("reached", url)),
        }
    }
    Err(CallError::permanent("all_denied", "every other address was denied"))
}
