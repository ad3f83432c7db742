//! Kind `ntfy`: pushes notifications to phones with ntfy, <https://docs.ntfy.sh/publish/#publish-as-json>.
//!
//! The channel's URL is that of the server, without the topic. A secret `token` becomes the access token; on a public
//! server the topic is a secret as well: `topic = "${secret.topic}"`.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `ntfy`.
pub struct Ntfy;

/// The settings of a channel of kind `ntfy`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The topic. `${secret.NAME}` is replaced by a secret of the channel.
    pub topic: String,
    /// The priority of critical alerts, 1 to 5. The default is 5, which breaks through "do not disturb" on most phones.
    #[schemars(range(min = 1, max = 5))]
    #[serde(default = "highest")]
    pub critical_priority: u8,
}

const fn highest() -> u8 {
    5
}

impl Notifier for Ntfy {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "ntfy",
        title: "ntfy",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Push notifications on phones and desktops with ntfy",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::optional("token", "an access token of the server, if the topic needs one")]
    }

    fn send(_: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let request = http::Request::post_json("", &body(&settings, notification));
        let request = match http::has_secret("token") {
            true => request.header("authorization", format!("Bearer {}", http::secret("token"))),
            false => request,
        };
        // An event of another sort has an id as well.
        let is_message = |answer: &Value| answer["event"].as_str().is_none_or(|event| event == "message");
        let has_id = |answer: &Value| answer["id"].as_str().is_some_and(|id| !id.is_empty());
        let response = request.send()?;
        let is_of_operators = response.is_refused_with(&["topic invalid", "topic name", "40009", "40010"]);
        let result = response.confirmed("ntfy", |_, answer| has_id(answer) && is_message(answer)).map(drop);
        if is_of_operators { result.map_err(CallError::into_misconfigured) } else { result }
    }
}

polliwog_sdk::register_notifier!(Ntfy);

/// The length of a message in bytes, above which the server makes a file of it.
const LONGEST: usize = 4000;

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let (priority, tag) = match message.status {
        Status::Critical => (settings.critical_priority, "rotating_light"),
        Status::Warning | Status::Unknown => (3, "warning"),
        Status::Ok => (3, "white_check_mark"),
    };
    let mut body = json!({
        "topic": settings.topic,
        "title": message.title,
        "message": message.text(LONGEST),
        "priority": priority,
        "tags": [tag],
    });
    if let Some(link) = message.link {
        body["click"] = link.into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { topic: "alerts".to_owned(), critical_priority: 4 };
        let sent = body(&settings, &notification(&[Event::Firing]));
        let expected = json!({
            "topic": "alerts",
            "title": "Critical: Database (Shop)",
            "message": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
            "priority": 4,
            "tags": ["rotating_light"],
            "click": "http://polliwog.lan/targets/shop",
        });
        assert_eq!(sent, expected);
        let over = body(&settings, &notification(&[Event::Resolved]));
        assert_eq!((&over["priority"], &over["tags"]), (&json!(3), &json!(["white_check_mark"])));
    }
}
