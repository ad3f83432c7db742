//! The other members of a cluster, as it says itself.
//!
//! The secret is sent over a connection that is verified. Each member has a certificate of its own: where this machine
//! trusts it under the member's name it need not be pinned, else the cluster says what its fingerprint is.

use super::product::{Product, colons};
use super::server::{Seen, at, look, open};
use crate::commands::poll::secret;
use anyhow::{Context, anyhow, bail};
use config::SecretSource;
use egress::{BodyEncoding, Capture, CaptureSource, Fingerprint, Method, Request, Secrets, Session, Tls};
use engine::read_secret;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use url::form_urlencoded::byte_serialize;
use url::{Host, Url};

/// Another member of the cluster.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub name: String,
    /// Nothing where neither its name leads there nor the cluster says its address.
    pub url: Option<String>,
    /// Nothing where this machine trusts who signed its certificate, or nobody says what it is.
    pub fingerprint: Option<String>,
    pub trusted: bool,
}

/// With what the cluster is asked.
pub(super) struct Account<'a> {
    /// `NAME=SOURCE`.
    pub secret: &'a str,
    pub username: &'a str,
    /// The fingerprint that somebody confirmed.
    pub confirmed: Option<Fingerprint>,
}

/// What a cluster says of a member.
#[derive(Debug, PartialEq)]
struct Said {
    name: String,
    ip: Option<IpAddr>,
    fingerprint: Option<String>,
    /// Whether it is the one that was asked.
    own: bool,
}

pub(super) async fn members(
    product: &Product,
    url: &Url,
    seen: &Seen,
    account: &Account<'_>,
) -> anyhow::Result<Vec<Member>> {
    let tls = match (&account.confirmed, seen.trusted) {
        (Some(confirmed), _) => Tls::pinned(BTreeSet::from([*confirmed]))?,
        (None, true) => Tls::system()?,
        (None, false) => bail!(
            "--secret: the certificate is not trusted here, so that the {} is not sent: compare the fingerprint with \
             what \"{}\" shows there, and give it as --fingerprint",
            product.secret.0,
            product.check
        ),
    };
    let local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        _ => false,
    };
    if url.scheme() == "http" && !local {
        bail!("--secret: {url} is not encrypted, so that the {} is not sent: write https://", product.secret.0);
    }
    let name = product.secret.0;
    let (given, source): (String, SecretSource) = secret(account.secret)?;
    if given != name {
        bail!("--secret: write {name}=env:VARIABLE or {name}=file:PATH");
    }
    let value = read_secret(&source).map_err(|why| anyhow!("--secret: {why}"))?;
    if product.kind == "pve" && !is_token(&value) {
        bail!("--secret: write the whole token, as in {}", product.secret.2);
    }
    let session = open(url, tls, Secrets::new(BTreeMap::from([(name.to_owned(), value)]))?)?;
    let own = seen.certificate.as_ref().map(|certificate| colons(&certificate.fingerprint));
    let said = match product.kind {
        "pve" => of_environment(&session, url).await?,
        _ => of_gateways(&session, url, account.username, own.as_deref()).await?,
    };
    let mut members = Vec::new();
    for said in said.into_iter().filter(|said| !said.own) {
        members.push(reached(product, url, seen, said).await);
    }
    Ok(members)
}

fn is_token(value: &SecretString) -> bool {
    value.expose_secret().split_once('!').is_some_and(|(user, rest)| user.contains('@') && rest.contains('='))
}

/// A member under its name in the same domain, where its certificate is trusted there; else under its address.
async fn reached(product: &Product, url: &Url, seen: &Seen, said: Said) -> Member {
    let Said { name, ip, fingerprint, .. } = said;
    let (port, path) = (url.port_or_known_default().unwrap_or(product.port), url.path().trim_end_matches('/'));
    if let Some(named) = named(url, &name).filter(|_| seen.trusted && seen.certificate.is_some())
        && look(product, &named).await.is_ok_and(|seen| seen.trusted)
    {
        let url = named.to_string().trim_end_matches('/').to_owned();
        return Member { name, url: Some(url), fingerprint: None, trusted: true };
    }
    let host = |ip: IpAddr| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let url = ip.map(|ip| format!("{}://{}:{port}{path}", url.scheme(), host(ip)));
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

async fn of_environment(session: &Session, url: &Url) -> anyhow::Result<Vec<Said>> {
    let ask = async |path: &str| {
        let mut request = Request::get(at(url, &format!("/api2/json{path}")));
        request.headers.push(("authorization".to_owned(), "PVEAPIToken=${secret.token}".to_owned()));
        data(session, path, request, "check the token and its rights").await
    };
    let (nodes, status) = (ask("/nodes").await?, ask("/cluster/status").await?);
    let fingerprint = |name: &str| {
        let node = nodes.as_array()?.iter().find(|node| node["node"] == name)?;
        word(node, "ssl_fingerprint").filter(|fingerprint| Fingerprint::parse(fingerprint).is_ok())
    };
    let of = |entry: &Value| {
        let name = word(entry, "name")?;
        let own = entry["local"] == 1 || entry["local"] == "1" || entry["local"] == true;
        Some(Said { ip: address(entry), fingerprint: fingerprint(&name), own, name })
    };
    Ok(status.as_array().into_iter().flatten().filter(|entry| entry["type"] == "node").filter_map(of).collect())
}

/// Mail Gateway does not say which of its nodes answers: it is the one with the certificate that was seen.
async fn of_gateways(session: &Session, url: &Url, username: &str, own: Option<&str>) -> anyhow::Result<Vec<Said>> {
    const MEND: &str = "check the account's name, --username, and its password";
    let mut request = Request::get(at(url, "/api2/json/access/ticket"));
    request.method = Method::Post;
    request.headers.push(("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()));
    let account = username;
    let username: String = byte_serialize(username.as_bytes()).collect();
    request.body = Some(format!("username={username}&password=${{secret.password}}").into_bytes());
    request.body_encoding = BodyEncoding::Form;
    request.captures.push(Capture {
        name: "ticket".to_owned(),
        source: CaptureSource::JsonPointer("/data/ticket".to_owned()),
        ttl: Duration::from_secs(60),
    });
    let granted = data(session, "/access/ticket", request, MEND).await?;
    if !matches!(granted["NeedTFA"].as_u64(), None | Some(0)) {
        bail!("the account {account} wants a second factor, which no program can give: make one without it");
    }
    // A gateway that stands alone is not in it.
    const LIST: &str = "/config/cluster/status";
    let mut request = Request::get(at(url, &format!("/api2/json{LIST}")));
    request.headers.push(("cookie".to_owned(), "PMGAuthCookie=${secret.ticket}".to_owned()));
    let status = data(session, LIST, request, MEND).await?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let of = |entry: &Value| {
        let (name, ip) = (word(entry, "name")?, address(entry));
        let fingerprint = word(entry, "fingerprint").filter(|fingerprint| Fingerprint::parse(fingerprint).is_ok());
        let same = |fingerprint: &String| own.is_some_and(|own| own.eq_ignore_ascii_case(fingerprint));
        let own = fingerprint.as_ref().is_some_and(same) || ip.is_some_and(|ip| host.parse() == Ok(ip)) || name == host;
        Some(Said { name, ip, fingerprint, own })
    };
    Ok(status.as_array().into_iter().flatten().filter_map(of).collect())
}

/// What an answer holds.
async fn data(session: &Session, path: &str, request: Request, mend: &str) -> anyhow::Result<Value> {
    let answer = session.fetch(request).await?;
    if answer.status != 200 {
        bail!("{path} was answered {} {}: {mend}", answer.status, answer.reason);
    }
    let answer = serde_json::from_slice::<Value>(&answer.body).with_context(|| path.to_owned())?;
    Ok(answer["data"].clone())
}

/// The address of a member. What is not one would end up in a configuration.
fn address(entry: &Value) -> Option<IpAddr> {
    entry["ip"].as_str()?.parse().ok()
}

fn word(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().filter(|word| !word.is_empty()).map(str::to_owned)
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
