//! The trait of a plugin.

use crate::poller_bindings::exports::polliwog::poller::poller::Guest;
use crate::{Descriptor, Member, PollError, Report, SecretSpec, Setup, Target};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// A plugin: its description, its settings, and one poll.
pub trait Poller {
    /// The target's settings. Operators see their JSON Schema, with descriptions from the doc comments.
    type Settings: DeserializeOwned + JsonSchema;
    /// The description of this plugin.
    const INFO: Info;

    /// Returns the secrets that an operator can configure.
    fn secrets() -> Vec<SecretSpec> {
        Vec::new()
    }

    /// Returns the problems of settings that match their schema. Empty if the settings are valid. If a problem begins
    /// with the name of a setting in quotes, for example `"limits.warning" is …`, the host shows it at the line of that
    /// setting.
    fn check(settings: &Self::Settings) -> Vec<String> {
        let _ = settings;
        Vec::new()
    }

    /// Returns how a service becomes a target, for the command `setup`.
    fn setup() -> Option<Setup> {
        None
    }

    /// Returns the members of the service other than the one at the target's URL, for the command `setup`. Called only
    /// if [`Setup::has_members`] is true.
    fn members(target: &Target, settings: Self::Settings) -> Result<Vec<Member>, PollError> {
        let _ = (target, settings);
        Ok(Vec::new())
    }

    /// Polls the target once. Each poll runs in its own instance.
    fn poll(target: &Target, settings: Self::Settings) -> Result<Report, PollError>;
}

/// The description of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The value of `kind = "..."` in the configuration: `[a-z][a-z0-9-]{0,31}`.
    pub kind: &'static str,
    /// The display name.
    pub title: &'static str,
    /// The plugin's own semantic version.
    pub version: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// The interval of a target without a configured interval, in milliseconds.
    pub default_interval_ms: u32,
    /// The timeout of a target without a configured timeout, in milliseconds.
    pub default_timeout_ms: u32,
}

impl Info {
    /// The defaults for plugins that monitor services: an interval of 30 s and a timeout of 10 s.
    pub const SERVICE: Self =
        Self { kind: "", title: "", version: "", summary: "", default_interval_ms: 30_000, default_timeout_ms: 10_000 };
}

/// The settings of a plugin without settings. Every key is an error.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Parses a body as JSON.
///
/// The failure is transient (`not_json`, `unexpected_shape`), because proxies and gateways answer 200 with their own
/// pages.
pub fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, PollError> {
    // The body is checked for UTF-8 once, instead of each text in it.
    let parsed = std::str::from_utf8(body).map_or_else(|_| serde_json::from_slice(body), serde_json::from_str);
    parsed.map_err(|error| {
        let data = error.classify() == serde_json::error::Category::Data;
        let (code, problem) = if data {
            ("unexpected_shape", "the body has an unexpected shape")
        } else {
            ("not_json", "the body is not JSON")
        };
        let start = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let message = format!("{problem} ({error}); it starts with {start:?}: check that the URL is correct");
        PollError::transient(code, message)
    })
}

/// Implements the exports of the component for a [`Poller`].
pub struct Exported<P>(PhantomData<P>);

impl<P: Poller> Guest for Exported<P> {
    fn describe() -> Descriptor {
        let Info { kind, title, version, summary, default_interval_ms, default_timeout_ms } = P::INFO;
        Descriptor {
            kind: kind.to_owned(),
            title: title.to_owned(),
            version: version.to_owned(),
            summary: summary.to_owned(),
            settings_schema: schemars::schema_for!(P::Settings).as_value().to_string(),
            secrets: P::secrets(),
            default_interval_ms,
            default_timeout_ms,
            setup: P::setup(),
        }
    }

    fn check_settings(settings: String) -> Vec<String> {
        match serde_json::from_str(&settings) {
            Ok(settings) => P::check(&settings),
            Err(error) => vec![error.to_string()],
        }
    }

    fn poll(target: Target) -> Result<Report, PollError> {
        P::poll(&target, settings::<P>(&target)?)
    }

    fn members(target: Target) -> Result<Vec<Member>, PollError> {
        P::members(&target, settings::<P>(&target)?)
    }
}

fn settings<P: Poller>(target: &Target) -> Result<P::Settings, PollError> {
    serde_json::from_str(&target.settings).map_err(|error| {
        let message = format!("the target's settings are not valid for kind {}: {error}", P::INFO.kind);
        PollError::permanent("bad_settings", message)
    })
}
