//! Ends the sessions of plugins with the receivers of channels.

use super::Outbox;
use super::sender::Sender;
use crate::target::RuntimeTarget;
use egress::Tape;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// The time for the sessions of all channels when the host ends.
const LAST: Duration = Duration::from_secs(5);

impl Outbox {
    /// Ends the sessions of channels that are gone or changed, and forgets what their plugins kept in memory. The bool
    /// says whether a channel has another receiver now, or none.
    pub(super) fn end_sessions(&self, channels: Vec<(Arc<RuntimeTarget>, Option<Sender>, bool)>) {
        let parts = &self.0.parts;
        let sandbox = &parts.sandbox;
        for (channel, sender, is_gone) in channels {
            let plugin = if let Some(Sender::Plugin(served)) = &sender { Some(&served.plugin) } else { None };
            let job = plugin.map(|plugin| channel.job(plugin, parts.clock.wall(), Tape::Off));
            let closing = job.and_then(|job| match is_gone {
                true => sandbox.last_session(job),
                false => sandbox.forget_session(job),
            });
            if is_gone {
                sandbox.forget(channel.id(), &channel.config.kind);
            }
            if let Some(closing) = closing {
                let work = (sandbox.clone(), closing);
                sandbox.lanes().spawn_all([(channel.id().clone(), work)], |(sandbox, closing)| async move {
                    sandbox.close(closing).await;
                });
            }
        }
    }

    /// Ends the sessions of all channels, as far as the time suffices.
    pub(super) async fn end_all_sessions(&self) {
        let parts = &self.0.parts;
        let runtimes: Vec<_> = self.state().channels.values().filter_map(|channel| channel.runtime.clone()).collect();
        let closing = runtimes.into_iter().filter_map(|(channel, sender)| {
            let Some(Sender::Plugin(served)) = sender else { return None };
            parts.sandbox.forget_session(channel.job(&served.plugin, parts.clock.wall(), Tape::Off))
        });
        let ended = join_all(closing.map(|closing| parts.sandbox.close(closing)));
        if tokio::time::timeout(LAST, ended).await.is_err() {
            tracing::warn!("some sessions of channels were not ended within {LAST:?}");
        }
    }
}
