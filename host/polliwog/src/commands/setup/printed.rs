//! The output of `setup`.

use super::members::Member;
use super::recipe::Recipe;
use super::server::Seen;
use egress::Fingerprint;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Write;
use url::Url;

/// The results of `setup`.
pub(super) struct Found<'a> {
    pub recipe: &'a Recipe,
    pub url: &'a Url,
    pub seen: &'a Seen,
    /// The other members; `None` if they were not listed.
    pub members: Option<&'a [Member]>,
    /// Whether listing the members failed.
    pub failed: bool,
}

impl Found<'_> {
    pub(super) fn json(&self) -> Value {
        let Self { recipe, url, seen, members, .. } = self;
        let certificate = seen.certificate.as_ref().map(|certificate| {
            json!({
                "fingerprint": colons(&certificate.fingerprint), "subject": certificate.subject,
                "issuer": certificate.issuer, "notBefore": date(certificate.not_before),
                "notAfter": date(certificate.not_after), "trusted": seen.trusted,
            })
        });
        let member = |member: &Member| {
            json!({
                "name": member.name, "url": member.url, "trusted": member.trusted,
                "fingerprint": member.fingerprint.map(|fingerprint| fingerprint.to_string()),
            })
        };
        let secrets = recipe.secrets.iter();
        let secrets =
            secrets.map(|secret| json!({ "name": secret.name, "variable": secret.variable, "value": secret.example }));
        json!({
            "kind": recipe.kind, "url": url.as_str(), "certificate": certificate,
            "checkCommand": recipe.setup.fingerprint_command, "commands": recipe.commands(),
            "secrets": secrets.collect::<Vec<_>>(), "members": members.unwrap_or_default().iter().map(member).collect::<Vec<_>>(),
            "toml": self.toml(), "doubt": seen.doubt,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { recipe, url, members, .. } = self;
        let mut text = self.certificate();
        let commands = recipe.commands();
        if !commands.is_empty() {
            let _ = writeln!(
                text,
                "\nRun on the server, as root, to create an account that can only read {}:",
                recipe.title
            );
            for command in commands {
                let _ = writeln!(text, "  {command}");
            }
        }
        if !recipe.secrets.is_empty() {
            text += "\nSet the secret where Polliwog starts, as an environment variable (or in a file):\n";
            for secret in &recipe.secrets {
                let _ = writeln!(text, "  export {}={}", secret.variable, in_shell(&secret.example));
            }
        }
        if let Some(file) = &recipe.file {
            let _ = writeln!(text, "\n(These lines are from the plugin {file}. Read them before you run them.)");
        }
        let _ = writeln!(
            text,
            "\nPaste into polliwog.toml, then run \"polliwog poll {}\":\n\n{}",
            recipe.id(url),
            self.toml()
        );
        match members {
            None if recipe.setup.has_members && !self.failed => text += &self.hint_of_members(),
            Some([]) => text += "It has no other members.\n",
            _ => {}
        }
        text
    }

    fn certificate(&self) -> String {
        let Self { recipe, url, seen, .. } = self;
        let Some(certificate) = &seen.certificate else {
            let risk = if recipe.secrets.is_empty() { "" } else { ": the secret would be sent in plain text" };
            return format!("{url} is not encrypted{risk}.\n");
        };
        // Subject and issuer are what the certificate's author wrote, so the fingerprint comes after them.
        let mut text = format!(
            "The certificate at {url}:\n  subject      {}\n  issuer       {}\n  valid        {} to {}\n  fingerprint  {}\n",
            shortened(&certificate.subject),
            shortened(&certificate.issuer),
            date(certificate.not_before),
            date(certificate.not_after),
            colons(&certificate.fingerprint),
        );
        text += match (seen.trusted, &recipe.setup.fingerprint_command) {
            (true, _) => "This machine trusts its issuer, so it is not pinned.\n",
            (false, None) => {
                "This machine does not trust its issuer, so it is pinned. Compare the fingerprint with the server's.\n"
            }
            (false, Some(_)) => {
                "This machine does not trust its issuer, so it is pinned. Compare the fingerprint with the output of \
                 this command on the server:\n"
            }
        };
        if let Some(command) = recipe.setup.fingerprint_command.as_ref().filter(|_| !seen.trusted) {
            let _ = writeln!(text, "  {command}");
        }
        text
    }

    /// The command that lists the other members.
    fn hint_of_members(&self) -> String {
        let Self { recipe, url, seen, .. } = self;
        let mut command = format!("polliwog setup {} {}", recipe.kind, in_shell(url.as_str()));
        if let Some(certificate) = seen.certificate.as_ref().filter(|_| !seen.trusted) {
            let _ = write!(command, " --fingerprint {}", colons(&certificate.fingerprint));
        }
        if let Some(account) = recipe.account.as_ref().filter(|_| recipe.own_account) {
            let _ = write!(command, " --username {account}");
        }
        for secret in &recipe.secrets {
            let _ = write!(command, " --secret {}=env:{}", secret.name, secret.variable);
        }
        format!(
            "In a cluster, the other members can be polled when this one is down. When the secret is set, this command \
             also prints their lines:\n  {command}\n"
        )
    }

    pub(super) fn toml(&self) -> String {
        let Self { recipe, url, seen, members, .. } = self;
        let members = members.unwrap_or_default();
        let mut text = format!(
            "[[target]]\nid = \"{}\"\nkind = \"{}\"\nurl = {}\n",
            recipe.id(url),
            recipe.kind,
            quoted(url.as_str())
        );
        if let Some(interval) = recipe.max_interval {
            let _ = writeln!(text, "max_interval = \"{interval}\"    # poll at least this often");
        }
        if let Some(certificate) = seen.certificate.as_ref().filter(|_| !seen.trusted) {
            let _ = writeln!(text, "tls = {{ fingerprint = \"{}\" }}", colons(&certificate.fingerprint));
        }
        if !members.is_empty() {
            let lines: String = members.iter().map(|member| line_of(&recipe.kind, member)).collect();
            let _ = writeln!(text, "also = [\n{lines}]");
        }
        let secrets = recipe.secrets.iter();
        let secrets: Vec<String> =
            secrets.map(|secret| format!("{} = {{ env = \"{}\" }}", secret.name, secret.variable)).collect();
        if !secrets.is_empty() {
            let _ = writeln!(text, "secrets = {{ {} }}", secrets.join(", "));
        }
        let settings = recipe.settings.as_object().into_iter().flatten();
        let settings = settings
            .filter_map(|(name, value)| Some(format!("{} = {}\n", key(name), toml::Value::try_from(value).ok()?)));
        let open = recipe.open_settings.iter();
        let open =
            open.map(|(name, description)| format!("# {} =    # required: {}\n", key(name), shortened(description)));
        let settings: String = settings.chain(open).collect();
        if !settings.is_empty() {
            let _ = write!(text, "\n[target.settings]\n{settings}");
        }
        text
    }
}

/// A member's line in `also`. What the service does not report is left to the operator.
fn line_of(kind: &str, member: &Member) -> String {
    // The name is the service's text.
    let name: String = member.name.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect();
    let Some(url) = &member.url else {
        return format!("    # {name} is a member too; the service does not report its address\n");
    };
    match &member.fingerprint {
        _ if member.trusted || url.starts_with("http:") => format!("    {{ url = {} }}, # {name}\n", quoted(url)),
        Some(fingerprint) => {
            format!("    {{ url = {}, tls = {{ fingerprint = \"{fingerprint}\" }} }}, # {name}\n", quoted(url))
        }
        None => format!(
            "    # {name} is at {url}; the service does not report its fingerprint: \"polliwog setup {kind} {url}\" \
             shows it\n"
        ),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A key of TOML, in quotes if it needs them.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_bare { name.to_owned() } else { serde_json::Value::from(shortened(name)).to_string() }
}

/// An argument of a shell command, in quotes if it needs them.
fn in_shell(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:/@%+,".contains(c));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Formats a fingerprint in pairs of digits, as other programs show it.
fn colons(hex: &str) -> String {
    Fingerprint::parse(hex).map_or_else(|_| hex.to_owned(), |fingerprint| fingerprint.to_string())
}

/// A text on one line, without characters that control a terminal.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 120;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = line.chars().filter(|c| !c.is_control() && !model::is_invisible(*c));
    let shown: String = plain.clone().take(LONGEST).collect();
    if plain.count() > LONGEST { shown + "…" } else { shown }
}

fn date(millis: i64) -> String {
    let timestamp = Timestamp::from_millisecond(millis).ok();
    timestamp.map_or_else(|| "an invalid date".to_owned(), |timestamp| timestamp.to_string()[..10].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::setup::recipe::recipe;
    use egress::Certificate;

    #[test]
    fn the_printed_target_is_valid() {
        let mut recipe = recipe("mail", Some(8006));
        recipe.settings["dot.ted"] = json!({ "odd name": "two\nlines" });
        recipe.open_settings = vec![("an open one".to_owned(), "Its first line\nid = \"x\"".to_owned())];
        let url = recipe.address("mail.example").unwrap();
        let certificate = Certificate {
            fingerprint: "ab".repeat(32),
            subject: "CN=mail".to_owned(),
            issuer: "CN=mail".to_owned(),
            ..Certificate::default()
        };
        let seen = Seen { certificate: Some(certificate), trusted: false, doubt: None };
        let pin = Fingerprint::parse(&"cd".repeat(32)).unwrap();
        let member = |name: &str, url: Option<&str>, fingerprint, trusted| Member {
            name: name.to_owned(),
            url: url.map(str::to_owned),
            fingerprint,
            trusted,
        };
        let members = [
            member("two\n\"", Some("https://192.0.2.2:8006"), Some(pin), false),
            member("three", Some("https://three.example:8006"), None, true),
            member("four", Some("https://192.0.2.4:8006"), None, false),
            member("five", None, Some(pin), false),
        ];
        let found = Found { recipe: &recipe, url: &url, seen: &seen, members: Some(&members), failed: false };
        let text = found.toml();
        let places = config::Places::default();
        let config = config::Config::written(("printed", &text), &places, &|_| None);
        let config = config.unwrap_or_else(|problems| panic!("{problems:?} in\n{text}"));
        assert_eq!(config.targets[0].also.len(), 2);
        assert_eq!(config.targets[0].tls.fingerprints.len(), 1);
        assert_eq!(config.targets[0].settings["username"], "it+is-me@realm");
        assert_eq!(config.targets[0].settings["dot.ted"]["odd name"], "two\nlines");
        assert_eq!(in_shell("it's $(id)"), r"'it'\''s $(id)'");
        for named in ["# four is at", "# five is a member too"] {
            assert!(text.contains(named), "{text}");
        }
    }
}
