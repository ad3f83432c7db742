//! Keeps which alerts of a notification were taken or refused, while it is sent in several requests.

use super::{Outbox, UNSTORED};
use model::{AlertProgress, Delivery, Moment};
use sandbox::Progress;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::oneshot;

/// A plugin waits this long at most until the outcome of an alert is on disk. Without a disk, an alert may be sent
/// twice.
const STORED: Duration = Duration::from_secs(2);

/// The progress of one delivery.
struct OfDelivery {
    outbox: Outbox,
    channel: String,
    number: u64,
}

impl Progress for OfDelivery {
    fn record(&self, progress: AlertProgress) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let Self { outbox, channel, number } = self;
            let now = outbox.0.parts.clock.now();
            let Some(changed) = outbox.with_progress(channel, *number, progress, now) else { return };
            let (stored, is_stored) = oneshot::channel();
            outbox.write_then(changed, Vec::new(), move || {
                // The plugin does not wait any longer.
                let _ = stored.send(());
            });
            let _ = tokio::time::timeout(STORED, is_stored).await;
        })
    }
}

impl Outbox {
    /// Records the progress of one delivery.
    pub(super) fn progress_of(&self, channel: &str, number: u64) -> impl Progress + use<> {
        OfDelivery { outbox: self.clone(), channel: channel.to_owned(), number }
    }

    /// Adds the outcome of an alert to a delivery that waits.
    fn with_progress(&self, channel: &str, number: u64, progress: AlertProgress, now: Moment) -> Option<Delivery> {
        let mut state = self.state();
        let channel = state.channels.get_mut(channel)?;
        let mut delivery = channel.delivery(number)?;
        delivery.progress.push(progress);
        channel.progressed(&delivery);
        channel.queue(delivery.clone(), now, Some(now.after(UNSTORED)));
        Some(delivery)
    }
}
