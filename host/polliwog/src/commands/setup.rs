//! `setup`: how a Proxmox product becomes a target. The certificate to confirm, what to run there, what to paste here.
//!
//! Nothing secret is sent before a certificate is trusted: a first look takes any certificate and asks for something
//! that everybody may see. With the secret, and a fingerprint where one is needed, a cluster is asked for its other
//! members.

mod members;
mod product;
mod server;

use crate::cli::{ProductName, SetupArguments, USAGE};
use crate::output::{complain, print, print_json};
use anyhow::{Context, bail};
use egress::{Fingerprint, Origin};
use jiff::Timestamp;
use members::{Account, Member, members};
use product::{ACCOUNT, PBS, PMG, PVE, Product, colons};
use serde_json::{Value, json};
use server::{Seen, look};
use std::fmt::Write;
use url::Url;

/// Looks, and prints.
pub(crate) async fn setup(arguments: SetupArguments) -> anyhow::Result<u8> {
    let product = match arguments.product {
        ProductName::Pve => &PVE,
        ProductName::Pbs => &PBS,
        ProductName::Pmg => &PMG,
    };
    let told = address(product, &arguments.url).and_then(|url| {
        let confirmed = confirmed(product, &arguments)?;
        if arguments.secret.is_some() && url.scheme() == "http" && !stays_here(&url) {
            bail!("--secret: {url} is not encrypted, and the secret would travel in the open: write https://");
        }
        Ok((url, confirmed))
    });
    let (url, confirmed) = match told {
        Ok(told) => told,
        Err(error) => {
            complain(format_args!("polliwog: {error:#}"));
            return Ok(USAGE);
        }
    };
    let username = arguments.username.as_deref().unwrap_or(ACCOUNT);
    let seen = look(product, &url).await?;
    if let (Some(confirmed), Some(certificate)) = (&confirmed, &seen.certificate)
        && Fingerprint::parse(&certificate.fingerprint)? != *confirmed
    {
        bail!(
            "the certificate at {url} has the fingerprint {}, which is not the one that you confirmed: do not go on before you \
             know why (\"{}\" shows it there)",
            colons(&certificate.fingerprint),
            product.check
        );
    }
    if let Some(doubt) = &seen.doubt {
        complain(format_args!("polliwog: {doubt}"));
    }
    let (members, trouble) = match &arguments.secret {
        Some(secret) => {
            let account = Account { secret, username, confirmed };
            match members(product, &url, &seen, &account).await {
                Ok(members) => (members, None),
                Err(error) => (Vec::new(), Some(error)),
            }
        }
        None => (Vec::new(), None),
    };
    let found = Found { product, url: &url, username, seen: &seen, members: &members };
    if arguments.json {
        print_json(&found.json())?;
    } else {
        print(found.text().trim_end())?;
    }
    match trouble {
        // It may be another product.
        None => Ok(u8::from(seen.doubt.is_some())),
        Some(error) => {
            complain(format_args!("polliwog: the other members could not be asked for: {error:#}"));
            Ok(1)
        }
    }
}

/// The fingerprint that somebody confirmed, where the arguments are those of the product.
fn confirmed(product: &Product, arguments: &SetupArguments) -> anyhow::Result<Option<Fingerprint>> {
    let name = product.name;
    match &arguments.username {
        Some(_) if !product.named => {
            bail!("--username: {name} is asked with a token, which holds the account's name");
        }
        Some(username) if !username.contains('@') => {
            bail!("--username: write it with its realm, as in {ACCOUNT}");
        }
        // It stands in commands that are to be run as root.
        Some(username) if !username.chars().all(|c| c.is_alphanumeric() || "@._-+".contains(c)) => {
            bail!("--username: write letters, digits and . _ - + only, as in {ACCOUNT}");
        }
        _ => {}
    }
    if arguments.secret.is_some() && product.kind == PBS.kind {
        bail!("--secret: {name} has no other members, so that there is nothing to ask it for");
    }
    let parse = |text: &String| Fingerprint::parse(text).context("--fingerprint");
    arguments.fingerprint.as_ref().map(parse).transpose()
}

/// Whether what is sent there stays on this machine.
fn stays_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
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
    url.set_fragment(None);
    Ok(url)
}

/// What is printed.
struct Found<'a> {
    product: &'a Product,
    url: &'a Url,
    username: &'a str,
    seen: &'a Seen,
    members: &'a [Member],
}

impl Found<'_> {
    fn json(&self) -> Value {
        let Self { product, url, seen, members, .. } = self;
        let certificate = seen.certificate.as_ref().map(|certificate| {
            json!({
                "fingerprint": colons(&certificate.fingerprint), "subject": certificate.subject, "issuer": certificate.issuer,
                "notBefore": date(certificate.not_before), "notAfter": date(certificate.not_after), "trusted": seen.trusted,
            })
        });
        let member = |member: &Member| json!({ "name": member.name, "url": member.url, "fingerprint": member.fingerprint, "trusted": member.trusted });
        let members: Vec<Value> = members.iter().map(member).collect();
        let (name, variable, value) = product.secret;
        json!({
            "kind": product.kind, "url": url.as_str(), "certificate": certificate, "checkCommand": product.check,
            "commands": self.commands(), "secret": { "name": name, "variable": variable, "value": value },
            "members": members, "toml": self.toml(), "doubt": seen.doubt,
        })
    }

    fn commands(&self) -> Vec<String> {
        self.product.commands.iter().map(|command| command.replace(ACCOUNT, self.username)).collect()
    }

    fn text(&self) -> String {
        let Self { product, url, seen, members, .. } = self;
        let mut text = String::new();
        let mut line = |line: &str| writeln!(text, "{line}").expect("writing to a string never fails");
        match &seen.certificate {
            None => line(&format!("{url} is not encrypted: the secret would travel in the open.")),
            Some(certificate) => {
                line(&format!("The certificate at {url}:"));
                // Whoever made the certificate wrote these two; the fingerprint comes after them.
                line(&format!("  subject      {}", shortened(&certificate.subject)));
                line(&format!("  issuer       {}", shortened(&certificate.issuer)));
                line(&format!("  valid        {} to {}", date(certificate.not_before), date(certificate.not_after)));
                line(&format!("  fingerprint  {}", colons(&certificate.fingerprint)));
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
        for command in self.commands() {
            line(&format!("  {command}"));
        }
        let (name, variable, value) = product.secret;
        line(&format!(
            "\nPut the secret where Polliwog starts, in an environment variable (or a file):\n  export {variable}='{value}'"
        ));
        line(&format!("\nPaste into polliwog.toml, then run \"polliwog poll {}\":\n", id(product, url)));
        line(&self.toml());
        if product.kind != "pbs" && members.is_empty() {
            line(&format!(
                "In a cluster, have the others asked when this node is down: with the {name} set, this shows their lines too:",
            ));
            let pin = match &seen.certificate {
                Some(certificate) if !seen.trusted => format!(" --fingerprint {}", colons(&certificate.fingerprint)),
                _ => String::new(),
            };
            let username =
                if self.username == ACCOUNT { String::new() } else { format!(" --username {}", self.username) };
            line(&format!("  polliwog setup {} {url}{pin}{username} --secret {name}=env:{variable}", product.kind));
        }
        text
    }

    fn toml(&self) -> String {
        let Self { product, url, seen, members, .. } = self;
        let (secret, variable, _) = product.secret;
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let id = id(product, url);
        let mut text =
            format!("[[target]]\nid = \"{id}\"\nkind = \"{}\"\nurl = {}\n", product.kind, quoted(url.as_str()));
        text += "max_interval = \"1m\"    # a quiet one is looked at so often at least\n";
        if let Some(certificate) = seen.certificate.as_ref().filter(|_| !seen.trusted) {
            text += &format!("tls = {{ fingerprint = \"{}\" }}\n", colons(&certificate.fingerprint));
        }
        if !members.is_empty() {
            text += "also = [\n";
            for member in *members {
                text += &line_of(member);
            }
            text += "]\n";
        }
        text += &format!("secrets = {{ {secret} = {{ env = \"{variable}\" }} }}\n");
        if product.named {
            text += &format!("\n[target.settings]\nusername = {}\n", quoted(self.username));
        }
        text
    }
}

/// A member's line in `also`. What its cluster does not say is left to the operator.
fn line_of(member: &Member) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    // A name is what the cluster says.
    let name: String = member.name.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).take(60).collect();
    let Some(url) = &member.url else {
        return format!("    # {name} is a member too; the cluster does not say its address\n");
    };
    match &member.fingerprint {
        _ if member.trusted || url.starts_with("http:") => format!("    {{ url = {} }}, # {name}\n", quoted(url)),
        Some(fingerprint) => {
            format!("    {{ url = {}, tls = {{ fingerprint = {} }} }}, # {name}\n", quoted(url), quoted(fingerprint))
        }
        None => {
            format!(
                "    # {name} is at {url}; the cluster does not say its fingerprint: run \"polliwog setup\" for it\n"
            )
        }
    }
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

/// A certificate's name on one line, without what a terminal would obey.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 80;
    let plain = name.chars().filter(|c| !c.is_control() && !model::is_invisible(*c));
    let shown: String = plain.clone().take(LONGEST).collect();
    if plain.count() > LONGEST { shown + "…" } else { shown }
}

fn date(millis: u64) -> String {
    let timestamp = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    timestamp
        .map_or_else(|| "a date that no calendar holds".to_owned(), |timestamp| timestamp.to_string()[..10].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress::Certificate;

    #[test]
    fn what_people_write_becomes_an_address() {
        for (product, text, expected) in [
            (&PVE, "pve1.example", "https://pve1.example:8006/"),
            (&PBS, "pbs.example", "https://pbs.example:8007/"),
            (&PVE, "https://pve1.example:443/proxy", "https://pve1.example/proxy"),
            (&PVE, "https://192.0.2.1:8006/#v1:0:=node", "https://192.0.2.1:8006/"),
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
        let seen = Seen { certificate: Some(certificate), trusted: false, doubt: None };
        let member = |name: &str, url: Option<&str>, fingerprint: Option<&str>, trusted| Member {
            name: name.to_owned(),
            url: url.map(str::to_owned),
            fingerprint: fingerprint.map(str::to_owned),
            trusted,
        };
        let pin = colons(&"cd".repeat(32));
        let members = [
            member("two\n\"", Some("https://192.0.2.2:8006"), Some(&pin), false),
            member("three", Some("https://three.example:8006"), None, true),
            member("four", Some("https://192.0.2.4:8006"), None, false),
            member("five", None, Some(&pin), false),
        ];
        let found = Found { product: &PMG, url: &url, username: "it's \"me\"@pmg", seen: &seen, members: &members };
        let text = found.toml();
        let places = config::Places::default();
        let config = config::Config::written(("printed", &text), &places, &|_| None);
        let config = config.unwrap_or_else(|problems| panic!("{problems:?} in\n{text}"));
        assert_eq!(config.targets[0].also.len(), 2);
        assert_eq!(config.targets[0].tls.fingerprints.len(), 1);
        assert_eq!(config.targets[0].settings["username"], "it's \"me\"@pmg");
        for named in ["# four is at", "# five is a member too"] {
            assert!(text.contains(named), "{text}");
        }
    }
}
