//! Ends the sessions with the receivers of channels.

use super::Outbox;
use super::sender::Sender;
use crate::sessions::{self, End, LAST};
use crate::target::RuntimeTarget;
use futures_util::future::join_all;
use sandbox::Closing;
use std::sync::Arc;

/// A channel whose session ends, and its sender so far.
pub(super) type Ending = (Arc<RuntimeTarget>, Option<Sender>, End);

impl Outbox {
    /// Ends the sessions of channels that are gone or changed, and forgets what their plugins kept in memory.
    pub(super) fn end_sessions(&self, channels: Vec<Ending>) {
        for ending in channels {
            sessions::close(&self.0.parts.sandbox, &ending.0, self.taken(&ending), None);
        }
    }

    /// Ends the sessions of all channels, as far as the time suffices.
    pub(super) async fn end_all_sessions(&self) {
        let runtimes: Vec<_> = self.state().channels.values().filter_map(|channel| channel.runtime.clone()).collect();
        let endings = runtimes.into_iter().map(|(channel, sender)| (channel, sender, End::Paused));
        let sandbox = &self.0.parts.sandbox;
        let ended = join_all(endings.filter_map(|ending| self.taken(&ending)).map(|closing| sandbox.close(closing)));
        if tokio::time::timeout(LAST, ended).await.is_err() {
            tracing::warn!("some sessions of channels were not ended within {LAST:?}");
        }
    }

    fn taken(&self, (channel, sender, end): &Ending) -> Option<Closing> {
        let plugin = if let Some(Sender::Plugin(served)) = sender { Some(&served.plugin) } else { None };
        let parts = &self.0.parts;
        sessions::take(&parts.sandbox, channel, plugin, (*end, parts.clock.wall()))
    }
}
