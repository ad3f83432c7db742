//! Kind `matrix`: sends messages to a room of Matrix,
//! <https://spec.matrix.org/v1.15/client-server-api/#put_matrixclientv3roomsroomidsendeventtypetxnid>.
//!
//! The channel's URL is that of the home server. The room is not encrypted end to end.

#![deny(unsafe_code)]

use polliwog_sdk::Failure;
use polliwog_sdk::notifier_prelude::*;
use std::fmt::Write;

/// The plugin for kind `matrix`.
pub struct Matrix;

/// The settings of a channel of kind `matrix`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The id of the room: `!abc:example.org`. Clients show it in the settings of the room.
    #[schemars(regex(pattern = "^!"))]
    pub room: String,
    /// Whether critical messages notify all members of the room (`@room`). The account needs the right to do that.
    #[serde(default)]
    pub mention_room: bool,
}

impl Notifier for Matrix {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "matrix",
        title: "Matrix",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Messages in a room of Matrix",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("token", "the access token of an account that is in the room")]
    }

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let body = body(&settings, notification).to_string();
        // The server recognises a repetition by the last part.
        let (room, id) = (segment(&settings.room), segment(&notification.id));
        let path = channel.under(&format!("_matrix/client/v3/rooms/{room}/send/m.room.message/{id}"));
        let request = http::Request::new("PUT", path);
        let request = request.header("content-type", "application/json").body(body, http::BodyEncoding::Json);
        let response = request.header("authorization", format!("Bearer {}", http::secret("token"))).send()?;
        let wait = serde_json::from_str::<Value>(&response.text()).unwrap_or_default()["retry_after_ms"].as_u64();
        let wait = wait.filter(|_| response.status() == 429).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        let is_taken = |answer: &Value| answer["event_id"].as_str().is_some_and(|id| !id.is_empty());
        let later = |failure: Failure| Failure { retry_after_ms: failure.retry_after_ms.max(wait), ..failure };
        let (is_of_operators, is_busy) =
            (response.is_refused_with(&OF_OPERATORS), response.is_refused_with(&["m_limit_exceeded"]));
        let confirmed = response.confirmed("a Matrix server", |_, answer| is_taken(answer));
        confirmed.map(drop).map_err(|error| match error.map(later) {
            error if is_busy => CallError::Transient(error.failure().clone()),
            error if is_of_operators => error.into_misconfigured(),
            error => error,
        })
    }
}

/// Codes and phrases of a refusal that an operator can correct: the room, the account or its token.
const OF_OPERATORS: [&str; 7] = [
    "m_guest_access_forbidden",
    "m_missing_token",
    "m_unrecognized",
    "m_user_locked",
    "not legal room",
    "room id",
    "room is not known",
];

polliwog_sdk::register_notifier!(Matrix);

/// The length of a message in bytes. An event has at most 65,536, and the text is in it twice.
const LONGEST: usize = 8000;

/// A text as one segment of a path.
fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut segment, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => segment.push(byte.into()),
            _ => write!(segment, "%{byte:02X}").expect("writing to a string never fails"),
        }
        segment
    })
}

fn body(settings: &Settings, notification: &Notification) -> Value {
    let message = Message::of(notification);
    let text = message.text(LONGEST);
    let (mut plain, mut html) = (
        format!("{}\n{text}", message.title),
        format!("<strong>{}</strong><br>{}", escape_html(&message.title), escape_html(&text).replace('\n', "<br>")),
    );
    if let Some(link) = &message.link {
        plain.push_str(&format!("\n{link}"));
        html.push_str(&format!("<br><a href=\"{}\">details</a>", escape_html(link)));
    }
    // Without the list of mentions, `@room` in a text of a target would notify all its members (Matrix 1.7).
    let mentions =
        if settings.mention_room && message.status == Status::Critical { json!({ "room": true }) } else { json!({}) };
    json!({
        "msgtype": "m.text",
        "body": plain,
        "format": "org.matrix.custom.html",
        "formatted_body": html,
        "m.mentions": mentions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let facts = "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich";
        let expected = json!({
            "msgtype": "m.text",
            "body": format!("Critical: Database (Shop)\n{facts}\nhttp://polliwog.lan/targets/shop"),
            "format": "org.matrix.custom.html",
            "formatted_body": format!(
                "<strong>Critical: Database (Shop)</strong><br>{}<br><a href=\"http://polliwog.lan/targets/shop\">details</a>",
                facts.replace('\n', "<br>")
            ),
            "m.mentions": {},
        });
        let settings = Settings { room: "!r:example.org".to_owned(), mention_room: false };
        assert_eq!(body(&settings, &notification(&[Event::Firing])), expected);
        let loud = Settings { mention_room: true, ..settings };
        assert_eq!(body(&loud, &notification(&[Event::Firing]))["m.mentions"], json!({ "room": true }));
        assert_eq!(body(&loud, &notification(&[Event::Resolved]))["m.mentions"], json!({}));
        assert_eq!(segment("!a:b.org"), "%21a%3Ab.org");
    }
}
