//! Kind `discord`: posts to a webhook of Discord, <https://docs.discord.com/developers/resources/webhook#execute-webhook>.
//!
//! The token is a part of the URL: `url = "https://discord.com/api/webhooks/${secret.path}"`.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `discord`.
pub struct Discord;

/// The settings of a channel of kind `discord`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Text before each critical message, for example `<@&123456789>` for a role.
    pub mention: String,
}

impl Notifier for Discord {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "discord",
        title: "Discord",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Messages in a channel of Discord by a webhook",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("path", "the webhook's id and token, the end of its URL: 123456/AbCd…")]
    }

    fn send(_: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let response = http::Request::post_json("", &body(&settings, notification)).send()?;
        let code = serde_json::from_str::<Value>(&response.text()).unwrap_or_default()["code"].as_i64();
        let is_of_url = response.is_refused_with(&["webhook_id"]);
        let is_silent = response.status() == 204;
        let result = response.confirmed("Discord", |_, answer| is_silent || answer["id"].is_string()).map(drop);
        let is_of_operators = is_of_url || code.is_some_and(|code| OF_OPERATORS.contains(&code));
        if is_of_operators { result.map_err(CallError::into_misconfigured) } else { result }
    }
}

polliwog_sdk::register_notifier!(Discord);

/// Codes of a refusal that an operator can correct: the channel or the webhook is unknown or not permitted, or the
/// channel is a forum, which needs a thread.
const OF_OPERATORS: [i64; 15] = [
    10_000, 10_003, 10_015, 40_333, 50_001, 50_008, 50_013, 50_024, 50_083, 160_005, 220_001, 220_002, 220_003,
    220_004, 220_005,
];

/// The longest title, in characters.
const TITLE: usize = 256;
/// The length of a description in bytes; Discord permits 4096 characters.
const LONGEST: usize = 3500;

/// Puts a backslash before the characters of Discord's markup.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut text, c| {
        if matches!(c, '\\' | '*' | '_' | '~' | '`' | '|' | '>' | '<' | '#' | '@' | '[' | ']') {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let color = match message.status {
        Status::Critical => 0x00c6_2828,
        Status::Warning | Status::Unknown => 0x00ef_8f00,
        Status::Ok => 0x002e_7d32,
    };
    let title: String = message.title.chars().take(TITLE).collect();
    let mut embed = json!({ "title": title, "description": escaped(&message.text(LONGEST)), "color": color });
    if let Some(link) = message.link {
        embed["url"] = link.into();
    }
    let mut body = json!({ "embeds": [embed], "allowed_mentions": { "parse": [] } });
    if message.status == Status::Critical && !settings.mention.is_empty() {
        body["content"] = settings.mention.as_str().into();
        body["allowed_mentions"] = json!({ "parse": ["roles", "users", "everyone"] });
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { mention: "<@&1>".to_owned() };
        let sent = body(&settings, &notification(&[Event::Firing]));
        let expected = json!({
            "embeds": [{
                "title": "Critical: Database (Shop)",
                "description": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
                "color": 0x00c6_2828,
                "url": "http://polliwog.lan/targets/shop",
            }],
            "allowed_mentions": { "parse": ["roles", "users", "everyone"] },
            "content": "<@&1>",
        });
        assert_eq!(sent, expected);
        let over = body(&settings, &notification(&[Event::Resolved]));
        assert_eq!((&over["content"], &over["allowed_mentions"]), (&Value::Null, &json!({ "parse": [] })));
        assert_eq!(escaped("a_b @everyone"), "a\\_b \\@everyone");
    }
}
