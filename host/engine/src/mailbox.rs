//! The driver's inbox: a bounded channel whose messages carry the time at which they were sent, and a list of messages
//! that can wait until the driver wakes for another reason.

use crate::clock::Clock;
use crate::message::{Command, Message};
use model::{CommandError, Moment, TargetId};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The capacity of the channel. Each poll in flight and each command sends one message.
pub(crate) const CAPACITY: usize = 4_096;

/// The longest time that a deferrable message waits. Users do not notice it.
const LONGEST_DEFERRAL: Duration = Duration::from_millis(50);

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
    deferred: Arc<Mutex<Deferred>>,
}

/// The driver's inbox.
pub struct Inbox {
    clock: Clock,
    receiver: Receiver<Mail>,
    deferred: Arc<Mutex<Deferred>>,
}

/// The messages that wait until the driver wakes.
#[derive(Default)]
struct Deferred {
    messages: Vec<Message>,
    /// When the driver wakes without a message; in the past while it is awake. `None` if no message may be deferred.
    wakes: Option<Moment>,
}

/// Makes the channel to the driver.
pub fn channel(clock: Clock) -> (Mailbox, Inbox) {
    let (sender, receiver) = sync_channel(CAPACITY);
    let deferred = Arc::<Mutex<Deferred>>::default();
    (Mailbox { clock, sender, deferred: deferred.clone() }, Inbox { clock, receiver, deferred })
}

/// A message is added or taken as a whole, so the list is valid after a panic of another thread.
fn lock(deferred: &Mutex<Deferred>) -> MutexGuard<'_, Deferred> {
    deferred.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how long the driver may wait. Messages that were deferred while it was awake may be the ones that a waiting
/// target needs, so they are handled at once if none may be deferred now.
fn longest_wait(patience: Duration, is_empty: bool, may_defer: bool) -> Duration {
    match (is_empty, may_defer) {
        (true, _) => patience,
        (false, true) => patience.min(LONGEST_DEFERRAL),
        (false, false) => Duration::ZERO,
    }
}

impl Inbox {
    /// Waits for a message that is not deferred, at most for `patience`, and not longer than a deferred one may wait.
    /// While it waits, senders may defer messages only if `may_defer`.
    pub(crate) fn wait(&self, patience: Duration, may_defer: bool) -> Result<Mail, RecvTimeoutError> {
        let mut deferred = lock(&self.deferred);
        let patience = longest_wait(patience, deferred.messages.is_empty(), may_defer);
        deferred.wakes = may_defer.then(|| self.clock.now().after(patience));
        drop(deferred);
        self.receiver.recv_timeout(patience)
    }

    /// Takes the deferred messages.
    pub(crate) fn take_deferred(&self) -> Vec<Message> {
        std::mem::take(&mut lock(&self.deferred).messages)
    }

    /// Takes the messages that are not deferred.
    pub(crate) fn take(&self) -> impl Iterator<Item = Mail> {
        self.receiver.try_iter()
    }
}

impl Mailbox {
    /// Sends a message; waits while the channel is full. Returns false if the driver has ended.
    pub fn send(&self, message: Message) -> bool {
        self.sender.send(Mail { sent: self.clock.now(), message }).is_ok()
    }

    /// Sends a message that can wait for 50 ms. Wakes the driver only if it would sleep for longer, because waking it
    /// costs an idle host about as much as handling the message. Returns false if the driver has ended.
    pub(crate) fn send_deferrable(&self, message: Message) -> bool {
        let mut deferred = lock(&self.deferred);
        if deferred.wakes.is_some_and(|wakes| wakes <= self.clock.now().after(LONGEST_DEFERRAL)) {
            deferred.messages.push(message);
            return true;
        }
        drop(deferred);
        self.send(message)
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
        self.request(|reply| Message::Command(target.clone(), command(reply))).await
    }

    /// Sends a message that has a reply, and waits for that.
    ///
    /// # Errors
    /// If the driver is busy or ending.
    pub async fn request<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, CommandError> {
        let busy = || CommandError::Conflict("the host is busy or ending: try again".to_owned());
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(Mail { sent: self.clock.now(), message: message(reply) }).map_err(|_| busy())?;
        answer.await.map_err(|_| busy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn message() -> Message {
        Message::Written(TargetId::new("t").unwrap())
    }

    #[test]
    fn deferred_messages_limit_the_wait() {
        let soon = Duration::from_millis(7);
        let cases = [
            (LONG, true, true, LONG),
            (LONG, true, false, LONG),
            (LONG, false, true, LONGEST_DEFERRAL),
            (soon, false, true, soon),
            (LONG, false, false, Duration::ZERO),
        ];
        for (patience, is_empty, may_defer, expected) in cases {
            assert_eq!(longest_wait(patience, is_empty, may_defer), expected, "{patience:?} {is_empty} {may_defer}");
        }
    }

    #[test]
    fn a_deferrable_message_wakes_a_driver_that_would_sleep_for_long() {
        let (mailbox, inbox) = channel(Clock::start());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It is set when the driver starts to wait.
                while lock(&inbox.deferred).wakes.is_none() {
                    std::thread::yield_now();
                }
                mailbox.send_deferrable(message());
            });
            assert!(inbox.wait(LONG, true).is_ok());
        });
    }

    #[test]
    fn a_deferrable_message_waits_for_a_driver_that_wakes_soon() {
        let (mailbox, inbox) = channel(Clock::start());
        assert!(inbox.wait(Duration::ZERO, true).is_err());
        mailbox.send_deferrable(message());
        assert!(inbox.take().next().is_none(), "the driver is awake");
        assert!(inbox.wait(LONG, true).is_err(), "it wakes for the deferred message, although it would sleep for long");
        assert_eq!(inbox.take_deferred().len(), 1);
        assert!(inbox.wait(Duration::ZERO, false).is_err());
        mailbox.send_deferrable(message());
        assert!(inbox.take().next().is_some(), "another poll waits for its end");
    }
}
