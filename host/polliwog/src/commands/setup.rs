//! `setup`: prints how a service becomes a target: the certificate to confirm, the commands for the server, and the
//! lines for the configuration.
//!
//! The steps are in the descriptor of the kind's plugin. No secret is sent before the certificate is trusted: the first
//! request accepts any certificate and carries no credentials. With the secrets, and a fingerprint if this machine does
//! not trust the certificate, the plugin asks the service for its other members.

mod members;
mod printed;
mod recipe;
mod server;

use crate::cli::{SetupArguments, USAGE};
use crate::commands::poll::{NamedSecrets, named_secrets};
use crate::configuration::{Unusable, nearby};
use crate::output::{complain, print, print_json};
use crate::plugins::{serving, small_sandbox};
use anyhow::{Context, anyhow, bail};
use egress::Fingerprint;
use members::{Credentials, members};
use model::Kind;
use printed::Found;
use recipe::Recipe;
use sandbox::{Backtrace, Plugin, Sandbox};
use server::{Seen, look};
use std::sync::Arc;
use url::Url;

/// Asks the server and prints the steps. The exit code is 1 if the server may be of another kind, or its members could
/// not be listed.
pub(crate) async fn setup(arguments: SetupArguments) -> anyhow::Result<u8> {
    let usage = |error: anyhow::Error| {
        complain(format_args!("polliwog: {error:#}"));
        Ok(USAGE)
    };
    let kind = match Kind::new(&arguments.kind) {
        Ok(kind) => kind,
        Err(error) => return usage(anyhow!("KIND: {error}")),
    };
    let config = match nearby(&arguments.common) {
        Ok(config) => config,
        Err(Unusable::Usage(error)) => return usage(error),
        Err(Unusable::Other(error)) => return Err(error),
    };
    let sandbox = Arc::new(small_sandbox(&config, Backtrace::default())?);
    let served = match serving(&config, &sandbox, &kind).await {
        Ok(served) => served,
        Err(error) => return usage(error),
    };
    let plugin = &served.plugin;
    let checked = match Recipe::new(&served, arguments.username.as_deref()) {
        Ok(recipe) => Checked::new(recipe, &arguments, (&sandbox, plugin)).await,
        Err(error) => Err(error),
    };
    let Checked { recipe, url, confirmed, secrets } = match checked {
        Ok(checked) => checked,
        Err(error) => return usage(error),
    };
    let seen = look(&recipe, &url).await?;
    if let (Some(confirmed), Some(certificate)) = (&confirmed, &seen.certificate) {
        compare(&recipe, &url, confirmed, &Fingerprint::parse(&certificate.fingerprint)?)?;
    }
    if let Some(doubt) = &seen.doubt {
        complain(format_args!("polliwog: {doubt}"));
    }
    let credentials = Credentials { secrets, confirmed };
    let listed = match arguments.secret.is_empty() {
        true => Ok(None),
        false => members((&sandbox, plugin), &recipe, (&url, &seen), credentials).await.map(Some),
    };
    let (members, failure) = match listed {
        Ok(members) => (members, None),
        Err(error) => (None, Some(error)),
    };
    let (members, failed) = (members.as_deref(), failure.is_some());
    let found = Found { recipe: &recipe, url: &url, seen: &seen, members, failed };
    if arguments.json {
        print_json(&found.json())?;
    } else {
        print(found.text().trim_end())?;
    }
    Ok(conclusion(&seen, failure.as_ref()))
}

fn conclusion(seen: &Seen, failure: Option<&anyhow::Error>) -> u8 {
    if let Some(error) = failure {
        complain(format_args!("polliwog: the other members could not be listed: {error:#}"));
    }
    u8::from(failure.is_some() || seen.doubt.is_some())
}

/// Arguments that are valid for the kind.
struct Checked {
    recipe: Recipe,
    url: Url,
    /// The fingerprint that the operator confirmed.
    confirmed: Option<Fingerprint>,
    secrets: NamedSecrets,
}

impl Checked {
    async fn new(
        recipe: Recipe,
        arguments: &SetupArguments,
        (sandbox, plugin): (&Sandbox, &Plugin),
    ) -> anyhow::Result<Self> {
        let url = recipe.address(&arguments.url)?;
        let parse = |text: &String| Fingerprint::parse(text).context("--fingerprint");
        let confirmed = arguments.fingerprint.as_ref().map(parse).transpose()?;
        if confirmed.is_some() && url.scheme() == "http" {
            bail!("--fingerprint: {url} is not encrypted, so it has no certificate to compare: write https://");
        }
        let secrets = named_secrets(&arguments.secret)?;
        if let Some(unknown) =
            secrets.sources.keys().find(|name| !plugin.descriptor().secrets.iter().any(|secret| secret.name == **name))
        {
            let known: Vec<&str> = plugin.descriptor().secrets.iter().map(|secret| secret.name.as_str()).collect();
            bail!("--secret: {} has no secret {unknown:?}: there are {}", recipe.title, known.join(", "));
        }
        if !arguments.secret.is_empty() {
            if !recipe.setup.has_members {
                bail!("--secret: {} has no other members to list", recipe.title);
            }
            if url.scheme() == "http" && !stays_here(&url) {
                bail!("--secret: {url} is not encrypted, and the secret would be sent in plain text: write https://");
            }
        }
        // A setting that the operator must fill in is not a problem of the arguments.
        if recipe.open_settings.is_empty() {
            let accepted = recipe.accepted(sandbox, plugin).await?;
            if let Some(problem) = accepted.err().unwrap_or_default().first() {
                let setting = problem.setting.as_deref().unwrap_or_default();
                // The option says which setting it is.
                let alone = problem.message.strip_prefix(setting).and_then(|rest| rest.strip_prefix(": "));
                match (recipe.own_account, alone) {
                    (true, Some(alone)) => bail!("--username: {alone}"),
                    (true, None) => bail!("--username: {problem}"),
                    (false, _) => bail!("{problem}"),
                }
            }
        }
        Ok(Self { recipe, url, confirmed, secrets })
    }
}

/// Fails if the certificate is not the confirmed one.
fn compare(recipe: &Recipe, url: &Url, confirmed: &Fingerprint, seen: &Fingerprint) -> anyhow::Result<()> {
    if seen == confirmed {
        return Ok(());
    }
    let command = recipe.setup.fingerprint_command.as_ref();
    let shown =
        command.map(|command| format!(" (\"{command}\" shows the right one on the server)")).unwrap_or_default();
    bail!(
        "the certificate at {url} has the fingerprint {seen}, which is not the one that you confirmed: do not continue \
         before you know the reason{shown}"
    );
}

/// Returns whether requests to a URL stay on this machine.
fn stays_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
