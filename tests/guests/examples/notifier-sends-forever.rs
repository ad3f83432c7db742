//! Sends requests until it is stopped.

use polliwog_sdk::{CallError, Endpoint, Notification, http};

guests::notifier!("notifier-sends-forever", send);

fn send(_: &Endpoint, _: &Notification) -> Result<(), CallError> {
    loop {
        http::Request::get("/").send()?;
    }
}
