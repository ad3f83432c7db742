//! A poll that sends nothing, to find requests that would be refused.

use crate::target::RuntimeTarget;
use egress::{Player, Tape};
use model::{Outcome, Timestamp};
use sandbox::{Plugin, Sandbox};
use std::sync::Arc;

/// Error codes that are caused by the configuration, not by the server.
const CERTAIN: [&str; 4] = ["denied", "secret_unknown", "bad_request", "bad_settings"];

/// Polls a target with an empty recording instead of the network. Requests are checked as usual; the recording answers
/// none of them. Returns the reason if a request is refused before it is sent, because the first real poll would fail
/// as well.
pub async fn refused_request(
    sandbox: &Sandbox,
    plugin: &Plugin,
    target: &RuntimeTarget,
    now: Timestamp,
) -> Option<String> {
    let nothing = Tape::Replay(Arc::new(Player::new(Vec::new())));
    let done = sandbox.poll(target.job(plugin, now, nothing)).await;
    let Outcome::Failure(failure) = done.outcome else { return None };
    CERTAIN.contains(&failure.code.as_str()).then_some(failure.message)
}
