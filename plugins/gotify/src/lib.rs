//! Kind `gotify`: pushes messages with a server of Gotify, <https://gotify.net/docs/pushmsg>.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `gotify`.
pub struct Gotify;

/// The settings of a channel of kind `gotify`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The priority of critical alerts, 0 to 10.
    #[schemars(range(min = 0, max = 10))]
    pub critical_priority: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self { critical_priority: 8 }
    }
}

impl Notifier for Gotify {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "gotify",
        title: "Gotify",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Push notifications with a server of Gotify",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("token", "the token of an application of the server")]
    }

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let path = channel.under("message");
        let request = http::Request::post_json(path, &body(&settings, notification));
        let response = request.header("x-gotify-key", http::secret("token")).send()?;
        let is_of_token = response.is_refused_with(&["\"errorcode\":401", "\"errorcode\": 401", "token"]);
        let result = response.confirmed("Gotify", |_, answer| answer["id"].is_number()).map(drop);
        if is_of_token { result.map_err(CallError::into_misconfigured) } else { result }
    }
}

polliwog_sdk::register_notifier!(Gotify);

/// The length of a message in bytes.
const LONGEST: usize = 4000;

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let priority = match message.status {
        Status::Critical => settings.critical_priority,
        Status::Warning | Status::Unknown => 5,
        Status::Ok => 3,
    };
    let mut body = json!({ "title": message.title, "message": message.text(LONGEST), "priority": priority });
    if let Some(link) = message.link {
        body["extras"] = json!({ "client::notification": { "click": { "url": link } } });
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let sent = body(&Settings::default(), &notification(&[Event::Firing]));
        let expected = json!({
            "title": "Critical: Database (Shop)",
            "message": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
            "priority": 8,
            "extras": { "client::notification": { "click": { "url": "http://polliwog.lan/targets/shop" } } },
        });
        assert_eq!(sent, expected);
    }
}
