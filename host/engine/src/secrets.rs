//! Reading secrets.

use config::{SecretSource, TargetConfig};
use egress::{OriginGrant, SecretRules};
use sandbox::Plugin;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The longest secret, in bytes.
const LONGEST: u64 = 64 << 10;

/// A digest of secrets' values and of trusted authorities, to detect changes. It never leaves this process.
pub(crate) fn digest(values: &BTreeMap<String, SecretString>, origins: &[OriginGrant]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for (name, value) in values {
        hasher.update(name);
        hasher.update([0]);
        hasher.update(value.expose_secret());
        hasher.update([0]);
    }
    for origin in origins {
        hasher.update(format!("{:?}", origin.tls));
    }
    hasher.finalize().into()
}

/// Returns the rules for the values of a target's secrets.
pub(crate) fn rules(written: &TargetConfig, plugin: Option<&Plugin>) -> SecretRules {
    let specs = plugin.map(|plugin| plugin.descriptor().secrets.as_slice()).unwrap_or_default();
    let private_keys = specs.iter().filter(|spec| spec.private_key).map(|spec| spec.name.clone()).collect();
    SecretRules { short: written.short_secrets.clone(), private_keys }
}

/// Reads a target's secrets and checks them against its plugin's descriptor.
pub(crate) fn read_all(
    written: &TargetConfig,
    plugin: Option<&Plugin>,
    note: &mut impl FnMut(String),
) -> BTreeMap<String, SecretString> {
    let mut values = BTreeMap::new();
    for (name, source) in &written.secrets {
        match read_secret(source) {
            Ok(value) => {
                values.insert(name.clone(), value);
            }
            Err(why) => note(format!("the secret {name:?}: {why}")),
        }
    }
    for spec in plugin.map(|plugin| plugin.descriptor().secrets.as_slice()).unwrap_or_default() {
        match (values.get(&spec.name), &spec.pattern) {
            (None, _) if spec.required && !written.secrets.contains_key(&spec.name) => {
                let given: Vec<&str> = written.secrets.keys().map(String::as_str).collect();
                let given = if given.is_empty() { String::new() } else { format!(" (it has {})", given.join(", ")) };
                note(format!("it needs the secret {:?}: {}{given}", spec.name, spec.description));
            }
            (Some(value), Some(pattern)) if !pattern.is_match(value.expose_secret()) => {
                let hint = spec.hint.as_deref().unwrap_or("it does not have the expected form");
                let bare = value.expose_secret().trim_matches(|c: char| c.is_whitespace() || "\u{feff}\"'".contains(c));
                // These characters are invisible in an editor.
                let around = if bare.is_empty() {
                    "it is empty; "
                } else if pattern.is_match(bare) {
                    "it has blanks, quotes or a byte order mark around it, which do not belong to it; "
                } else {
                    ""
                };
                note(format!("the secret {:?}: {around}{hint}", spec.name));
            }
            _ => {}
        }
    }
    values
}

/// Reads a secret's value.
///
/// # Errors
/// One sentence.
pub fn read_secret(source: &SecretSource) -> Result<SecretString, String> {
    match source {
        SecretSource::Variable(variable) => std::env::var(variable)
            .map(SecretString::from)
            .map_err(|_| format!("the environment variable {variable} is not set, or is not UTF-8")),
        SecretSource::File(file) => {
            let text = config::read_text(file, LONGEST)?;
            let value = text.strip_suffix('\n').unwrap_or(&text);
            Ok(SecretString::from(value.strip_suffix('\r').unwrap_or(value)))
        }
        SecretSource::Simulated(value) => Ok(SecretString::from(*value)),
    }
}
