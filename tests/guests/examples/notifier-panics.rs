//! Panics while it sends.

use polliwog_sdk::{Channel, Notification, SendError};

guests::notifier!("notifier-panics", send);

fn send(_: &Channel, notification: &Notification) -> Result<(), SendError> {
    panic!("{} alerts are too many", notification.alerts.len())
}
