//! Keeps more memory than a call may have.

use polliwog_sdk::{CallError, Endpoint, Notification};

guests::notifier!("notifier-fills-memory", send);

fn send(_: &Endpoint, _: &Notification) -> Result<(), CallError> {
    let mut kept = Vec::new();
    loop {
        kept.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&kept);
    }
}
