//! Puts the text of an alert into a header, in which references to secrets are replaced.

use polliwog_sdk::{CallError, Endpoint, Notification, http};

guests::notifier!("notifier-believes-an-alert", send);

fn send(_: &Endpoint, notification: &Notification) -> Result<(), CallError> {
    let request = http::Request::get("/").header("x-title", &notification.alerts[0].title);
    request.send()?.accepted().map(drop)
}
