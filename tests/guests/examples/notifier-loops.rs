//! Never returns from sending.

use polliwog_sdk::{CallError, Endpoint, Notification};

guests::notifier!("notifier-loops", send);

fn send(_: &Endpoint, _: &Notification) -> Result<(), CallError> {
    loop {
        std::hint::black_box(0);
    }
}
