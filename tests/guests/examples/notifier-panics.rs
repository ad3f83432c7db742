//! Panics while it sends.

use polliwog_sdk::{CallError, Endpoint, Notification};

guests::notifier!("notifier-panics", send);

fn send(_: &Endpoint, notification: &Notification) -> Result<(), CallError> {
    panic!("{} alerts are too many", notification.alerts.len())
}
