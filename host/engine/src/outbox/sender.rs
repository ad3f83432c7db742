//! Sends one notification, by a plugin or by email.

use crate::target::RuntimeTarget;
use catalog::Served;
use egress::{Egress, Tape};
use mail::Account;
use model::{Failure, PluginValues, Timestamp};
use sandbox::{Attempt, Sandbox, Sent};
use std::sync::Arc;

/// The code of an attempt that the limit of its time ended.
const TIMEOUT: &str = "timeout";

/// The sender of a channel's notifications.
#[derive(Clone)]
pub(super) enum Sender {
    /// A plugin, in the sandbox.
    Plugin(Arc<Served>),
    /// The host itself, by email.
    Mail(Arc<Account>),
}

/// The end of an attempt.
pub(super) struct Attempted {
    /// Why a part of the receivers was refused, or why the attempt failed.
    pub result: Result<Option<String>, Failure>,
    /// The values that the plugin stores for the channel, if they changed.
    pub stored: Option<PluginValues>,
    /// Whether the receiver may have taken something although the attempt failed.
    pub may_have_arrived: bool,
}

impl Sender {
    /// Makes one attempt for a channel.
    pub(super) async fn send(
        &self,
        (sandbox, egress): (&Sandbox, &Egress),
        channel: &RuntimeTarget,
        attempt: Attempt,
        now: Timestamp,
    ) -> Attempted {
        match self {
            Self::Plugin(served) => {
                let Sent { result, stored, seen, .. } =
                    sandbox.send(channel.job(&served.plugin, now, Tape::Off), attempt).await;
                // A request that did not end is not among those that were seen.
                let is_cut_off = result.as_ref().is_err_and(|failure| failure.code == TIMEOUT);
                let may_have_arrived = is_cut_off || !seen.is_unsent();
                Attempted { result: result.map(|()| None), stored, may_have_arrived }
            }
            Self::Mail(account) => {
                let result = account.send(egress, &attempt.notification, now, channel.timeout).await;
                Attempted { result, stored: None, may_have_arrived: true }
            }
        }
    }
}
