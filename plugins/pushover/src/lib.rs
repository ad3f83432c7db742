//! Kind `pushover`: pushes messages to phones with Pushover, <https://pushover.net/api>.
//!
//! The channel's URL is `https://api.pushover.net`.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `pushover`.
pub struct Pushover;

/// The settings of a channel of kind `pushover`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The priority of critical alerts, -2 to 2. With 2, the message is repeated every minute for an hour, until it is
    /// confirmed on a phone.
    #[schemars(range(min = -2, max = 2))]
    pub critical_priority: i8,
    /// The names of devices, separated by commas; without them, all devices of the user.
    pub devices: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { critical_priority: 1, devices: None }
    }
}

impl Notifier for Pushover {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "pushover",
        title: "Pushover",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Push notifications on phones with Pushover",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![
            SecretSpec::required("token", "the token of an application at pushover.net"),
            SecretSpec::required("user", "the key of a user or a group"),
        ]
    }

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let body = body(&settings, notification);
        let path = channel.under("1/messages.json");
        taken(http::Request::post_json(path, &body).send()?)
    }
}

polliwog_sdk::register_notifier!(Pushover);

/// Fails if the message was not taken: `status` is 1 if it was. A wrong token or user can be corrected.
fn taken(response: http::Response) -> Result<(), CallError> {
    let answer: Value = serde_json::from_str(&response.text()).unwrap_or_default();
    let places = [("token", "the secret token"), ("user", "the secret user"), ("device", "the setting devices")];
    let of_key = |key: &str| {
        answer["errors"].as_array().is_some_and(|errors| {
            let begins = [key.to_owned(), format!("application {key}"), format!("{key} name")];
            errors.iter().filter_map(Value::as_str).any(|error| begins.iter().any(|begin| error.starts_with(begin)))
        })
    };
    let is_wrong = |key: &str| answer["status"] != 1 && (answer[key].is_string() || of_key(key));
    let wrong = places.into_iter().find(|(key, _)| is_wrong(key));
    if let Some((key, place)) = wrong {
        let said = response.first_words().map_or_else(String::new, |words| format!(" ({words})"));
        let message = format!("Pushover refuses the {key}{said}: check {place} of the channel");
        return Err(CallError::misconfigured("wrong_key", message));
    }
    response.confirmed("Pushover", |_, answer| answer["status"] == 1).map(drop)
}

/// The longest message and title of the API, in bytes to be safe; it counts characters.
const LONGEST: usize = 1024;
const TITLE: usize = 250;
/// The highest priority, which is repeated until it is confirmed: every so many seconds, for so many seconds.
const RETRY: u32 = 60;
const EXPIRE: u32 = 3600;

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let priority = match message.status {
        Status::Critical => settings.critical_priority,
        Status::Warning | Status::Unknown | Status::Ok => 0,
    };
    let mut body = json!({
        "token": http::secret("token"),
        "user": http::secret("user"),
        "title": message.title.chars().take(TITLE).collect::<String>(),
        "message": message.text(LONGEST),
        "priority": priority,
    });
    if priority == 2 {
        body["retry"] = RETRY.into();
        body["expire"] = EXPIRE.into();
    }
    if let Some(devices) = &settings.devices {
        body["device"] = devices.as_str().into();
    }
    if let Some(link) = message.link {
        body["url"] = link.into();
        body["url_title"] = "Details".into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { critical_priority: 2, devices: Some("phone".to_owned()) };
        let expected = json!({
            "token": "${secret.token}",
            "user": "${secret.user}",
            "title": "Critical: Database (Shop)",
            "message": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
            "priority": 2,
            "retry": 60,
            "expire": 3600,
            "device": "phone",
            "url": "http://polliwog.lan/targets/shop",
            "url_title": "Details",
        });
        assert_eq!(body(&settings, &notification(&[Event::Firing])), expected);
        let over = body(&settings, &notification(&[Event::Resolved]));
        assert_eq!((&over["priority"], &over["retry"]), (&json!(0), &Value::Null));
    }
}
