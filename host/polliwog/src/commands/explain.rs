//! `explain`: explains the time of a target's next poll.

use super::remote::{answer, ask, part, rows, table, text};
use crate::cli::Remote;
use crate::output::print;
use egress::Method;

/// `explain TARGET`.
pub(crate) async fn explain(remote: &Remote, target: &str) -> anyhow::Result<u8> {
    let path = format!("/api/v1/targets/{}/explain", part(target));
    let explained = ask(remote, Method::GET, &path, None).await?;
    answer(remote, &explained, |explained| {
        print(&text(&explained["summary"]))?;
        if let Some(at) = explained["nextRun"].as_str() {
            print(&format!("next run: {at}"))?;
        }
        print("")?;
        table(&["TERM", "VALUE", "MEANING"], &rows(&explained["terms"], &["name", "value", "meaning"]))
    })
}
