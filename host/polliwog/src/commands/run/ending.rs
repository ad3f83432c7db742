//! The end of a host: the signals that ask for it, and the shutdown.

use crate::web_host::ENDING;
use anyhow::Context;
use engine::{Clock, Mailbox, Message};
use std::sync::Arc;
use store::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Shuts down after HTTP has stopped: waits for polls in flight, saves results and closes the database.
pub(super) async fn finish(
    mailbox: Mailbox,
    driver: std::thread::JoinHandle<()>,
    store: Arc<Store>,
    clock: Clock,
) -> anyhow::Result<u8> {
    let (reply, ended) = oneshot::channel();
    let sent = tokio::task::spawn_blocking(move || mailbox.send(Message::Shutdown(reply)));
    tokio::time::timeout(ENDING.1, sent).await.context("the driver did not accept the shutdown request")??;
    tokio::time::timeout(ENDING.1, ended).await.context("the driver did not end in time")??;
    tokio::task::spawn_blocking(move || {
        let _ = driver.join();
        store.close(clock.wall());
    })
    .await?;
    tracing::info!("everything is saved");
    Ok(0)
}

/// The signals that ask the host to end.
pub(super) struct EndAsked {
    terminate: Signal,
    interrupt: Signal,
}

impl EndAsked {
    /// Installs the handlers, which replace the signals' default action.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
