//! Kind `telegram`: sends messages with a bot of Telegram, <https://core.telegram.org/bots/api#sendmessage>.
//!
//! The channel's URL is `https://api.telegram.org`, and the secret `token` that of the bot.

#![deny(unsafe_code)]

use polliwog_sdk::Failure;
use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `telegram`.
pub struct Telegram;

/// The settings of a channel of kind `telegram`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The chat: a number, or `@name` of a public channel.
    pub chat: String,
    /// The topic of a group that has topics.
    pub topic: Option<i64>,
    /// Whether messages about recoveries arrive without a sound.
    #[serde(default)]
    pub quiet_recovery: bool,
}

impl Notifier for Telegram {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "telegram",
        title: "Telegram",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Messages of a bot in a chat of Telegram",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        let hint = "a token of a bot looks like 123456:ABC-DEF; BotFather shows it";
        let token = SecretSpec::required("token", "the token of the bot, as BotFather shows it");
        vec![token.with_pattern("[0-9]+:[A-Za-z0-9_-]+", hint)]
    }

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let body = body(&settings, notification);
        let path = channel.under(&format!("bot{}/sendMessage", http::secret("token")));
        let response = http::Request::post_json(path, &body).send()?;
        answered(response.status(), &response.text())?;
        response.confirmed("Telegram", |_, answer| answer["ok"] == true).map(drop)
    }
}

polliwog_sdk::register_notifier!(Telegram);

/// The answer of the API, the same for every status.
#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    description: String,
    #[serde(default)]
    error_code: u16,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    retry_after: Option<u32>,
    migrate_to_chat_id: Option<i64>,
}

/// Descriptions of a refusal with status 400 that an operator can correct: the chat, its topic or the rights of the
/// bot.
const OF_OPERATORS: [&str; 28] = [
    "admin_required",
    "channel_private",
    "chat is not a forum",
    "chat was deleted",
    "chat was deactivated",
    "chat_id_invalid",
    "forbidden",
    "no write access",
    "topic must be specified",
    "user is deactivated",
    "user_banned",
    "chat not found",
    "chat_id is empty",
    "upgraded to a supergroup",
    "bot was kicked",
    "bot is not a member",
    "not enough rights",
    "have no rights",
    "administrator rights",
    "user not found",
    "thread not found",
    "group is deactivated",
    "peer_id_invalid",
    "topic_closed",
    "topic_deleted",
    "topic_id_invalid",
    "chat_restricted",
    "chat_write_forbidden",
];

/// Fails if the API says that it did not take the message.
fn answered(status: u16, text: &str) -> Result<(), CallError> {
    let Ok(mut answer) = serde_json::from_str::<Answer>(text) else { return Ok(()) };
    if answer.ok {
        return Ok(());
    }
    if answer.error_code == 0 {
        answer.error_code = status;
    }
    let moved = answer.parameters.migrate_to_chat_id.map(|chat| format!(": set chat to {chat}")).unwrap_or_default();
    let message = format!("Telegram did not take the message: {} ({}){moved}", answer.description, answer.error_code);
    let code = match answer.error_code {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        _ => "refused",
    };
    let retry_after_ms = answer.parameters.retry_after.map(|seconds| seconds.saturating_mul(1000));
    let failure = Failure { retry_after_ms, ..Failure::new(code, message) };
    let description = answer.description.to_lowercase();
    let is_known = OF_OPERATORS.iter().any(|known| description.contains(known));
    Err(match answer.error_code {
        429 | 500.. => CallError::Transient(failure),
        200..=299 | 401 | 403..=405 | 409 => CallError::Misconfigured(failure),
        _ if is_known || !moved.is_empty() => CallError::Misconfigured(failure),
        _ => CallError::Permanent(failure),
    })
}

/// The length of the text in bytes. Telegram permits 4096 characters after its markup is read.
const LONGEST: usize = 3500;

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let mut text = format!("<b>{}</b>\n{}", escape_html(&message.title), escape_html(&message.text(LONGEST)));
    if let Some(link) = &message.link {
        text.push_str(&format!("\n<a href=\"{}\">details</a>", escape_html(link)));
    }
    let mut body = json!({
        "chat_id": settings.chat,
        "text": text,
        "parse_mode": "HTML",
        "link_preview_options": { "is_disabled": true },
        "disable_notification": settings.quiet_recovery && message.status == Status::Ok,
    });
    if let Some(topic) = settings.topic {
        body["message_thread_id"] = topic.into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { chat: "-100".to_owned(), topic: Some(3), quiet_recovery: true };
        let sent = body(&settings, &notification(&[Event::Firing]));
        let text = "<b>Critical: Database (Shop)</b>\nconnection refused\nfor 12 min\n2 more alerts are explained by this \
                    one\nsite=zurich\n<a href=\"http://polliwog.lan/targets/shop\">details</a>";
        let expected = json!({
            "chat_id": "-100",
            "text": text,
            "parse_mode": "HTML",
            "link_preview_options": { "is_disabled": true },
            "disable_notification": false,
            "message_thread_id": 3,
        });
        assert_eq!(sent, expected);
        let over = body(&settings, &notification(&[Event::Resolved]));
        assert_eq!(over["disable_notification"], true);
    }

    #[test]
    fn an_error_in_an_answer_is_a_failure_with_the_delay_that_it_requests() {
        assert!(answered(200, r#"{"ok":true,"result":{}}"#).is_ok() && answered(200, "<html>").is_ok());
        let late = r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":7}}"#;
        let error = answered(429, late).unwrap_err();
        assert!(matches!(&error, CallError::Transient(failure) if failure.retry_after_ms == Some(7000)), "{error:?}");
        let gone = r#"{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}"#;
        assert!(
            matches!(answered(403, gone), Err(CallError::Misconfigured(failure)) if failure.message.contains("blocked"))
        );
        let refused = |description: &str, more: &str| {
            answered(
                400,
                &format!(r#"{{"ok":false,"error_code":400,"description":"Bad Request: {description}"{more}}}"#),
            )
            .unwrap_err()
        };
        let moved =
            refused("group chat was upgraded to a supergroup chat", r#","parameters":{"migrate_to_chat_id":-1007}"#);
        assert!(
            matches!(&moved, CallError::Misconfigured(failure) if failure.message.ends_with("set chat to -1007")),
            "{moved:?}"
        );
        assert!(matches!(refused("chat not found", ""), CallError::Misconfigured(_)));
        assert!(matches!(refused("can't parse entities", ""), CallError::Permanent(_)));
    }
}
