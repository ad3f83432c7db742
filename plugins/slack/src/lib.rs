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
    /// Whether any answer with status 2xx means that the message was taken: for services that answer otherwise.
    pub any_answer: bool,
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
        let response = http::Request::post_json("", &body(&settings, notification)).send()?;
        if !matches!(response.status(), 408 | 425 | 429 | 500..) {
            refused(response.status(), &response.text())?;
        }
        let any = settings.any_answer;
        let is_taken = |text: &str, answer: &Value| {
            let says = |key: &str, word: Value| answer[key] == word;
            any || text.eq_ignore_ascii_case("ok")
                || says("ok", true.into())
                || says("success", true.into())
                || says("result", "success".into())
        };
        response.confirmed("Slack, Mattermost or Rocket.Chat", is_taken).map(drop)
    }
}

polliwog_sdk::register_notifier!(Slack);

/// Reasons for a refusal that an operator can correct: the webhook, its channel or its rights.
const OF_OPERATORS: [&str; 20] = [
    "account_inactive",
    "action_prohibited",
    "channel_is_archived",
    "channel_not_found",
    "invalid_auth",
    "invalid_token",
    "is_archived",
    "missing_scope",
    "no_active_hooks",
    "no_permission",
    "no_service",
    "no_service_id",
    "no_team",
    "not_allowed_token_type",
    "not_authed",
    "not_in_channel",
    "posting_to_general_channel_denied",
    "team_disabled",
    "token_revoked",
    "user_not_found",
];

/// Phrases of the reasons of Mattermost and Rocket.Chat for such a refusal, in lower case.
const PHRASES: [&str; 11] = [
    "couldn't find the",
    "could not find the",
    "invalid webhook",
    "invalid-channel",
    "invalid integration",
    "archived",
    "deleted channel",
    "not permitted",
    "permission",
    "restricted",
    "unauthorized",
];

/// Fails if an answer, whatever its status is, says that the message was not taken: a word alone or `{"ok": false,
/// "error": …}` of Slack, `{"success": false, …}` of Rocket.Chat.
fn refused(status: u16, answer: &str) -> Result<(), CallError> {
    let json = serde_json::from_str::<Value>(answer).unwrap_or_default();
    let reason = [&json["message"], &json["error"]].into_iter().find_map(Value::as_str).unwrap_or(answer.trim());
    let lower = reason.to_lowercase();
    // A successful answer may repeat the message.
    let is_refusal = !(200..300).contains(&status) || json["ok"] == json!(false) || json["success"] == json!(false);
    let is_of_access = json.is_object() && matches!(status, 401..=405 | 410);
    let is_known = is_refusal && (is_of_access || PHRASES.iter().any(|phrase| lower.contains(phrase)));
    let why = match answer.trim() {
        word if OF_OPERATORS.contains(&word) => word,
        _ if is_known => reason,
        _ if json["ok"] != json!(false) && json["success"] != json!(false) => return Ok(()),
        _ => json["error"].as_str().unwrap_or("no reason"),
    };
    let message = format!("the server answered that it did not take the message: {why}");
    Err(match why {
        "ratelimited" | "rate_limited" | "internal_error" | "fatal_error" | "service_unavailable" => {
            CallError::transient("refused", message)
        }
        why if is_known || OF_OPERATORS.contains(&why) => CallError::misconfigured("refused", message),
        _ => CallError::permanent("refused", message),
    })
}

/// The length of the text in bytes. Slack cuts texts above 40,000 characters; people stop reading earlier.
const LONGEST: usize = 3500;

/// Replaces the characters of bold, code and struck-out text by similar ones, and those of italic text unless they are
/// inside of a name. Slack has no escapes for them, and Mattermost's would be visible there.
fn unmarked(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let (mut before, mut rest) = (None, text.chars().peekable());
    while let Some(c) = rest.next() {
        let is_inside = [before, rest.peek().copied()].iter().all(|next| next.is_some_and(char::is_alphanumeric));
        plain.push(match c {
            '*' => '\u{2217}',
            '`' => '\u{2cb}',
            '~' => '\u{223c}',
            '_' if !is_inside => '\u{ff3f}',
            c => c,
        });
        before = Some(c);
    }
    plain
}

/// Escapes a text for Slack's markup. Mattermost and Rocket.Chat also read `@channel` and the like in texts, which come
/// from targets: an invisible character after the `@` keeps them from notifying a group, and one in `[text](address)`
/// from showing another address than it leads to.
fn escaped(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace("](", "]\u{200b}(");
    let plain = unmarked(&escaped);
    let mut parts = plain.split('@');
    let mut safe = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let lower: String = part.chars().take(LONGEST_GROUP).collect::<String>().to_ascii_lowercase();
        safe.push_str(if GROUPS.iter().any(|group| lower.starts_with(group)) { "@\u{200b}" } else { "@" });
        safe.push_str(part);
    }
    safe
}

/// The words by which a message notifies a group.
const GROUPS: [&str; 4] = ["channel", "all", "here", "everyone"];
const LONGEST_GROUP: usize = 8;

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
    let attachment = json!({ "color": color, "fallback": title, "text": escaped(&message.text(LONGEST)) });
    json!({ "text": format!("{mention}{linked}"), "attachments": [attachment] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let settings = Settings { mention: "<!here>".to_owned(), any_answer: false };
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
        assert_eq!(escaped("[bank](http://a)"), "[bank]\u{200b}(http://a)");
        assert_eq!(escaped("@here, @all"), "@\u{200b}here, @\u{200b}all");
        assert_eq!(escaped("*a* `b` ~c~ d_e _f_ __g"), "∗a∗ ˋbˋ ∼c∼ d_e ＿f＿ ＿＿g");
    }

    #[test]
    fn an_error_in_a_good_answer_is_a_failure() {
        assert!(refused(200, "ok").is_ok() && refused(200, r#"{"ok":true}"#).is_ok() && refused(200, "").is_ok());
        let error = refused(200, r#"{"ok":false,"error":"channel_not_found"}"#).unwrap_err();
        assert!(matches!(&error, CallError::Misconfigured(failure) if failure.message.contains("channel_not_found")));
        assert!(matches!(refused(200, "channel_is_archived\n"), Err(CallError::Misconfigured(_))));
        assert!(refused(200, "invalid_payload").is_ok(), "its status says it");
        assert!(matches!(refused(200, r#"{"ok":false,"error":"ratelimited"}"#), Err(CallError::Transient(_))));
        assert!(matches!(refused(200, r#"{"success":false}"#), Err(CallError::Permanent(_))));
    }
}
