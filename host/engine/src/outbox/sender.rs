//! Sends one notification, by a plugin or by email.

use crate::target::RuntimeTarget;
use catalog::Served;
use egress::{Egress, Tape};
use mail::Account;
use model::{Failure, Timestamp};
use sandbox::{Attempt, Sandbox};
use std::sync::Arc;

/// The sender of a channel's notifications.
#[derive(Clone)]
pub(super) enum Sender {
    /// A plugin, in the sandbox.
    Plugin(Arc<Served>),
    /// The host itself, by email.
    Mail(Arc<Account>),
}

impl Sender {
    /// Makes one attempt for a channel. Returns why a part of the receivers was refused.
    pub(super) async fn send(
        &self,
        (sandbox, egress): (&Sandbox, &Egress),
        channel: &RuntimeTarget,
        attempt: Attempt,
        now: Timestamp,
    ) -> Result<Option<String>, Failure> {
        match self {
            Self::Plugin(served) => {
                sandbox.send(channel.job(&served.plugin, now, Tape::Off), attempt).await.result.map(|()| None)
            }
            Self::Mail(account) => account.send(egress, &attempt.notification, now, channel.timeout).await,
        }
    }
}
