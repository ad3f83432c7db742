//! The Polliwog plugin for channels of kind `{{kind}}`.
//!
//! It posts each notification as JSON to the channel's URL. Change `body` to what your receiver takes.

use polliwog_sdk::notifier_prelude::*;

/// The plugin.
pub struct Plugin;

/// The settings of a channel. Operators see the doc comments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The room that the messages are for.
    pub room: Option<String>,
}

impl Notifier for Plugin {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "{{kind}}",
        title: "{{title}}",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Notifications for {{title}}",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        // The host inserts the value; this code never sees it.
        vec![SecretSpec::optional("token", "the token of the receiver, if it needs one")]
    }

    fn send(_: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let request = http::Request::post_json("", &body(&settings, notification));
        let request = match http::has_secret("token") {
            true => request.header("authorization", format!("Bearer {}", http::secret("token"))),
            false => request,
        };
        // A status other than 2xx is a failure, which the host tries again or gives up.
        request.send()?.accepted().map(drop)
    }
}

polliwog_sdk::register_notifier!(Plugin);

/// The text's limit in bytes.
const LONGEST: usize = 4000;

fn body(settings: &Settings, notification: &Notification) -> Value {
    // `Message` has the texts of the built-in channels; `notification.alerts` has every fact.
    let message = Message::of(notification);
    json!({
        "room": settings.room,
        "title": message.title,
        "text": message.text(LONGEST),
        "link": message.link,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing;

    #[test]
    fn a_notification_is_posted() {
        let sent = body(&Settings::default(), &testing::notification(&[Event::Firing]));
        assert_eq!(sent["title"], "Critical: Database (Shop)");
        // A receiver that answers with an error.
        let recording = r#"[{"request": {"method": "POST", "url": ""}, "response": {"status": 503}}]"#;
        let recording = testing::Recording::parse(recording);
        let result = testing::send::<Plugin>(recording, testing::channel(), testing::notification(&[Event::Firing]));
        assert!(matches!(result, Err(CallError::Transient(_))), "{result:?}");
    }
}
