//! The driver's inbox: a bounded channel whose messages carry the time at which they were sent.

use crate::clock::Clock;
use crate::message::{Command, Message};
use model::{CommandError, Moment, TargetId};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;

/// The capacity of the channel. Each poll in flight and each command sends one message.
pub(crate) const CAPACITY: usize = 4_096;

/// A message and when it was sent.
pub(crate) struct Mail {
    pub sent: Moment,
    pub message: Message,
}

/// Sends messages to the driver.
#[derive(Clone)]
pub struct Mailbox {
    clock: Clock,
    sender: SyncSender<Mail>,
}

/// The driver's inbox.
pub struct Inbox(pub(crate) Receiver<Mail>);

/// Makes the channel to the driver.
pub fn channel(clock: Clock) -> (Mailbox, Inbox) {
    let (sender, receiver) = sync_channel(CAPACITY);
    (Mailbox { clock, sender }, Inbox(receiver))
}

impl Mailbox {
    /// Sends a message; waits while the channel is full. Returns false if the driver has ended.
    pub fn send(&self, message: Message) -> bool {
        self.sender.send(Mail { sent: self.clock.now(), message }).is_ok()
    }

    /// Waits for the driver's answer. Returns false if the driver has ended.
    pub async fn ping(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent = self.sender.try_send(Mail { sent: self.clock.now(), message: Message::Ping(reply) });
        sent.is_ok() && answer.await.is_ok()
    }

    /// Sends a command for a target and waits for its result.
    ///
    /// # Errors
    /// If the driver is busy or ending.
    pub async fn ask<T>(
        &self,
        target: &TargetId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, CommandError> {
        let busy = || CommandError::Conflict("the host is busy or ending: try again".to_owned());
        let (reply, answer) = oneshot::channel();
        let message = Message::Command(target.clone(), command(reply));
        self.sender.try_send(Mail { sent: self.clock.now(), message }).map_err(|_| busy())?;
        answer.await.map_err(|_| busy())
    }
}
