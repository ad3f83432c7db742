//! How a Proxmox Mail Gateway becomes a target, and the nodes of its cluster.

use crate::context::Memory;
use crate::login::log_in;
use polliwog_sdk::lenient::{Field, Text};
use polliwog_sdk::{Endpoint, Guide, Member};
use proxmox::{Diagnostics, Error, Product};
use serde::Deserialize;

pub(crate) const PASSWORD_EXAMPLE: &str = "A-PASSWORD-YOU-CHOOSE";

pub(crate) fn guide() -> Guide {
    Guide {
        port: Some(Product::Mail.port()),
        public_pointer: Some("/data".to_owned()),
        fingerprint_command: Some("openssl x509 -in /etc/pmg/pmg-api.pem -noout -fingerprint -sha256".to_owned()),
        commands: vec![format!(
            "pmgsh create /access/users --userid ${{account}} --role audit --enable 1 --password '{PASSWORD_EXAMPLE}'"
        )],
        account: Some("polliwog@pmg".to_owned()),
        settings: r#"{"username":"${account}"}"#.to_owned(),
        has_members: true,
        ..Guide::new("/api2/json/access/auth-realm")
    }
}

/// An entry of `/config/cluster/status`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    name: Field<Text>,
    ip: Field<Text>,
    fingerprint: Field<Text>,
}

/// The nodes other than the one that answers. Mail Gateway does not report which of them that is: it is the one with
/// the certificate of the connection, or the one that the URL names.
pub(crate) fn members(target: &Endpoint, username: &str) -> Result<Vec<Member>, Error> {
    let connected = log_in(target, username, &mut Memory::load(target))?;
    let own = connected.api.fingerprint().map(str::to_owned);
    let Some(status) = connected.answers.into_iter().next() else { return Ok(Vec::new()) };
    let nodes = status.list::<Node>(&mut Diagnostics::default())?;
    // A gateway that is not in a cluster is listed alone.
    if nodes.len() < 2 {
        return Ok(Vec::new());
    }
    let host = host(&target.url);
    let member = |node: &Node| {
        let text = |field: &Field<Text>| field.get().map(|Text(text)| text.clone());
        let (address, fingerprint) = (text(&node.ip), text(&node.fingerprint));
        let plain = fingerprint.as_ref().map(|fingerprint| fingerprint.replace(':', "").to_lowercase());
        let Text(name) = node.name.get()?;
        let answers = own.is_some() && own == plain || address.as_deref() == Some(host) || name == host;
        (!answers).then(|| Member { address, fingerprint, ..Member::new(name) })
    };
    Ok(nodes.iter().filter_map(member).collect())
}

/// The host of a URL, without the brackets of an IPv6 address.
fn host(url: &str) -> &str {
    let authority =
        url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_has_no_port_and_no_brackets() {
        for (url, expected) in [
            ("https://mail.example:8006/", "mail.example"),
            ("https://192.0.2.1/x", "192.0.2.1"),
            ("https://[2001:db8::1]:8006/", "2001:db8::1"),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
