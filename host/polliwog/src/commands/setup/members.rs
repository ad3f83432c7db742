//! The other members of a service, as its plugin finds them with the credentials.
//!
//! The secrets are sent over a connection that is verified. Each member has its own certificate. If this machine trusts
//! it under the member's name, it is not pinned. Otherwise the service reports its fingerprint.

use super::recipe::Recipe;
use super::server::{Seen, look};
use crate::commands::poll::NamedSecrets;
use anyhow::{anyhow, bail};
use config::{Limits, TargetConfig, TlsConfig};
use egress::{Fingerprint, Tape};
use engine::{Clock, runtime_target};
use model::{Kind, TargetId};
use sandbox::{Plugin, Sandbox};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Url};

/// Another member of the service.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub name: String,
    /// `None` if neither its name leads to it nor the service reports its address.
    pub url: Option<String>,
    /// `None` if this machine trusts its certificate, or the service does not report it.
    pub fingerprint: Option<Fingerprint>,
    pub trusted: bool,
}

/// The credentials for the request.
pub(super) struct Credentials {
    /// The secrets.
    pub secrets: NamedSecrets,
    /// The fingerprint that the operator confirmed.
    pub confirmed: Option<Fingerprint>,
}

pub(super) async fn members(
    (sandbox, plugin): (&Sandbox, &Plugin),
    recipe: &Recipe,
    (url, seen): (&Url, &Seen),
    credentials: Credentials,
) -> anyhow::Result<Vec<Member>> {
    let fingerprints = match (credentials.confirmed, seen.trusted) {
        (Some(confirmed), _) => BTreeSet::from([confirmed]),
        (None, true) => BTreeSet::new(),
        (None, false) => bail!(
            "--secret: this machine does not trust the certificate, so that the secret is not sent: compare the \
             fingerprint with the server's{}, and pass it as --fingerprint",
            match &recipe.setup.fingerprint_command {
                Some(command) => format!(" (\"{command}\" shows it there)"),
                None => String::new(),
            }
        ),
    };
    let target = TargetConfig {
        tls: TlsConfig { fingerprints, ..TlsConfig::default() },
        secrets: credentials.secrets.sources,
        short_secrets: credentials.secrets.short,
        settings: recipe.settings.clone(),
        ..TargetConfig::new(TargetId::new(&recipe.id(url))?, Kind::new(&recipe.kind)?, url.clone())
    };
    let ready = runtime_target(&Arc::new(target), Some(plugin), Limits::default())
        .map_err(|problems| anyhow!(problems.join("; ")))?;
    // Settings that the operator must fill in do not keep the members from being listed.
    let ready = match recipe.accepted(sandbox, plugin).await? {
        Ok(accepted) => ready.with_settings(&accepted),
        Err(_) => ready,
    };
    let job = ready.job(plugin, Clock::start().wall(), Tape::Off);
    let found = sandbox.members(job).await.map_err(|failure| anyhow!(failure.message))?;
    let mut members = Vec::new();
    for member in found {
        members.push(reached(recipe, url, seen, member).await);
    }
    Ok(members)
}

/// A member under its name in the same domain if this machine trusts its certificate there, else under its address.
async fn reached(recipe: &Recipe, url: &Url, seen: &Seen, member: sandbox::Member) -> Member {
    let sandbox::Member { name, address, fingerprint } = member;
    if let Some(named) = named(url, &name).filter(|_| seen.trusted && seen.certificate.is_some())
        && look(recipe, &named).await.is_ok_and(|seen| seen.trusted)
    {
        let url = named.to_string().trim_end_matches('/').to_owned();
        return Member { name, url: Some(url), fingerprint: None, trusted: true };
    }
    let host = |address: IpAddr| if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    let url = address.map(|address| format!("{}://{}{port}{path}", url.scheme(), host(address)));
    Member { name, url, fingerprint, trusted: false }
}

/// The same URL with another host of the same domain.
fn named(url: &Url, name: &str) -> Option<Url> {
    let Some(Host::Domain(host)) = url.host() else { return None };
    let (_, domain) = host.split_once('.')?;
    let mut named = url.clone();
    named.set_host(Some(&format!("{name}.{domain}"))).ok()?;
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_names_in_the_same_domain() {
        for (url, expected) in [
            ("https://pve1.lab.example:8006/", Some("https://pve2.lab.example:8006/")),
            ("https://pve1:8006/", None),
            ("https://192.0.2.1:8006/", None),
        ] {
            let named = named(&Url::parse(url).unwrap(), "pve2");
            assert_eq!(named.as_ref().map(Url::as_str), expected, "{url}");
        }
        assert_eq!(named(&Url::parse("https://pve1.example/").unwrap(), "bad name"), None);
    }
}
