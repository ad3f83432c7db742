//! `dead-letter`: lists, retries and drops dead letters.

use super::remote::{answer, ask, every, part, table, text};
use crate::cli::{DeadLetterCommand, Remote};
use crate::output::{counted, print};
use egress::Method;
use serde_json::Value;

/// `dead-letter`.
pub(crate) async fn dead_letter(remote: &Remote, command: Option<DeadLetterCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(DeadLetterCommand::List) => {
            let found = every(remote, "/api/v1/dead-letters?", "deadLetters").await?;
            answer(remote, &found, |found| {
                let dead = found["deadLetters"].as_array().into_iter().flatten();
                let row = |dead: &Value| {
                    let column = |key: &str| text(&dead[key]);
                    let error = text(&dead["lastError"]["message"]);
                    vec![column("target"), column("reason"), column("since"), column("nextRun"), error]
                };
                table(&["TARGET", "REASON", "SINCE", "NEXT POLL", "LAST ERROR"], &dead.map(row).collect::<Vec<_>>())
            })
        }
        Some(DeadLetterCommand::Retry { target: Some(target), .. }) => {
            let path = format!("/api/v1/dead-letters/{}/retry", part(&target));
            let found = ask(remote, Method::POST, &path, None).await?;
            answer(remote, &found, |_| print(&format!("{target} is no longer a dead letter, and is polled now")))
        }
        Some(DeadLetterCommand::Retry { target: None, .. }) => {
            let found = ask(remote, Method::POST, "/api/v1/dead-letters/retry", None).await?;
            answer(remote, &found, |found| {
                let retried = found["retried"].as_array().map_or(0, Vec::len);
                print(&format!("{} retried", counted(retried, "dead letter")))
            })
        }
        Some(DeadLetterCommand::Drop { target }) => {
            let path = format!("/api/v1/dead-letters/{}", part(&target));
            let found = ask(remote, Method::DELETE, &path, None).await?;
            answer(remote, &found, |_| {
                print(&format!("{target} is disabled; `polliwog targets enable {target}` reverts this"))
            })
        }
    }
}
