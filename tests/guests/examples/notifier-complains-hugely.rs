//! Fails with a text of a megabyte.

use polliwog_sdk::{CallError, Endpoint, Notification};

guests::notifier!("notifier-complains-hugely", send);

fn send(_: &Endpoint, _: &Notification) -> Result<(), CallError> {
    Err(CallError::permanent("refused", "no\n".repeat(350_000)))
}
