//! The settings of an email channel.

use lettre::message::Mailbox;
use serde_json::Value;

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) from: Mailbox,
    pub(crate) to: Vec<Mailbox>,
    pub(crate) user: Option<String>,
    pub(crate) encryption: Encryption,
}

/// How a connection that begins without TLS continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// With STARTTLS. A server that does not offer it receives nothing.
    Required,
    /// Without TLS, for a relay on the same machine or network.
    None,
}

/// A problem of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The setting, if the problem is about one.
    pub setting: Option<&'static str>,
    /// One sentence.
    pub message: String,
}

/// The names of the settings.
const NAMES: [&str; 4] = ["from", "to", "user", "encryption"];
/// The maximum number of recipients.
const RECIPIENTS: usize = 100;

impl Settings {
    /// Reads the settings. `has_password` says whether the channel has the secret `password`, `is_tls` whether its
    /// connections have TLS from the start.
    ///
    /// # Errors
    /// Every problem.
    pub fn read(settings: &Value, has_password: bool, is_tls: bool) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut note = |setting, message: String| problems.push(Problem { setting, message });
        let unknown = settings.as_object().into_iter().flat_map(|all| all.keys());
        for key in unknown.filter(|key| !NAMES.contains(&key.as_str())) {
            note(None, format!("{key:?} is not a setting of kind email: use {}", NAMES.join(", ")));
        }
        let from = match settings.get("from") {
            Some(from) => mailbox(from).map_err(|why| note(Some("from"), format!("\"from\": {why}"))).ok(),
            None => {
                note(None, "\"from\" is missing: the sender, such as \"Polliwog <polliwog@example.com>\"".to_owned());
                None
            }
        };
        let written = match settings.get("to") {
            Some(Value::Array(all)) => all.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        if written.is_empty() || written.len() > RECIPIENTS {
            note(Some("to"), format!("\"to\" has 1 to {RECIPIENTS} recipients, such as [\"ops@example.com\"]"));
        }
        let read = written.iter().map(|one| mailbox(one).map_err(|why| note(Some("to"), format!("\"to\": {why}"))));
        let to: Vec<Mailbox> = read.filter_map(Result::ok).collect();
        let user = match settings.get("user") {
            Some(Value::String(user)) if !user.is_empty() => Some(user.clone()),
            Some(_) => {
                note(Some("user"), "\"user\" is a text that is not empty".to_owned());
                None
            }
            None => None,
        };
        let encryption = match settings.get("encryption").map(Value::as_str) {
            None | Some(Some("required")) => Encryption::Required,
            Some(Some("none")) => Encryption::None,
            Some(_) => {
                note(Some("encryption"), "\"encryption\" is \"required\" or \"none\"".to_owned());
                Encryption::Required
            }
        };
        if user.is_some() != has_password {
            let message = "the setting user and the secret password belong together: give both, or none";
            note(Some("user"), message.to_owned());
        }
        if encryption == Encryption::None && (has_password || is_tls) {
            let why = if is_tls { "the URL begins with smtps" } else { "a password is sent over TLS only" };
            note(Some("encryption"), format!("\"encryption\" cannot be \"none\": {why}"));
        }
        match (from, problems.is_empty()) {
            (Some(from), true) => Ok(Self { from, to, user, encryption }),
            _ => Err(problems),
        }
    }
}

/// Reads a mailbox: an address, with or without a name.
fn mailbox(value: &Value) -> Result<Mailbox, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not a text"))?;
    let read: Result<Mailbox, _> = text.parse();
    if read.as_ref().is_ok_and(|mailbox| !mailbox.email.to_string().is_ascii()) {
        return Err(format!(
            "the address in {text:?} is not ASCII, which many mail servers refuse: use its ASCII form"
        ));
    }
    read.map_err(|_| format!("{text:?} is not an address such as ops@example.com or \"Ops <ops@example.com>\""))
}
