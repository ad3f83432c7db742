//! Sends requests until it is stopped.

use polliwog_sdk::{Channel, Notification, SendError, http};

guests::notifier!("notifier-sends-forever", send);

fn send(_: &Channel, _: &Notification) -> Result<(), SendError> {
    loop {
        http::Request::get("/").send()?;
    }
}
