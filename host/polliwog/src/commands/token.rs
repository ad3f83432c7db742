//! `token`: shows and rotates the admin token.

use super::remote::{answer, ask, text};
use crate::admin::{FILE, read};
use crate::cli::Remote;
use crate::output::print;
use config::{Places, data_dir, environment};
use egress::Method;
use std::path::Path;

/// `token show`.
pub(crate) fn show(places: &Places, demo: bool) -> anyhow::Result<u8> {
    let data_dir = data_dir(places, demo, &environment);
    let token = read(&data_dir).map_err(|error| unreadable(&data_dir.join(FILE), &error))?;
    let Some(token) = token else {
        anyhow::bail!(
            "no admin token is stored in {}: either no host has started with this directory, or POLLIWOG_ADMIN_TOKEN set \
             the token; start the host with that variable to set another one",
            data_dir.display()
        );
    };
    print(&token)?;
    Ok(0)
}

fn unreadable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot read {} ({error}): run this command as the user who runs the host", path.display())
}

/// `token rotate`.
pub(crate) async fn rotate(remote: &Remote) -> anyhow::Result<u8> {
    let made = ask(remote, Method::Post, "/api/v1/tokens/rotate", None).await?;
    answer(remote, &made, |made| print(&text(&made["token"])))
}
