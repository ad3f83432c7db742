//! Kind `teams`: posts an adaptive card to a workflow of Microsoft Teams ("Post to a channel when a webhook request is
//! received"),
//! <https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook>.
//!
//! The signature in the URL is a secret: `url = "https://…/invoke?api-version=1&sig=${secret.sig}"`.

#![deny(unsafe_code)]

use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `teams`.
pub struct Teams;

/// The settings of a channel of kind `teams`: none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Notifier for Teams {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "teams",
        title: "Microsoft Teams",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Cards in a channel of Microsoft Teams by a workflow",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::optional("sig", "the value of sig in the URL of the workflow")]
    }

    fn send(_: &Endpoint, _: Settings, notification: &Notification) -> Result<(), CallError> {
        taken(http::Request::post_json("", &body(notification)).send()?)
    }
}

polliwog_sdk::register_notifier!(Teams);

/// Codes of a refusal with status 400 that an operator can correct: the workflow is off or gone, or its URL is wrong.
const OF_OPERATORS: [&str; 13] = [
    "apiversionparameter",
    "connector configuration not found",
    "environmentdisabled",
    "flowsuspended",
    "invalid webhook",
    "invalidauthenticationtoken",
    "workflowdisabled",
    "triggerisnotenabled",
    "triggernotenabled",
    "workflownotfound",
    "directapiauthorization",
    "invalidsignature",
    "sharedaccess",
];

/// Fails if the card was not taken. A workflow answers 202, a connector 200 and "1". Both may answer 200 with a
/// sentence about a failure instead, which contains the status of the service behind it.
fn taken(response: http::Response) -> Result<(), CallError> {
    let text = response.text().to_lowercase();
    if let Some(failure) = behind(&text) {
        return Err(failure);
    }
    let is_of_operator = response.is_refused_with(&OF_OPERATORS);
    let is_card = response.status() == 202 && !response.is_page() && !text.contains("\"error\"");
    let result = response.confirmed("Microsoft Teams", |text, _| is_card || text == "1").map(drop);
    if is_of_operator { result.map_err(CallError::into_misconfigured) } else { result }
}

/// Returns the failure that an answer describes in a sentence ("… delivery failed with error: … HTTP error 429 …").
fn behind(text: &str) -> Option<CallError> {
    let is_failure = text.contains("delivery failed") || text.contains("endpoint returned");
    let (_, rest) = text.split_once("http error ").filter(|_| is_failure)?;
    let status = rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse::<u16>().ok());
    let message = format!("Microsoft Teams did not take the card: HTTP error {}", status.unwrap_or_default());
    Some(match status {
        Some(401 | 403 | 404 | 410) => CallError::misconfigured("refused", message),
        Some(400 | 413) => CallError::permanent("refused", message),
        _ => CallError::transient("refused", message),
    })
}

/// The length of a card's text in bytes; a message has at most 28 KB.
const LONGEST: usize = 8000;

/// Puts a backslash before the characters of the markup of a text block.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut text, c| {
        if matches!(c, '\\' | '*' | '_' | '[' | ']' | '`' | '#') {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

fn body(notification: &Notification) -> Value {
    let message = Message::of(notification);
    let color = match message.status {
        Status::Critical => "Attention",
        Status::Warning | Status::Unknown => "Warning",
        Status::Ok => "Good",
    };
    // A single line break is a space in the markup.
    let text = escaped(&message.text(LONGEST)).replace('\n', "\n\n");
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {
                "type": "TextBlock",
                "text": escaped(&message.title),
                "weight": "Bolder",
                "size": "Medium",
                "color": color,
                "wrap": true,
            },
            { "type": "TextBlock", "text": text, "wrap": true },
        ],
    });
    if let Some(link) = message.link {
        card["actions"] = json!([{ "type": "Action.OpenUrl", "title": "Details", "url": link }]);
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let sent = body(&notification(&[Event::Firing]));
        let card = &sent["attachments"][0]["content"];
        assert_eq!(sent["type"], "message");
        assert_eq!(sent["attachments"][0]["contentType"], "application/vnd.microsoft.card.adaptive");
        assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
        assert_eq!(card["body"][0]["text"], "Critical: Database (Shop)");
        assert_eq!(card["body"][0]["color"], "Attention");
        let text = "connection refused\n\nfor 12 min\n\n2 more alerts are explained by this one\n\nsite=zurich";
        assert_eq!(card["body"][1]["text"], text);
        let action =
            json!([{ "type": "Action.OpenUrl", "title": "Details", "url": "http://polliwog.lan/targets/shop" }]);
        assert_eq!(card["actions"], action);
    }
}
