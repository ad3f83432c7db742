//! Fails with a text of a megabyte.

use polliwog_sdk::{Channel, Notification, SendError};

guests::notifier!("notifier-complains-hugely", send);

fn send(_: &Channel, _: &Notification) -> Result<(), SendError> {
    Err(SendError::permanent("refused", "no\n".repeat(350_000)))
}
