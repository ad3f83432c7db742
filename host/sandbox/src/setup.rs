//! How a service becomes a target: the steps of a descriptor, and the members of a service.

use crate::host::v0_1::setup as contract;
use crate::secret_spec::{SecretSpec, with_account};
use egress::Fingerprint;
use model::clean;
use schema::Schema;
use serde_json::Value;
use std::net::IpAddr;

/// Maximum length of a command or path in bytes.
const TEXT: usize = 1024;
/// Maximum number of commands.
const COMMANDS: usize = 20;
/// Maximum length of a member's name in bytes.
const NAME: usize = 64;
/// Maximum number of members of a service. The others are dropped.
const MEMBERS: usize = 256;

/// The checked steps with which a service of a kind becomes a target. In `commands` and `settings`, and in the examples
/// of the secrets, `${account}` stands for the name of the account: see [`with_account`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// The port of a URL without one. `None` for the default port of the scheme.
    pub port: Option<u16>,
    /// A path that the service answers with JSON, without credentials.
    pub public_path: String,
    /// A JSON pointer to a value that the answer of each service of this kind contains.
    pub public_pointer: Option<String>,
    /// The command that shows the fingerprint of the certificate on the server.
    pub fingerprint_command: Option<String>,
    /// The commands that create a read-only account on the server, run there as root in this order.
    pub commands: Vec<String>,
    /// The suggested name of the account.
    pub account: Option<String>,
    /// The settings of the target, an object.
    pub settings: Value,
    /// Whether a service of this kind can have several members.
    pub has_members: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            port: None,
            public_path: "/".to_owned(),
            public_pointer: None,
            fingerprint_command: None,
            commands: Vec::new(),
            account: None,
            settings: Value::Object(serde_json::Map::new()),
            has_members: false,
        }
    }
}

/// A member of a service, for example a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The display name.
    pub name: String,
    /// The IP address. `None` if the service does not report it.
    pub address: Option<IpAddr>,
    /// The fingerprint of its certificate. `None` if the service does not report it.
    pub fingerprint: Option<Fingerprint>,
}

/// Returns whether a name can be part of a shell command and of JSON as it is: letters, digits and `@ . _ - +`.
pub fn is_account(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME && name.chars().all(|c| c.is_ascii_alphanumeric() || "@._-+".contains(c))
}

impl Setup {
    /// Checks the steps of a descriptor. The error completes the sentence "its setup …".
    pub(crate) fn read(found: contract::Guide, secrets: &[SecretSpec], schema: &Value) -> Result<Self, String> {
        if found.commands.len() > COMMANDS {
            return Err(format!("has {} commands, more than {COMMANDS}", found.commands.len()));
        }
        // A command is shown for a person to run: what is invisible in it must not take effect.
        let all = found.commands.iter().chain(&found.fingerprint_command).chain([&found.public_path]);
        if let Some(odd) = all.chain(&found.public_pointer).find(|text| clean(text, TEXT) != **text) {
            let shown = clean(odd, NAME);
            return Err(format!("has a text that is too long or contains control characters: {shown:?}"));
        }
        if !found.public_path.starts_with('/') {
            return Err("has a public path that does not begin with /".to_owned());
        }
        if let Some(account) = found.account.as_ref().filter(|account| !is_account(account)) {
            return Err(format!(
                "suggests the account {:?}, which has other characters than letters, digits and @ . _ - +",
                clean(account, NAME)
            ));
        }
        let settings: Value = serde_json::from_str(&found.settings)
            .map_err(|error| format!("has settings that are not JSON: {error}"))?;
        let setup = Self {
            port: found.port,
            public_path: found.public_path,
            public_pointer: found.public_pointer,
            fingerprint_command: found.fingerprint_command,
            commands: found.commands,
            account: found.account,
            settings,
            has_members: found.has_members,
        };
        let suggested = setup.account.as_deref();
        // Required settings may be left to the user.
        let mut partial = schema.clone();
        partial.as_object_mut().map(|schema| schema.remove("required"));
        let (document, validator) = Schema::read(&partial.to_string())?;
        if let Some(problem) = validator.problems(&document, &setup.settings_of(suggested)).first() {
            return Err(format!("has settings that its schema refuses: {}", problem.message));
        }
        match secrets.iter().find(|secret| !secret.example_fits(suggested)) {
            Some(secret) => {
                Err(format!("has an example of the secret {:?} that does not match its pattern", secret.name))
            }
            None => Ok(setup),
        }
    }

    /// Returns the settings for an account.
    pub fn settings_of(&self, account: Option<&str>) -> Value {
        // An account's name contains no character that JSON escapes.
        serde_json::from_str(&with_account(&self.settings.to_string(), account)).unwrap_or_default()
    }
}

/// Converts members. What cannot be read of one is left out.
pub(crate) fn members(found: Vec<contract::Member>) -> Vec<Member> {
    let member = |found: contract::Member| Member {
        name: clean(&found.name, NAME),
        address: found.address.and_then(|address| address.parse().ok()),
        fingerprint: found.fingerprint.and_then(|fingerprint| Fingerprint::parse(&fingerprint).ok()),
    };
    found.into_iter().take(MEMBERS).map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        serde_json::json!({
            "type": "object", "required": ["realm"], "additionalProperties": false,
            "properties": { "username": { "type": "string" }, "realm": { "type": "string" } },
        })
    }

    fn secret(pattern: &str, example: &str) -> SecretSpec {
        SecretSpec {
            private_key: false,
            name: "token".to_owned(),
            description: String::new(),
            required: true,
            pattern: Some(regex::Regex::new(pattern).unwrap()),
            hint: None,
            example: Some(example.to_owned()),
        }
    }

    fn described() -> contract::Guide {
        contract::Guide {
            port: Some(8006),
            public_path: "/version".to_owned(),
            public_pointer: Some("/data".to_owned()),
            fingerprint_command: Some("show".to_owned()),
            commands: vec!["create ${account}".to_owned()],
            account: Some("reader@realm".to_owned()),
            settings: r#"{"username":"${account}"}"#.to_owned(),
            has_members: true,
            extra: Vec::new(),
        }
    }

    #[test]
    fn the_account_replaces_its_placeholder() {
        let setup = Setup::read(described(), &[secret("^.+@.+!x$", "${account}!x")], &schema()).unwrap();
        assert_eq!(setup.settings_of(Some("me@pam")), serde_json::json!({ "username": "me@pam" }));
        assert_eq!(with_account(&setup.commands[0], Some("me@pam")), "create me@pam");
        let secret = secret("^.+@.+!x$", "${account}!x");
        assert!(secret.example_fits(Some("me@pam")) && !secret.example_fits(Some("me")));
    }

    #[test]
    fn a_description_that_contradicts_itself_is_refused() {
        let fine = "^.+!x$";
        for (setup, pattern, says) in [
            (
                contract::Guide { commands: vec![String::new(); 21], ..described() },
                fine,
                "has 21 commands, more than 20",
            ),
            (contract::Guide { commands: vec!["a\u{1b}[2Kb".to_owned()], ..described() }, fine, "control characters"),
            (contract::Guide { commands: vec!["a\u{202e}b".to_owned()], ..described() }, fine, "control characters"),
            (contract::Guide { commands: vec!["a".repeat(2000)], ..described() }, fine, "too long"),
            (contract::Guide { public_path: "version".to_owned(), ..described() }, fine, "does not begin with /"),
            (
                contract::Guide { account: Some("a; reboot".to_owned()), ..described() },
                fine,
                "suggests the account \"a; reboot\"",
            ),
            (contract::Guide { settings: "{".to_owned(), ..described() }, fine, "settings that are not JSON"),
            (contract::Guide { settings: "[]".to_owned(), ..described() }, fine, "settings that its schema refuses"),
            (
                contract::Guide { settings: r#"{"user":1}"#.to_owned(), ..described() },
                fine,
                "settings that its schema refuses",
            ),
            (described(), "^never$", "an example of the secret \"token\" that does not match its pattern"),
        ] {
            let why = Setup::read(setup, &[secret(pattern, "${account}!x")], &schema()).unwrap_err();
            assert!(why.contains(says), "{says}: {why}");
        }
    }

    #[test]
    fn unreadable_parts_of_a_member_are_left_out() {
        let member = |name: &str, address: &str, fingerprint: &str| contract::Member {
            name: name.to_owned(),
            address: Some(address.to_owned()),
            fingerprint: Some(fingerprint.to_owned()),
            extra: Vec::new(),
        };
        let found = members(vec![member("a\nb", "192.0.2.1", &"ab".repeat(32)), member("c", "$(reboot)", "no")]);
        assert_eq!(
            (found[0].name.as_str(), found[0].address, found[1].address),
            ("a b", "192.0.2.1".parse().ok(), None)
        );
        assert!(found[0].fingerprint.is_some() && found[1].fingerprint.is_none());
        assert_eq!(members(vec![member("a", "", ""); 1000]).len(), MEMBERS);
    }
}
