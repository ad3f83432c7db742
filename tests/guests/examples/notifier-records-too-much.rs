//! Records the progress of alerts that the notification does not contain, and of the same alert again and again, then
//! panics.

use polliwog_sdk::{Alert, CallError, Endpoint, Failure, Notification, progress};

guests::notifier!("notifier-records-too-much", send);

fn send(_: &Endpoint, notification: &Notification) -> Result<(), CallError> {
    let own = &notification.alerts[0];
    for number in 0..200 {
        progress::sent(&Alert { fingerprint: format!("other-{number}"), ..own.clone() });
        progress::refused(own, Failure::new("Bad Code", "no\u{1b}[31m".repeat(1000)));
    }
    panic!("it has told enough")
}
