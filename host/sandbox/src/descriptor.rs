//! Checks what a plugin says about itself.

use crate::host::v0_1::definition;
use crate::host::v0_1::notifier::DeliveryRules;
use crate::host::v0_1::setup::Guide;
use crate::plugin::{Descriptor, Role};
use crate::refusal::Refusal;
use crate::secret_spec::SecretSpec;
use crate::setup::Setup;
use model::{Kind, clean};
use regex::RegexBuilder;
use schema::Schema;
use std::time::Duration;

/// Maximum length of a title in bytes.
const TITLE: usize = 256;
/// Maximum length of a version or a secret's name in bytes.
const VERSION: usize = 64;
/// Maximum length of the address of a plugin's page in bytes.
const HOMEPAGE: usize = 2048;
/// Maximum number of secrets of a plugin.
const SECRETS: usize = 32;
/// Maximum number of schemes of a plugin.
const SCHEMES: usize = 16;
/// The schemes of URLs that this host can request.
const KNOWN_SCHEMES: [&str; 2] = ["http", "https"];
/// Maximum length of a secret's pattern in bytes. The regex parser has no limit for the memory and time of long
/// patterns.
const PATTERN_BYTES: usize = 1 << 10;
/// Maximum size of a secret's compiled pattern in bytes.
const COMPILED_PATTERN_BYTES: usize = 1 << 20;
/// The interval of a plugin that suggests none, in milliseconds.
const INTERVAL_MS: u32 = 30_000;
/// Minimum interval that an operator can configure, and so a plugin can suggest.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum interval that an operator can configure.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);
/// Minimum timeout that an operator can configure.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum timeout that an operator can configure.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The results of the functions that describe a plugin.
pub(crate) struct Described {
    pub descriptor: definition::Descriptor,
    /// `None` for a poller.
    pub delivery: Option<DeliveryRules>,
    pub setup: Option<Guide>,
}

/// Checks the results of the functions that describe a plugin.
pub(crate) fn check(described: Described) -> Result<(Descriptor, Schema), Refusal> {
    let Described { descriptor: found, delivery, setup } = described;
    let bad = |message: String| Refusal::stored("bad_descriptor", message);
    let kind = Kind::new(&found.kind).map_err(|error| bad(format!("its kind is not valid: {error}")))?;
    if found.version.is_empty() || found.version.len() > VERSION {
        return Err(bad("its version is empty or longer than 64 bytes".to_owned()));
    }
    if !is_semantic(&found.version) {
        let version = clean(&found.version, VERSION);
        return Err(bad(format!("its version {version:?} is not a semantic version: write it as 1.2.3")));
    }
    let (settings_schema, schema) =
        Schema::read(&found.settings_schema).map_err(|why| bad(format!("its settings schema {why}")))?;
    if let Some(problem) = schema.own_problem(&settings_schema) {
        return Err(bad(format!("its settings schema {problem}")));
    }
    if found.settings_version == 0 {
        return Err(bad("its settings have the version 0: versions begin with 1".to_owned()));
    }
    if found.secrets.len() > SECRETS {
        return Err(bad(format!("it names {} secrets, more than {SECRETS}", found.secrets.len())));
    }
    let secrets = found.secrets.into_iter().map(secret).collect::<Result<Vec<_>, _>>()?;
    for (place, spec) in secrets.iter().enumerate() {
        if secrets[..place].iter().any(|other| other.name == spec.name) {
            return Err(bad(format!("it names the secret {:?} twice", spec.name)));
        }
    }
    let clamp = |name: &str, ms: u32, (low, high): (Duration, Duration)| {
        let suggested = Duration::from_millis(ms.into());
        let used = suggested.clamp(low, high);
        if used != suggested {
            tracing::warn!(
                "plugin {kind}: its default {name} of {suggested:?} is out of range; {used:?} is used instead"
            );
        }
        used
    };
    let role = match delivery {
        Some(rules) => Role::Notifier { needs_every_alert: rules.needs_every_alert },
        None => Role::Poller,
    };
    let default_interval = match role {
        Role::Poller => {
            clamp("interval", found.default_interval_ms.unwrap_or(INTERVAL_MS), (SHORTEST_INTERVAL, LONGEST_INTERVAL))
        }
        Role::Notifier { .. } => Duration::ZERO,
    };
    let default_timeout = clamp("timeout", found.default_timeout_ms, (SHORTEST_TIMEOUT, LONGEST_TIMEOUT));
    let setup = setup.map(|setup| Setup::read(setup, &secrets, &settings_schema)).transpose();
    let setup = setup.map_err(|why| bad(format!("its setup {why}")))?;
    let descriptor = Descriptor {
        role,
        kind,
        title: clean(&found.title, TITLE),
        version: clean(&found.version, VERSION),
        summary: clean(&found.summary, TITLE * 4),
        homepage: found.homepage.map(|homepage| homepage_of(&homepage)).transpose().map_err(bad)?,
        license: found.license.map(|license| clean(&license, TITLE)),
        schemes: schemes(found.schemes).map_err(bad)?,
        settings_schema,
        settings_version: found.settings_version,
        secrets,
        default_interval,
        default_timeout,
        setup,
    };
    Ok((descriptor, schema))
}

/// Returns the address of a plugin's page. The error completes a sentence that begins with the plugin.
fn homepage_of(text: &str) -> Result<String, String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    match is_web && clean(text, HOMEPAGE) == text {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "its homepage {:?} is not an address with http or https of at most {HOMEPAGE} bytes",
            clean(text, TITLE)
        )),
    }
}

/// Returns those of a plugin's schemes that this host can request. Others can only be those of later hosts.
fn schemes(found: Vec<String>) -> Result<Vec<String>, String> {
    if found.len() > SCHEMES {
        return Err(format!("it accepts {} schemes, more than {SCHEMES}", found.len()));
    }
    let all = found.iter().map(|scheme| clean(scheme, VERSION)).collect::<Vec<_>>().join(", ");
    let is_limited = !found.is_empty();
    let known: Vec<String> = found.into_iter().filter(|scheme| KNOWN_SCHEMES.contains(&scheme.as_str())).collect();
    match known.is_empty() && is_limited {
        true => Err(format!("it accepts URLs with {all} only, which this version of Polliwog cannot poll")),
        false => Ok(known),
    }
}

fn secret(spec: definition::SecretSpec) -> Result<SecretSpec, Refusal> {
    let name = clean(&spec.name, VERSION);
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if name.is_empty() || name != spec.name || !is_plain {
        let message = format!("the name of its secret {name:?} is not 1 to {VERSION} letters, digits, _ and -");
        return Err(Refusal::stored("bad_descriptor", message));
    }
    if spec.pattern.as_ref().is_some_and(|pattern| pattern.len() > PATTERN_BYTES) {
        let message = format!("the pattern of its secret {name:?} is longer than {PATTERN_BYTES} bytes");
        return Err(Refusal::stored("bad_descriptor", message));
    }
    let compile =
        |pattern: String| RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(COMPILED_PATTERN_BYTES).build();
    let pattern = spec.pattern.map(compile).transpose();
    Ok(SecretSpec {
        pattern: pattern.map_err(|_| {
            Refusal::stored("bad_descriptor", format!("the pattern of its secret {name:?} is not a regular expression"))
        })?,
        description: clean(&spec.description, TITLE * 4),
        required: spec.required,
        private_key: spec.private_key,
        hint: spec.hint.map(|hint| clean(&hint, TITLE * 4)),
        example: spec.example.map(|example| clean(&example, TITLE * 4)),
        name,
    })
}

/// Returns whether a version consists of three numbers, optionally followed by the parts after - and + of semver.org.
fn is_semantic(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &version[core.len()..];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    numbers.len() == 3 && numbers.iter().all(is_number) && rest.len() != 1 && rest.bytes().all(plain)
}
