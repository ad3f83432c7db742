//! The trait of a plugin that polls.

use crate::bindings::exports::polliwog::plugin::definition::Guest as DefinitionGuest;
use crate::bindings::exports::polliwog::plugin::poller::Guest as PollerGuest;
use crate::bindings::exports::polliwog::plugin::session::Guest as SessionGuest;
use crate::bindings::exports::polliwog::plugin::setup::Guest as SetupGuest;
use crate::definition::{checked, migrated, not_migrated, settings_of};
use crate::report::millis;
use crate::{CallError, Descriptor, Endpoint, Guide, Member, Report, SecretSpec, SettingsProblem};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::marker::PhantomData;
use std::time::Duration;

/// A plugin: its description, its settings, and one poll.
///
/// ```
/// use polliwog_sdk::prelude::*;
///
/// struct Disk;
///
/// #[derive(Deserialize, JsonSchema)]
/// #[serde(crate = "polliwog_sdk::serde")]
/// #[schemars(crate = "polliwog_sdk::schemars")]
/// struct Settings {
///     /// A fuller disk is critical, in percent.
///     critical: f64,
/// }
///
/// impl Poller for Disk {
///     type Settings = Settings;
///     const INFO: Info = Info {
///         kind: "disk",
///         title: "Disk",
///         version: "0.1.0",
///         summary: "How full a disk is",
///         ..Info::SERVICE
///     };
///
///     fn poll(_: &Endpoint, settings: Settings) -> Result<Report, CallError> {
///         let used: f64 = http::get("/used")?.json()?;
///         let is_full = used > settings.critical;
///         let disk = if is_full { Dependency::critical("disk", "it is full") } else { Dependency::ok("disk") };
///         Ok([disk].into_iter().collect())
///     }
/// }
///
/// # use polliwog_sdk::testing::{self, Recording};
/// let full = r#"[{ "request": { "method": "GET", "url": "/used" }, "response": { "status": 200, "body": "97" } }]"#;
/// let full = Recording::parse(full);
/// let report = testing::poll::<Disk>(full, testing::target(r#"{"critical": 90}"#)).unwrap();
/// assert_eq!(report.dependencies[0].status, Status::Critical);
/// ```
pub trait Poller {
    /// The target's settings. Operators see their JSON Schema, with descriptions from the doc comments.
    type Settings: DeserializeOwned + JsonSchema;
    /// The description of this plugin.
    const INFO: Info;
    /// The version of the shape of the settings. A plugin with other settings than its last version has a higher one,
    /// and converts earlier settings with [`migrate`](Self::migrate).
    const SETTINGS_VERSION: u32 = 1;

    /// Returns the secrets that an operator can configure.
    fn secrets() -> Vec<SecretSpec> {
        Vec::new()
    }

    /// Returns the problems of settings that match their schema. Empty if the settings are valid.
    fn check(settings: &Self::Settings) -> Vec<SettingsProblem> {
        let _ = settings;
        Vec::new()
    }

    /// Converts settings of an earlier version to [`SETTINGS_VERSION`](Self::SETTINGS_VERSION).
    ///
    /// # Errors
    /// If they have no equivalent, so that an operator must change them.
    fn migrate(version: u32, settings: Value) -> Result<Value, SettingsProblem> {
        let _ = settings;
        Err(not_migrated(version))
    }

    /// Polls the target once. Each poll runs in its own instance.
    ///
    /// # Errors
    /// If there is nothing to report.
    fn poll(target: &Endpoint, settings: Self::Settings) -> Result<Report, CallError>;
}

/// How a service becomes a target, for the command `setup`. Register it with `register!(MyPoller with setup)`.
///
/// ```
/// # use polliwog_sdk::prelude::*;
/// # use polliwog_sdk::{Guide, Setup};
/// # struct Disk;
/// # impl Poller for Disk {
/// #     type Settings = NoSettings;
/// #     const INFO: Info = Info { kind: "disk", ..Info::SERVICE };
/// #     fn poll(_: &Endpoint, _: NoSettings) -> Result<Report, CallError> { todo!() }
/// # }
/// impl Setup for Disk {
///     fn guide() -> Guide {
///         let commands = vec!["diskd token create polliwog".to_owned()];
///         Guide { port: Some(8006), commands, ..Guide::new("/version") }
///     }
/// }
/// ```
pub trait Setup: Poller {
    /// Returns the steps.
    fn guide() -> Guide;

    /// Returns the members of the service other than the one at the target's URL. Called only if
    /// [`Guide::has_members`] is true.
    ///
    /// # Errors
    /// If the service does not answer.
    fn members(target: &Endpoint, settings: Self::Settings) -> Result<Vec<Member>, CallError> {
        let _ = (target, settings);
        Ok(Vec::new())
    }
}

/// The end of the session that calls of an endpoint opened, for example a log-out. Export it with
/// `register!(MyPoller with session)` or `register_notifier!(MyNotifier with session)`.
///
/// ```no_run
/// # use polliwog_sdk::http::{Request, has_secret, secret};
/// # use polliwog_sdk::{Endpoint, NoSettings, Session};
/// # struct Disk;
/// impl Session for Disk {
///     type Settings = NoSettings;
///
///     fn close(_: &Endpoint, _: NoSettings) {
///         if has_secret("ticket") {
///             // If this fails, the session ends when it has expired.
///             let _ = Request::new("DELETE", "/session").header("x-ticket", secret("ticket")).send();
///         }
///     }
/// }
/// ```
pub trait Session {
    /// The settings of the endpoint.
    type Settings: DeserializeOwned;

    /// Ends the session. Called when the endpoint is removed, disabled or changed, when its plugin changes, and when
    /// the host ends. It has the captured secrets, 2 s and 8 requests.
    fn close(target: &Endpoint, settings: Self::Settings);
}

/// The description of a plugin. End it with `..Info::SERVICE`: later versions have more fields.
///
/// ```
/// # use polliwog_sdk::Info;
/// # use std::time::Duration;
/// const INFO: Info = Info {
///     kind: "disk",
///     title: "Disk",
///     version: "0.1.0",
///     summary: "How full a disk is",
///     default_interval: Duration::from_secs(300),
///     ..Info::SERVICE
/// };
/// ```
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
    /// The address of the plugin's page, with http or https.
    pub homepage: Option<&'static str>,
    /// The licence as an SPDX expression, for example `Apache-2.0`.
    pub license: Option<&'static str>,
    /// The schemes of the URLs that the plugin accepts. The host refuses a target with another scheme.
    pub schemes: &'static [&'static str],
    /// The interval of a target without a configured interval, at most 49 days.
    pub default_interval: Duration,
    /// The timeout of a target without a configured timeout, at most 49 days.
    pub default_timeout: Duration,
}

impl Info {
    /// The defaults for plugins that monitor services: an interval of 30 s and a timeout of 10 s.
    pub const SERVICE: Self = Self {
        kind: "",
        title: "",
        version: "",
        summary: "",
        homepage: None,
        license: None,
        schemes: &["http", "https"],
        default_interval: Duration::from_secs(30),
        default_timeout: Duration::from_secs(10),
    };
}

/// The settings of a plugin without settings. Every key is an error.
///
/// ```
/// # use polliwog_sdk::{NoSettings, serde_json};
/// assert!(serde_json::from_str::<NoSettings>("{}").is_ok());
/// assert!(serde_json::from_str::<NoSettings>(r#"{"limit": 3}"#).is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Implements the exports of the component for a [`Poller`].
pub struct Exported<P>(PhantomData<P>);

impl<P: Poller> DefinitionGuest for Exported<P> {
    fn describe() -> Descriptor {
        let Info { kind, title, version, summary, homepage, license, schemes, default_interval, default_timeout } =
            P::INFO;
        Descriptor {
            kind: kind.to_owned(),
            title: title.to_owned(),
            version: version.to_owned(),
            summary: summary.to_owned(),
            homepage: homepage.map(str::to_owned),
            license: license.map(str::to_owned),
            schemes: schemes.iter().map(|&scheme| scheme.to_owned()).collect(),
            settings_schema: schemars::schema_for!(P::Settings).as_value().to_string(),
            settings_version: P::SETTINGS_VERSION,
            secrets: P::secrets(),
            default_interval_ms: Some(millis(default_interval)),
            default_timeout_ms: millis(default_timeout),
            extra: Vec::new(),
        }
    }

    fn check_settings(settings: String) -> Vec<SettingsProblem> {
        checked(&settings, P::check)
    }

    fn migrate_settings(version: u32, settings: String) -> Result<String, SettingsProblem> {
        migrated(version, &settings, P::migrate)
    }
}

impl<P: Poller> PollerGuest for Exported<P> {
    fn poll(target: Endpoint) -> Result<Report, CallError> {
        P::poll(&target, settings_of(&target, P::INFO.kind)?)
    }
}

impl<P: Session> SessionGuest for Exported<P> {
    fn close(target: Endpoint) {
        closed::<P>(&target);
    }
}

/// Ends a session, unless the settings are not those of the plugin.
pub(crate) fn closed<S: Session>(target: &Endpoint) {
    if let Ok(settings) = serde_json::from_str(&target.settings) {
        S::close(target, settings);
    }
}

impl<P: Setup> SetupGuest for Exported<P> {
    fn describe_setup() -> Guide {
        P::guide()
    }

    fn members(target: Endpoint) -> Result<Vec<Member>, CallError> {
        P::members(&target, settings_of(&target, P::INFO.kind)?)
    }
}
