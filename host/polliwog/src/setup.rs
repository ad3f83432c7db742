//! `setup`: how a Proxmox product becomes a target. The certificate to confirm, what to run there, what to paste here.
//!
//! Nothing secret is sent before a certificate is trusted: a first look takes any certificate and asks for something that
//! everybody may see. With a token, and a fingerprint where one is needed, a cluster is asked for its other members.

use crate::cli::{ProductName, SetupArguments, USAGE};
use crate::config::SecretSource;
use crate::estate::read_secret;
use crate::poll::secret;
use crate::setup::print;
use anyhow::{Context, anyhow, bail};
use egress::{
    Certificate, Egress, Error, Fingerprint, Grant, Limits, Origin, OriginGrant, Request, Secrets, Session, Tls,
};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER: usize = 1 << 20;

/// What is different from product to product.
struct Product {
    kind: &'static str,
    name: &'static str,
    port: u16,
    /// What everybody may see.
    public: &'static str,
    /// How the fingerprint is shown there.
    check: &'static str,
    /// How somebody who may only look is made there.
    commands: &'static [&'static str],
    /// The secret's name, the variable suggested for it, and what it holds.
    secret: (&'static str, &'static str, &'static str),
    /// More lines for the target.
    settings: &'static str,
}

const PVE: Product = Product {
    kind: "pve",
    name: "Proxmox VE",
    port: 8006,
    public: "/api2/json/access/domains",
    check: "pvenode cert info",
    commands: &[
        "pveum user add polliwog@pve -comment 'Polliwog, may only look'",
        "pveum acl modify / -user polliwog@pve -role PVEAuditor",
        "pveum user token add polliwog@pve monitor -privsep 1",
        "pveum acl modify / -token 'polliwog@pve!monitor' -role PVEAuditor",
    ],
    secret: ("token", "PVE_TOKEN", "polliwog@pve!monitor=THE-VALUE-SHOWN"),
    settings: "",
};

const PBS: Product = Product {
    kind: "pbs",
    name: "Proxmox Backup Server",
    port: 8007,
    public: "/api2/json/ping",
    check: "proxmox-backup-manager cert info",
    commands: &[
        "proxmox-backup-manager user create polliwog@pbs --comment 'Polliwog, may only look'",
        "proxmox-backup-manager user generate-token polliwog@pbs monitor",
        "proxmox-backup-manager acl update / Audit --auth-id polliwog@pbs",
        "proxmox-backup-manager acl update / Audit --auth-id 'polliwog@pbs!monitor'",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id polliwog@pbs",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id 'polliwog@pbs!monitor'",
    ],
    secret: ("token", "PBS_TOKEN", "polliwog@pbs!monitor:THE-VALUE-SHOWN"),
    settings: "",
};

const PMG: Product = Product {
    kind: "pmg",
    name: "Proxmox Mail Gateway",
    port: 8006,
    public: "/api2/json/access/auth-realm",
    check: "openssl x509 -in /etc/pmg/pmg-api.pem -noout -fingerprint -sha256",
    commands: &[
        "pmgsh create /access/users --userid polliwog@pmg --role audit --enable 1 --password 'A-PASSWORD-YOU-CHOOSE'",
    ],
    secret: ("password", "PMG_PASSWORD", "A-PASSWORD-YOU-CHOOSE"),
    settings: "[target.settings]\nusername = \"polliwog@pmg\"\n",
};

/// What is known of the server after a look at it.
struct Seen {
    /// Nothing over plain HTTP.
    certificate: Option<Certificate>,
    /// Whether this machine trusts who signed it.
    trusted: bool,
}

/// Another member of the cluster.
struct Member {
    name: String,
    url: String,
    fingerprint: String,
}

/// Looks, and prints.
pub(crate) async fn setup(arguments: SetupArguments) -> anyhow::Result<u8> {
    let product = match arguments.product {
        ProductName::Pve => &PVE,
        ProductName::Pbs => &PBS,
        ProductName::Pmg => &PMG,
    };
    let url = match address(product, &arguments.url) {
        Ok(url) => url,
        Err(error) => {
            eprintln!("polliwog: {error:#}");
            return Ok(USAGE);
        }
    };
    let seen = look(product, &url).await?;
    let (members, trouble) = match &arguments.secret {
        Some(text) => match members(product, &url, &seen, (text, arguments.fingerprint.as_deref())).await {
            Ok(members) => (members, None),
            Err(error) => (Vec::new(), Some(error)),
        },
        None => (Vec::new(), None),
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&json(product, &url, &seen, &members))?
    } else {
        text(product, &url, &seen, &members)
    };
    print(text.trim_end())?;
    match trouble {
        None => Ok(0),
        Some(error) => {
            eprintln!("polliwog: the other members could not be asked for: {error:#}");
            Ok(1)
        }
    }
}

/// What people write: a name alone will do.
fn address(product: &Product, text: &str) -> anyhow::Result<Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let (mut url, _) = Origin::parse(&text).context("URL")?;
    let written = text.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let has_port = written.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port && url.set_port(Some(product.port)).is_err() {
        bail!("URL: {text} can have no port");
    }
    if url.path().starts_with("/api2") {
        url.set_path("/");
    }
    url.set_query(None);
    Ok(url)
}

async fn look(product: &Product, url: &Url) -> anyhow::Result<Seen> {
    let path = format!("{}{}", url.path().trim_end_matches('/'), product.public);
    match fetch(url, Tls::system()?, Secrets::default(), Request::get(path.as_str())).await {
        Ok(answer) => Ok(Seen { certificate: answer.tls, trusted: true }),
        Err(Error::Untrusted { .. } | Error::NameMismatch { .. } | Error::Expired { .. } | Error::TlsFailed { .. }) => {
            let answer = fetch(url, Tls::insecure()?, Secrets::default(), Request::get(path.as_str())).await?;
            Ok(Seen { certificate: answer.tls, trusted: false })
        }
        Err(error) => Err(anyhow!(
            "{url}: {error} ({} listens on port {} unless it was told otherwise)",
            product.name,
            product.port
        )),
    }
}

async fn fetch(url: &Url, tls: Tls, secrets: Secrets, request: Request) -> Result<egress::Response, Error> {
    let (base, origin) = Origin::parse(url.as_str()).map_err(|error| Error::BadRequest(error.to_string()))?;
    let grant = Grant::new(base, vec![OriginGrant { origin, tls }], secrets);
    let limits = Limits { requests: 1, body: ANSWER, bodies: ANSWER };
    let lane = Egress::new(egress::Config::default()).lane(tokio::runtime::Handle::current());
    Session::new(lane, Arc::new(grant), limits, Instant::now() + TIMEOUT).fetch(request).await
}

/// The other members of a Proxmox VE cluster, as it says itself; the secret is sent over a connection that is verified.
async fn members(
    product: &Product,
    url: &Url,
    seen: &Seen,
    (text, fingerprint): (&str, Option<&str>),
) -> anyhow::Result<Vec<Member>> {
    if product.kind != "pve" {
        bail!("--secret: only a Proxmox VE cluster says which members it has");
    }
    let tls = match (fingerprint, seen.trusted) {
        (Some(fingerprint), _) => {
            Tls::pinned(BTreeSet::from([Fingerprint::parse(fingerprint).context("--fingerprint")?]))?
        }
        (None, true) => Tls::system()?,
        (None, false) => bail!(
            "--secret: the certificate is not trusted here, so that the token is not sent: compare the fingerprint with \
             what \"{}\" shows there, and give it as --fingerprint",
            product.check
        ),
    };
    let (name, source): (String, SecretSource) = secret(text)?;
    if name != product.secret.0 {
        bail!("--secret: write {}=env:VARIABLE or {}=file:PATH", product.secret.0, product.secret.0);
    }
    let value = read_secret(&source).map_err(|why| anyhow!("--secret: {why}"))?;
    if !value.expose_secret().split_once('!').is_some_and(|(user, rest)| user.contains('@') && rest.contains('=')) {
        bail!("--secret: write the whole token, as in {}", product.secret.2);
    }
    let ask = async |path: &str| -> anyhow::Result<Value> {
        let secrets = Secrets::new(BTreeMap::from([("token".to_owned(), value.clone())]))?;
        let mut request = Request::get(format!("{}/api2/json{path}", url.path().trim_end_matches('/')));
        request.headers.push(("authorization".to_owned(), "PVEAPIToken=${secret.token}".to_owned()));
        let answer = fetch(url, tls.clone(), secrets, request).await?;
        if answer.status != 200 {
            bail!("{path} was answered {} {}: check the token and its rights", answer.status, answer.reason);
        }
        Ok(serde_json::from_slice::<Value>(&answer.body).with_context(|| path.to_owned())?["data"].take())
    };
    let (nodes, status) = (ask("/nodes").await?, ask("/cluster/status").await?);
    let word = |value: &Value, field: &str| value[field].as_str().map(str::to_owned);
    let all = status.as_array().into_iter().flatten();
    let others = all.filter(|entry| entry["type"] == "node" && entry["local"] != 1 && entry["local"] != "1");
    let member = |entry: &Value| {
        let (name, ip) = (word(entry, "name")?, word(entry, "ip")?);
        let node = nodes.as_array()?.iter().find(|node| node["node"] == name.as_str())?;
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip };
        Some(Member {
            name,
            url: format!("https://{host}:{}", product.port),
            fingerprint: word(node, "ssl_fingerprint")?,
        })
    };
    Ok(others.filter_map(member).collect())
}

fn json(product: &Product, url: &Url, seen: &Seen, members: &[Member]) -> Value {
    let certificate = seen.certificate.as_ref().map(|certificate| {
        json!({
            "fingerprint": colons(&certificate.fingerprint), "subject": certificate.subject, "issuer": certificate.issuer,
            "notBefore": date(certificate.not_before), "notAfter": date(certificate.not_after), "trusted": seen.trusted,
        })
    });
    let toml = toml(product, url, seen, members);
    let members: Vec<Value> = members
        .iter()
        .map(|member| json!({ "name": member.name, "url": member.url, "fingerprint": member.fingerprint }))
        .collect();
    json!({
        "kind": product.kind, "url": url.as_str(), "certificate": certificate, "checkCommand": product.check,
        "commands": product.commands, "secret": { "name": product.secret.0, "variable": product.secret.1, "value": product.secret.2 },
        "members": members, "toml": toml,
    })
}

fn text(product: &Product, url: &Url, seen: &Seen, members: &[Member]) -> String {
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("writing to a string never fails");
    match &seen.certificate {
        None => line(&format!("{url} is not encrypted: the secret would travel in the open.")),
        Some(certificate) => {
            line(&format!("The certificate at {url}:"));
            line(&format!("  fingerprint  {}", colons(&certificate.fingerprint)));
            line(&format!("  subject      {}", certificate.subject));
            line(&format!("  issuer       {}", certificate.issuer));
            line(&format!("  valid        {} to {}", date(certificate.not_before), date(certificate.not_after)));
            if seen.trusted {
                line("This machine trusts who signed it: it need not be pinned.");
            } else {
                line(
                    "This machine does not trust who signed it, so it is pinned. Compare the fingerprint with what this shows there:",
                );
                line(&format!("  {}", product.check));
            }
        }
    }
    line(&format!("\nRun there, as root, for an account that may only look at {}:", product.name));
    for command in product.commands {
        line(&format!("  {command}"));
    }
    let (_, variable, value) = product.secret;
    line(&format!(
        "\nPut the secret where Polliwog starts, in an environment variable (or a file):\n  {variable}='{value}'"
    ));
    line(&format!("\nPaste into polliwog.toml, then run \"polliwog poll {}\":\n", id(product, url)));
    line(&toml(product, url, seen, members));
    if product.kind == "pve" && members.is_empty() {
        line(
            "In a cluster, have the others asked when this node is down: with the token set, this shows their lines too:",
        );
        line(&format!(
            "  polliwog setup pve {url}{} --secret token=env:{variable}",
            match &seen.certificate {
                Some(certificate) if !seen.trusted => format!(" --fingerprint {}", colons(&certificate.fingerprint)),
                _ => String::new(),
            }
        ));
    }
    text
}

fn toml(product: &Product, url: &Url, seen: &Seen, members: &[Member]) -> String {
    let (secret, variable, _) = product.secret;
    let mut text = format!("[[target]]\nid = \"{}\"\nkind = \"{}\"\nurl = \"{url}\"\n", id(product, url), product.kind);
    if let Some(certificate) = seen.certificate.as_ref().filter(|_| !seen.trusted) {
        text += &format!("tls = {{ fingerprint = \"{}\" }}\n", colons(&certificate.fingerprint));
    }
    if !members.is_empty() {
        text += "also = [\n";
        for Member { name, url, fingerprint } in members {
            text += &format!("    {{ url = \"{url}\", tls = {{ fingerprint = \"{fingerprint}\" }} }}, # {name}\n");
        }
        text += "]\n";
    }
    text + &format!("secrets = {{ {secret} = {{ env = \"{variable}\" }} }}\n{}", product.settings)
}

/// An id from the host's name: its first part, or the address.
fn id(product: &Product, url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_lowercase();
    let address = host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[');
    let name = if address { host.as_str() } else { host.split('.').next().unwrap_or_default() };
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    // There may be more than one product on a machine.
    let plain = plain.trim_matches('-');
    let id = if plain.starts_with(product.kind) { plain.to_owned() } else { format!("{}-{plain}", product.kind) };
    id.chars().take(63).collect()
}

/// As people compare them.
fn colons(hex: &str) -> String {
    let pairs: Vec<String> =
        hex.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
    pairs.join(":")
}

fn date(millis: u64) -> String {
    let timestamp = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    timestamp
        .map_or_else(|| "a date that no calendar holds".to_owned(), |timestamp| timestamp.to_string()[..10].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_becomes_an_address() {
        for (product, text, expected) in [
            (&PVE, "pve1.example", "https://pve1.example:8006/"),
            (&PBS, "pbs.example", "https://pbs.example:8007/"),
            (&PVE, "https://pve1.example:443/proxy", "https://pve1.example/proxy"),
            (&PVE, "https://192.0.2.1:8006/api2/json", "https://192.0.2.1:8006/"),
            (&PVE, "https://[2001:db8::1]", "https://[2001:db8::1]:8006/"),
        ] {
            assert_eq!(address(product, text).unwrap().as_str(), expected, "{text}");
        }
        assert!(address(&PVE, "ftp://x").is_err());
        assert_eq!(id(&PVE, &address(&PVE, "PVE1.example").unwrap()), "pve1");
        assert_eq!(id(&PBS, &address(&PBS, "192.0.2.1").unwrap()), "pbs-192-0-2-1");
        assert_eq!(colons("ab01"), "AB:01");
    }

    #[test]
    fn the_target_that_is_printed_is_one() {
        let url = address(&PMG, "mail.example").unwrap();
        let certificate = Certificate {
            fingerprint: "ab".repeat(32),
            subject: "CN=mail".to_owned(),
            issuer: "CN=mail".to_owned(),
            not_before: 0,
            not_after: 0,
        };
        let seen = Seen { certificate: Some(certificate), trusted: false };
        let member = Member {
            name: "two".to_owned(),
            url: "https://192.0.2.2:8006".to_owned(),
            fingerprint: colons(&"cd".repeat(32)),
        };
        let text = toml(&PMG, &url, &seen, &[member]);
        let places = crate::config::Places::default();
        let config = crate::config::Config::written(("printed", &text), &places, &|_| None);
        let config = config.unwrap_or_else(|problems| panic!("{problems:?} in\n{text}"));
        assert_eq!(config.targets[0].also.len(), 1);
        assert_eq!(config.targets[0].tls.fingerprints.len(), 1);
        assert_eq!(config.targets[0].settings["username"], "polliwog@pmg");
    }
}
