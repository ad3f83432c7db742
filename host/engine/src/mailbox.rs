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

/// The longest time that a message of [`Mailbox::send_unhurried`] waits. It is shorter than anyone notices.
const UNHURRIED: Duration = Duration::from_millis(50);

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
    unhurried: Arc<Mutex<Unhurried>>,
}

/// The driver's inbox.
pub struct Inbox {
    clock: Clock,
    receiver: Receiver<Mail>,
    unhurried: Arc<Mutex<Unhurried>>,
}

/// The messages that wait until the driver wakes.
#[derive(Default)]
struct Unhurried {
    messages: Vec<Message>,
    /// When the driver wakes even if it is sent nothing; in the past while it is awake. `None` if it must be woken.
    wakes: Option<Moment>,
}

/// Makes the channel to the driver.
pub fn channel(clock: Clock) -> (Mailbox, Inbox) {
    let (sender, receiver) = sync_channel(CAPACITY);
    let unhurried = Arc::<Mutex<Unhurried>>::default();
    (Mailbox { clock, sender, unhurried: unhurried.clone() }, Inbox { clock, receiver, unhurried })
}

/// A message is added or taken as a whole, so the list is valid after a panic of another thread.
fn lock(unhurried: &Mutex<Unhurried>) -> MutexGuard<'_, Unhurried> {
    unhurried.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// Waits at most `patience` for a message that hurries. `must_be_woken`: no message can wait.
    pub(crate) fn wait(&self, patience: Duration, must_be_woken: bool) -> Result<Mail, RecvTimeoutError> {
        let mut unhurried = lock(&self.unhurried);
        let patience = if unhurried.messages.is_empty() { patience } else { patience.min(UNHURRIED) };
        unhurried.wakes = (!must_be_woken).then(|| self.clock.now().after(patience));
        drop(unhurried);
        self.receiver.recv_timeout(patience)
    }

    /// Takes the messages that do not hurry.
    pub(crate) fn take_unhurried(&self) -> Vec<Message> {
        std::mem::take(&mut lock(&self.unhurried).messages)
    }

    /// Takes the messages that hurry.
    pub(crate) fn take(&self) -> impl Iterator<Item = Mail> {
        self.receiver.try_iter()
    }
}

impl Mailbox {
    /// Sends a message; waits while the channel is full. Returns false if the driver has ended.
    pub fn send(&self, message: Message) -> bool {
        self.sender.send(Mail { sent: self.clock.now(), message }).is_ok()
    }

    /// Sends a message that can wait for 50 ms. Wakes the driver only if it would sleep for longer, because a wake-up
    /// costs an idle host about as much as the work.
    pub(crate) fn send_unhurried(&self, message: Message) -> bool {
        let mut unhurried = lock(&self.unhurried);
        if unhurried.wakes.is_some_and(|wakes| wakes <= self.clock.now().after(UNHURRIED)) {
            unhurried.messages.push(message);
            return true;
        }
        drop(unhurried);
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
        let busy = || CommandError::Conflict("the host is busy or ending: try again".to_owned());
        let (reply, answer) = oneshot::channel();
        let message = Message::Command(target.clone(), command(reply));
        self.sender.try_send(Mail { sent: self.clock.now(), message }).map_err(|_| busy())?;
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
    fn a_message_without_hurry_wakes_a_driver_that_would_sleep_for_long() {
        let (mailbox, inbox) = channel(Clock::start());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The list is locked until the driver waits.
                while lock(&inbox.unhurried).wakes.is_none() {
                    std::thread::yield_now();
                }
                mailbox.send_unhurried(message());
            });
            assert!(inbox.wait(LONG, false).is_ok());
        });
    }

    #[test]
    fn a_message_without_hurry_waits_for_a_driver_that_wakes_soon() {
        let (mailbox, inbox) = channel(Clock::start());
        assert!(inbox.wait(Duration::ZERO, false).is_err());
        mailbox.send_unhurried(message());
        assert!(inbox.take().next().is_none(), "the driver is awake");
        assert!(inbox.wait(LONG, false).is_err(), "it reads the list soon, although it would sleep for long");
        assert_eq!(inbox.take_unhurried().len(), 1);
        assert!(inbox.wait(Duration::ZERO, true).is_err());
        mailbox.send_unhurried(message());
        assert!(inbox.take().next().is_some(), "another poll waits for its end");
    }
}
