//! The setup steps of a kind for one account.

use anyhow::{Context, anyhow, bail};
use catalog::{BUILT_IN, Served};
use egress::Origin;
use sandbox::{AcceptedSettings, Plugin, Sandbox, SettingsProblem, SettingsVersion, Setup, is_account, with_account};
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;
use url::Url;

/// The value shown for a secret whose plugin gives no example.
const NO_EXAMPLE: &str = "THE-VALUE";
/// The longest interval that is suggested for a target.
const LONGEST: Duration = Duration::from_secs(60);

/// The setup steps of a kind. A kind whose plugin describes none has a recipe without commands.
#[derive(Debug)]
pub(super) struct Recipe {
    pub kind: String,
    pub title: String,
    /// The file of the plugin, unless it is built in.
    pub file: Option<String>,
    /// The account in commands, examples and settings.
    pub account: Option<String>,
    /// Whether the account is another than the plugin suggests.
    pub own_account: bool,
    pub setup: Setup,
    pub secrets: Vec<NeededSecret>,
    /// The settings, without those that the operator must fill in.
    pub settings: Value,
    /// Settings that the operator must fill in, with their descriptions.
    pub open_settings: Vec<(String, String)>,
    /// The suggested longest interval, in whole minutes. `None` if the kind's default is longer.
    pub max_interval: Option<&'static str>,
}

/// A secret that the target needs.
#[derive(Debug)]
pub(super) struct NeededSecret {
    pub name: String,
    /// The suggested environment variable.
    pub variable: String,
    /// An example of the value.
    pub example: String,
}

impl Recipe {
    /// Checks the settings of the recipe, which are of the plugin's own version.
    pub(super) async fn accepted(
        &self,
        sandbox: &Sandbox,
        plugin: &Plugin,
    ) -> anyhow::Result<Result<AcceptedSettings, Vec<SettingsProblem>>> {
        let version = SettingsVersion::Written(plugin.descriptor().settings_version);
        sandbox.accept_settings(plugin, &self.settings, version).await.map_err(|why| anyhow!(why))
    }

    pub(super) fn new(served: &Served, username: Option<&str>) -> anyhow::Result<Self> {
        let descriptor = served.plugin.descriptor();
        let setup = descriptor.setup.clone().unwrap_or_default();
        let account = match (username, &setup.account) {
            (Some(_), None) => bail!("--username: {} needs no account", descriptor.title),
            (Some(name), Some(usual)) if !is_account(name) => {
                // It is part of commands that are run as root.
                bail!("--username: write at most 64 letters, digits and @ . _ - + only, as in {usual}")
            }
            (Some(name), Some(_)) => Some(name),
            (None, usual) => usual.as_deref(),
        };
        if let Some(odd) = descriptor.secrets.iter().find(|secret| !secret.example_fits(account)) {
            let hint = odd.hint.as_deref().unwrap_or("it does not have the expected form");
            bail!("--username: the secret {:?} of this account would not be valid: {hint}", odd.name);
        }
        let kind = descriptor.kind.to_string();
        let needed = |secret: &sandbox::SecretSpec| NeededSecret {
            name: secret.name.clone(),
            variable: variable(&kind, &secret.name),
            example: with_account(secret.example.as_deref().unwrap_or(NO_EXAMPLE), account),
        };
        let settings = setup.settings_of(account);
        Ok(Self {
            title: descriptor.title.clone(),
            file: (served.source != BUILT_IN).then(|| served.source.clone()),
            account: account.map(str::to_owned),
            own_account: username.is_some(),
            secrets: descriptor.secrets.iter().filter(|secret| secret.required).map(needed).collect(),
            open_settings: open_settings(&descriptor.settings_schema, &settings),
            max_interval: (descriptor.default_interval <= LONGEST).then_some("1m"),
            setup,
            settings,
            kind,
        })
    }

    /// Returns the commands for the server.
    pub(super) fn commands(&self) -> Vec<String> {
        self.setup.commands.iter().map(|command| with_account(command, self.account.as_deref())).collect()
    }

    /// Returns the URL of the server. A host name is enough, and a URL that was copied from a browser may contain a
    /// path of the API.
    pub(super) fn address(&self, text: &str) -> anyhow::Result<Url> {
        let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let (mut url, _) = Origin::parse(&text).context("URL")?;
        let written = text.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
        let has_port = written.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if let Some(port) = self.setup.port.filter(|_| !has_port)
            && url.set_port(Some(port)).is_err()
        {
            bail!("URL: {text} can have no port");
        }
        let api = self.setup.public_path.split('/').nth(1).unwrap_or_default();
        if !api.is_empty() && url.path().split('/').nth(1) == Some(api) {
            url.set_path("/");
        }
        if self.setup.port.is_some() {
            url.set_query(None);
        }
        url.set_fragment(None);
        Ok(url)
    }

    /// Returns the URL of a path of the server.
    pub(super) fn public_url(&self, url: &Url) -> String {
        format!("{}{}", url.as_str().trim_end_matches('/'), self.setup.public_path)
    }

    /// Returns an id for the target: the first part of the host name, or the address.
    pub(super) fn id(&self, url: &Url) -> String {
        let host = url.host_str().unwrap_or_default().to_lowercase();
        let is_address = host.parse::<IpAddr>().is_ok() || host.starts_with('[');
        let name = if is_address { host.as_str() } else { host.split('.').next().unwrap_or_default() };
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain = plain.trim_matches('-');
        // One machine may be a target of several kinds.
        let id = if plain.starts_with(&self.kind) { plain.to_owned() } else { format!("{}-{plain}", self.kind) };
        id.chars().take(63).collect()
    }
}

/// The suggested environment variable of a secret.
fn variable(kind: &str, name: &str) -> String {
    format!("{kind}_{name}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

/// Returns the required settings of a schema without a value, with their descriptions.
fn open_settings(schema: &Value, settings: &Value) -> Vec<(String, String)> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = |name: &str| {
        let setting = &schema["properties"][name];
        let own = setting["description"].as_str();
        own.or_else(|| sandbox::resolved(schema, setting)["description"].as_str()).unwrap_or_default().to_owned()
    };
    required.filter(|name| settings.get(*name).is_none()).map(|name| (name.to_owned(), described(name))).collect()
}

/// A recipe with an account, a secret and a setting, for tests.
#[cfg(test)]
pub(super) fn recipe(kind: &str, port: Option<u16>) -> Recipe {
    Recipe {
        kind: kind.to_owned(),
        title: "A product".to_owned(),
        file: None,
        account: Some("it+is-me@realm".to_owned()),
        own_account: true,
        setup: Setup { port, public_path: "/api2/json/ping".to_owned(), has_members: true, ..Setup::default() },
        secrets: vec![NeededSecret {
            name: "token".to_owned(),
            variable: variable(kind, "token"),
            example: "it+is-me@realm!x".to_owned(),
        }],
        settings: serde_json::json!({ "username": "it+is-me@realm" }),
        open_settings: Vec::new(),
        max_interval: Some("1m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_host_name_or_a_copied_address_becomes_the_url_of_the_server() {
        for (port, text, expected) in [
            (Some(8006), "pve1.example", "https://pve1.example:8006/"),
            (Some(8007), "pbs.example", "https://pbs.example:8007/"),
            (Some(8006), "https://pve1.example:443/proxy", "https://pve1.example/proxy"),
            (Some(8006), "https://192.0.2.1:8006/?x=1#v1:0:=node", "https://192.0.2.1:8006/"),
            (Some(8006), "https://192.0.2.1:8006/api2/json", "https://192.0.2.1:8006/"),
            (Some(8006), "https://[2001:db8::1]", "https://[2001:db8::1]:8006/"),
            (None, "status.example/health?full=1", "https://status.example/health?full=1"),
        ] {
            assert_eq!(recipe("pve", port).address(text).unwrap().as_str(), expected, "{text}");
        }
        assert!(recipe("pve", None).address("ftp://x").is_err());
    }

    #[test]
    fn the_id_names_the_host_and_if_necessary_the_kind() {
        for (kind, text, expected) in [
            ("pve", "PVE1.example", "pve1"),
            ("pbs", "192.0.2.1", "pbs-192-0-2-1"),
            ("http", "www.example", "http-www"),
        ] {
            let recipe = recipe(kind, None);
            assert_eq!(recipe.id(&recipe.address(text).unwrap()), expected);
        }
    }

    #[test]
    fn variables_consist_of_the_kind_and_the_name() {
        assert_eq!(variable("my-kind", "api.key"), "MY_KIND_API_KEY");
    }

    #[test]
    fn required_settings_without_a_value_are_open() {
        let schema = json!({
            "required": ["root", "username", "fields"],
            "properties": { "root": { "description": "The list." }, "fields": { "$ref": "#/$defs/fields" } },
            "$defs": { "fields": { "description": "The fields." } },
        });
        let open = open_settings(&schema, &json!({ "username": "me" }));
        let expected = [("root", "The list."), ("fields", "The fields.")];
        assert_eq!(open, expected.map(|(name, description)| (name.to_owned(), description.to_owned())));
    }
}
