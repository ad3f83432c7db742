//! The secrets that a descriptor names.

use regex::Regex;

/// The placeholder for the name of the account.
const ACCOUNT: &str = "${account}";

/// A secret that a plugin can use.
#[derive(Clone, Debug)]
pub struct SecretSpec {
    /// The name of the secret.
    pub name: String,
    /// The purpose of the secret.
    pub description: String,
    /// Whether the plugin cannot work without it.
    pub required: bool,
    /// Whether it is a private key in PEM, for signatures only.
    pub private_key: bool,
    /// The pattern of the whole value. `None` if every value is valid.
    pub pattern: Option<Regex>,
    /// The message for a value that does not match the pattern.
    pub hint: Option<String>,
    /// An example of the value, in which `${account}` stands for the name of an account.
    pub example: Option<String>,
}

impl SecretSpec {
    /// Returns whether the example of the value matches the pattern. Without one of them, it does.
    pub fn example_fits(&self, account: Option<&str>) -> bool {
        let example = self.example.as_ref().map(|example| with_account(example, account));
        self.pattern.as_ref().zip(example).is_none_or(|(pattern, example)| pattern.is_match(&example))
    }
}

/// Returns a text with the name of the account in place of `${account}`.
pub fn with_account(text: &str, account: Option<&str>) -> String {
    text.replace(ACCOUNT, account.unwrap_or_default())
}
