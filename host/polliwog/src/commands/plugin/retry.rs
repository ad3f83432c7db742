//! `plugin retry`: polls a target of a quarantined kind at once.

use crate::cli::Remote;
use crate::commands::remote::{answer, ask, every, part, text};
use crate::output::print;
use egress::Method;

/// Polls one target of the kind. A poll on command also runs in quarantine.
pub(crate) async fn retry(remote: &Remote, kind: &str) -> anyhow::Result<u8> {
    let targets = every(remote, "/api/v1/targets?", "targets").await?;
    let mut targets = targets["targets"].as_array().into_iter().flatten();
    let Some(target) = targets.find(|target| target["kind"] == kind && target["enabled"] != false) else {
        anyhow::bail!("no target of kind {kind} is polled: see `polliwog plugin list`");
    };
    let target = text(&target["id"]);
    let accepted = ask(remote, Method::POST, &format!("/api/v1/targets/{}/poll", part(&target)), None).await?;
    answer(remote, &accepted, |_| {
        print(&format!("{target} is polled now: the quarantine ends unless this poll fails because of the plugin"))
    })
}
