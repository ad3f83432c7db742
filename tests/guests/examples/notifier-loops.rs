//! Never returns from sending.

use polliwog_sdk::{Channel, Notification, SendError};

guests::notifier!("notifier-loops", send);

fn send(_: &Channel, _: &Notification) -> Result<(), SendError> {
    loop {
        std::hint::black_box(0);
    }
}
