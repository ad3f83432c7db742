//! `token`: shows and rotates the admin token; lists, makes and revokes further tokens.

use super::remote::{answer, ask, part, table, text};
use crate::admin::{FILE, read};
use crate::cli::{Remote, TokenCommand};
use crate::output::print;
use config::{Places, data_dir, environment};
use egress::Method;
use serde_json::json;
use std::path::Path;

/// `token`.
pub(crate) async fn token(remote: &Remote, command: TokenCommand) -> anyhow::Result<u8> {
    match command {
        TokenCommand::Show { demo } => show(&remote.common.places(), demo),
        TokenCommand::Rotate => {
            let made = ask(remote, Method::POST, "/api/v1/tokens/rotate", None).await?;
            answer(remote, &made, |made| print(&text(&made["token"])))
        }
        TokenCommand::List => {
            let found = ask(remote, Method::GET, "/api/v1/tokens", None).await?;
            answer(remote, &found, |found| {
                let tokens = found["tokens"].as_array().into_iter().flatten();
                let columns = ["name", "scope", "created", "expires", "lastUsed"];
                let rows: Vec<Vec<String>> = tokens.map(|token| columns.map(|key| text(&token[key])).into()).collect();
                table(&["NAME", "SCOPE", "CREATED", "EXPIRES", "LAST USED"], &rows)
            })
        }
        TokenCommand::Create { name, scope, days } => {
            let body = json!({ "name": name, "scope": scope, "days": days });
            let made = ask(remote, Method::POST, "/api/v1/tokens", Some(body)).await?;
            answer(remote, &made, |made| print(&text(&made["token"])))
        }
        TokenCommand::Revoke { name } => {
            let found = ask(remote, Method::DELETE, &format!("/api/v1/tokens/{}", part(&name)), None).await?;
            answer(remote, &found, |_| print(&format!("{name} is no longer valid")))
        }
    }
}

/// `token show`.
fn show(places: &Places, demo: bool) -> anyhow::Result<u8> {
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
