//! `breaker`: lists and resets circuit breakers.

use super::remote::{answer, ask, every, part, rows, table};
use crate::cli::{BreakerCommand, Remote};
use crate::output::print;
use egress::Method;

/// `breaker`.
pub(crate) async fn breaker(remote: &Remote, command: Option<BreakerCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(BreakerCommand::List) => {
            let found = every(remote, "/api/v1/breakers?", "breakers").await?;
            answer(remote, &found, |found| {
                let columns = ["target", "state", "failures", "since", "retryAt"];
                table(&["TARGET", "STATE", "FAILURES", "SINCE", "PROBE"], &rows(&found["breakers"], &columns))
            })
        }
        Some(BreakerCommand::Reset { target }) => {
            let path = format!("/api/v1/breakers/{}/reset", part(&target));
            let found = ask(remote, Method::POST, &path, None).await?;
            answer(remote, &found, |_| print(&format!("the breaker of {target} is closed, and it is polled now")))
        }
    }
}
