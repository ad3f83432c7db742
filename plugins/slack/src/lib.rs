//! Kind `slack`: posts to an incoming webhook of Slack, <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>.
//! Mattermost and Rocket.Chat take the same requests.
//!
//! The token is a part of the URL: `url = "https://hooks.slack.com/services/${secret.path}"`.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `slack`.
pub struct Slack;

/// The settings of a channel of kind `slack`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Text before each critical message, for example `<!channel>`.
    pub mention: String,
}

impl Notifier for Slack {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "slack",
        title: "Slack",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Messages in a channel of Slack, Mattermost or Rocket.Chat by an incoming webhook",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::optional("path", "the part of the webhook's URL that must stay secret")]
    }

    fn send(_: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let response = http::Request::post_json("", &body(&settings, notification)).send()?.accepted()?;
        refused(&response.text())
    }
}

polliwog_sdk::register_notifier!(Slack);

/// Fails if an answer with a good status says that the message was not taken: `{"ok": false, "error": …}` of Slack,
/// `{"success": false, …}` of Rocket.Chat.
fn refused(answer: &str) -> Result<(), CallError> {
    let Ok(answer) = serde_json::from_str::<Value>(answer) else { return Ok(()) };
    if answer["ok"] != json!(false) && answer["success"] != json!(false) {
        return Ok(());
    }
    let why = answer["error"].as_str().unwrap_or("no reason");
    let message = format!("the server answered that it did not take the message: {why}");
    Err(match why {
        "ratelimited" | "rate_limited" | "internal_error" | "fatal_error" | "service_unavailable" => {
            CallError::transient("refused", message)
        }
        _ => CallError::permanent("refused", message),
    })
}

/// The length of the text in bytes. Slack cuts texts above 40,000 characters; people stop reading earlier.
const LONGEST: usize = 3500;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let color = match message.status {
        Status::Critical => "#c62828",
        Status::Warning | Status::Unknown => "#ef8f00",
        Status::Ok => "#2e7d32",
    };
    let title = escaped(&message.title);
    let linked = match &message.link {
        Some(link) => format!("*<{link}|{title}>*"),
        None => format!("*{title}*"),
    };
    let mention = match message.status {
        Status::Critical if !settings.mention.is_empty() => format!("{} ", settings.mention),
        _ => String::new(),
    };
    let attachment = json!({ "color": color, "fallback": message.title, "text": escaped(&message.text(LONGEST)) });
    json!({ "text": format!("{mention}{linked}"), "attachments": [attachment] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { mention: "<!here>".to_owned() };
        let sent = body(&settings, &notification(&[Event::Firing]));
        let expected = json!({
            "text": "<!here> *<http://polliwog.lan/targets/shop|Critical: Database (Shop)>*",
            "attachments": [{
                "color": "#c62828",
                "fallback": "Critical: Database (Shop)",
                "text": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
            }],
        });
        assert_eq!(sent, expected);
        let several = body(&settings, &notification(&[Event::Resolved, Event::Resolved]));
        assert_eq!(several["text"], "*<http://polliwog.lan/alerts|Shop: 2 resolved>*");
        assert_eq!(escaped("<a> & b"), "&lt;a&gt; &amp; b");
    }

    #[test]
    fn an_error_in_a_good_answer_is_a_failure() {
        assert!(refused("ok").is_ok() && refused(r#"{"ok":true}"#).is_ok() && refused("").is_ok());
        let error = refused(r#"{"ok":false,"error":"channel_not_found"}"#).unwrap_err();
        assert!(matches!(&error, CallError::Permanent(failure) if failure.message.contains("channel_not_found")));
        assert!(matches!(refused(r#"{"ok":false,"error":"ratelimited"}"#), Err(CallError::Transient(_))));
        assert!(matches!(refused(r#"{"success":false}"#), Err(CallError::Permanent(_))));
    }
}
