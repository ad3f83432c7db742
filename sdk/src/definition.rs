//! The description of a plugin: its secrets, and the problems of its settings.

use crate::{CallError, Endpoint, Guide, Member, SecretSpec, SettingsProblem};
use serde::de::DeserializeOwned;
use serde_json::Value;

impl SecretSpec {
    /// Creates the description of a secret that an operator must configure.
    ///
    /// ```
    /// use polliwog_sdk::SecretSpec;
    ///
    /// let token = SecretSpec::required("token", "an API token with the right to read")
    ///     .with_pattern("[a-z]+=.+", "write it as NAME=VALUE")
    ///     .with_example("reader=5f2a");
    /// assert!(token.required);
    /// ```
    pub fn required(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            required: true,
            private_key: false,
            pattern: None,
            hint: None,
            example: None,
            extra: Vec::new(),
        }
    }

    /// Creates the description of a secret that an operator may configure.
    pub fn optional(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { required: false, ..Self::required(name, description) }
    }

    /// Makes it a private key in PEM, which signs requests and is inserted nowhere. Its value can have several lines.
    ///
    /// ```
    /// use polliwog_sdk::SecretSpec;
    ///
    /// assert!(SecretSpec::required("key", "the private key of the service account").private_key().private_key);
    /// ```
    #[must_use]
    pub fn private_key(self) -> Self {
        Self { private_key: true, ..self }
    }

    /// Sets a regular expression for the whole value, and the message for a value that does not match it. The host
    /// checks it.
    #[must_use]
    pub fn with_pattern(self, pattern: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), hint: Some(hint.into()), ..self }
    }

    /// Sets an example of the value, as the command `setup` shows it. `${account}` stands for the name of the account.
    #[must_use]
    pub fn with_example(self, example: impl Into<String>) -> Self {
        Self { example: Some(example.into()), ..self }
    }
}

impl SettingsProblem {
    /// Creates a problem of one setting. `setting` is a JSON pointer, for example `/limits/warning`; the host shows the
    /// problem at the line of that setting. The message is one sentence that does not repeat the name of the setting.
    ///
    /// ```
    /// use polliwog_sdk::SettingsProblem;
    ///
    /// let problem = SettingsProblem::at("/limits/warning", "it is above limits.critical: swap them");
    /// assert_eq!(problem.sentence(), "limits.warning: it is above limits.critical: swap them");
    /// ```
    pub fn at(setting: impl Into<String>, message: impl Into<String>) -> Self {
        Self { setting: Some(setting.into()), message: message.into(), extra: Vec::new() }
    }

    /// Creates a problem that is not about one setting. The message is one sentence.
    pub fn of_all(message: impl Into<String>) -> Self {
        Self { setting: None, message: message.into(), extra: Vec::new() }
    }

    /// Returns the problem with the place of its setting, as the host shows it.
    pub fn sentence(&self) -> String {
        match self.setting.as_deref().unwrap_or_default().trim_start_matches('/') {
            "" => self.message.clone(),
            path => format!("{}: {}", path.replace('/', "."), self.message),
        }
    }
}

/// A call with settings that cannot be used. The host checks settings before a call, so this is for settings that
/// became invalid with a new version of the plugin.
impl From<SettingsProblem> for CallError {
    fn from(problem: SettingsProblem) -> Self {
        Self::misconfigured("bad_settings", problem.sentence())
    }
}

impl Guide {
    /// Creates steps without commands and settings. `public_path` is a path that the service answers without
    /// credentials. The other fields are public.
    ///
    /// ```
    /// # use polliwog_sdk::Guide;
    /// let guide = Guide { port: Some(8006), ..Guide::new("/api2/json/version") };
    /// ```
    pub fn new(public_path: impl Into<String>) -> Self {
        Self {
            port: None,
            public_path: public_path.into(),
            public_pointer: None,
            fingerprint_command: None,
            commands: Vec::new(),
            account: None,
            settings: "{}".to_owned(),
            has_members: false,
            extra: Vec::new(),
        }
    }
}

impl Member {
    /// Creates a member whose address and fingerprint are not known.
    ///
    /// ```
    /// # use polliwog_sdk::Member;
    /// let member = Member { address: Some("192.0.2.2".to_owned()), ..Member::new("pve2") };
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), address: None, fingerprint: None, extra: Vec::new() }
    }
}

impl Endpoint {
    /// Returns the address of a path below the endpoint's URL, which may have a path already.
    ///
    /// ```
    /// # use polliwog_sdk::testing;
    /// assert_eq!(testing::target("{}").under("health"), "http://127.0.0.1:8080/health");
    /// ```
    pub fn under(&self, path: &str) -> String {
        format!("{}/{path}", self.url.trim_end_matches('/'))
    }
}

/// Parses the settings of an endpoint of this kind.
pub(crate) fn settings_of<T: DeserializeOwned>(endpoint: &Endpoint, kind: &str) -> Result<T, CallError> {
    serde_json::from_str(&endpoint.settings).map_err(|error| {
        let message = format!("the settings are not valid for kind {kind}: {error}");
        CallError::misconfigured("bad_settings", message)
    })
}

/// Returns the problems of settings, which the schema accepts.
pub(crate) fn checked<T: DeserializeOwned>(
    settings: &str,
    check: impl FnOnce(&T) -> Vec<SettingsProblem>,
) -> Vec<SettingsProblem> {
    match serde_json::from_str(settings) {
        Ok(settings) => check(&settings),
        Err(error) => vec![SettingsProblem::of_all(error.to_string())],
    }
}

/// The problem of settings that a plugin does not convert.
pub(crate) fn not_migrated(version: u32) -> SettingsProblem {
    SettingsProblem::of_all(format!("settings of version {version} have no equivalent: write new ones"))
}

/// Converts settings of an earlier version.
pub(crate) fn migrated(
    version: u32,
    settings: &str,
    migrate: impl FnOnce(u32, Value) -> Result<Value, SettingsProblem>,
) -> Result<String, SettingsProblem> {
    let settings = serde_json::from_str(settings).map_err(|error| SettingsProblem::of_all(error.to_string()))?;
    migrate(version, settings).map(|settings| settings.to_string())
}
