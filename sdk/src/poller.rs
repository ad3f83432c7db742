//! A plugin as a Rust type.

use crate::bindings::exports::polliwog::poller::poller::Guest;
use crate::{Descriptor, PollError, Report, SecretSpec, Target};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// A plugin: who it is, what an operator can set, and what one poll does.
pub trait Poller {
    /// The target's settings. Their JSON Schema, with descriptions from the doc comments, is what operators are shown.
    type Settings: DeserializeOwned + JsonSchema;
    /// Who this plugin is.
    const INFO: Info;

    /// The secrets that an operator can give.
    fn secrets() -> Vec<SecretSpec> {
        Vec::new()
    }

    /// What is wrong with settings that fit their schema; empty when they are good. A problem that begins with a setting's name
    /// in quotes, as `"limits.warning" is …`, is shown at that setting's line.
    fn check(settings: &Self::Settings) -> Vec<String> {
        let _ = settings;
        Vec::new()
    }

    /// One poll, in an instance of its own.
    fn poll(target: &Target, settings: Self::Settings) -> Result<Report, PollError>;
}

/// Who a plugin is.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// What operators write as `kind = "..."`: `[a-z][a-z0-9-]{0,31}`.
    pub kind: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// The plugin's own semantic version.
    pub version: &'static str,
    /// One sentence: what it reads.
    pub summary: &'static str,
    /// How often a target is polled where nobody says, in milliseconds.
    pub default_interval_ms: u32,
    /// How long a poll may take where nobody says, in milliseconds.
    pub default_timeout_ms: u32,
}

impl Info {
    /// The defaults for plugins that watch services: every 30 s, 10 s at most.
    pub const SERVICE: Self =
        Self { kind: "", title: "", version: "", summary: "", default_interval_ms: 30_000, default_timeout_ms: 10_000 };
}

/// The settings of a plugin that has none. Any key is an error.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Reads a body as JSON of a known shape.
///
/// Fails as transient (`not_json`, `unexpected_shape`): proxies and gateways answer 200 with pages of their own.
pub fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, PollError> {
    serde_json::from_slice(body).map_err(|error| {
        let data = error.classify() == serde_json::error::Category::Data;
        let (code, what) =
            if data { ("unexpected_shape", "another shape than expected") } else { ("not_json", "no JSON") };
        let start = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let message = format!("the body is {what} ({error}); it begins {start:?}: check that the URL is the right one");
        PollError::transient(code, message)
    })
}

/// The component's exports, made from a [`Poller`].
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
        }
    }

    fn check_settings(settings: String) -> Vec<String> {
        match serde_json::from_str(&settings) {
            Ok(settings) => P::check(&settings),
            Err(error) => vec![error.to_string()],
        }
    }

    fn poll(target: Target) -> Result<Report, PollError> {
        let settings = serde_json::from_str(&target.settings).map_err(|error| {
            PollError::permanent(
                "bad_settings",
                format!("the target's settings do not fit kind {}: {error}", P::INFO.kind),
            )
        })?;
        P::poll(&target, settings)
    }
}
