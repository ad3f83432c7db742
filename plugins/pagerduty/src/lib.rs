//! Kind `pagerduty`: triggers and resolves incidents of PagerDuty with its Events API v2,
//! <https://developer.pagerduty.com/docs/events-api-v2/trigger-events/>.
//!
//! The channel's URL is `https://events.pagerduty.com`.

#![deny(unsafe_code)]

use jiff::Timestamp;
use polliwog_sdk::notifier_prelude::*;
use std::time::Duration;

/// The plugin for kind `pagerduty`.
pub struct PagerDuty;

/// The settings of a channel of kind `pagerduty`: none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Notifier for PagerDuty {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "pagerduty",
        title: "PagerDuty",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Incidents of PagerDuty, which it opens and resolves",
        needs_every_alert: true,
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("routing_key", "the integration key of a service (Events API v2)")]
    }

    fn send(channel: &Endpoint, _: Settings, notification: &Notification) -> Result<(), CallError> {
        let path = channel.under("v2/enqueue");
        let mut longest = Duration::ZERO;
        for alert in &notification.alerts {
            let left = clock::remaining();
            // An event that is cut off may be taken all the same, and is sent again.
            if left < longest * 2 {
                let message = "it answers slowly, and the time of one attempt is over: the others follow";
                return Err(CallError::transient("slow", message));
            }
            match send(&path, alert) {
                Ok(()) => progress::sent(alert),
                Err(CallError::Permanent(reason)) => progress::refused(alert, reason),
                Err(error) => return Err(error),
            }
            longest = longest.max(left.saturating_sub(clock::remaining()));
        }
        Ok(())
    }
}

fn send(path: &str, alert: &Alert) -> Result<(), CallError> {
    // A repetition of one that was taken already has no effect: its key is the same.
    taken(http::Request::post_json(path, &body(alert)).send()?)?;
    if alert.event() == Event::Test {
        // The incident of a test does not stay open.
        let over = Alert { event: Event::Resolved.as_str().to_owned(), ..alert.clone() };
        taken(http::Request::post_json(path, &body(&over)).send()?)?;
    }
    Ok(())
}

/// Phrases of a refusal because of the key, or of what it belongs to.
const OF_KEYS: [&str; 5] = ["routing key", "routing_key", "routing-key", "integration key", "service is disabled"];

/// Fails if an event was not taken. A wrong routing key can be corrected; other events that are refused cannot.
fn taken(response: http::Response) -> Result<(), CallError> {
    if response.status() == 400 && response.is_refused_with(&OF_KEYS) {
        let said = response.first_words().map_or_else(String::new, |words| format!(" ({words})"));
        let message = format!("PagerDuty refuses the routing key{said}: check the secret routing_key of the channel");
        return Err(CallError::misconfigured("wrong_key", message));
    }
    // The status 202 alone says it; only what answers instead of PagerDuty would send a page or a refusal with it.
    let is_accepted = response.status() == 202 && !response.is_page();
    let is_bad = |status: &str| ["invalid", "error", "fail", "throttle"].iter().any(|word| status.contains(word));
    let is_refusal = |answer: &Value| {
        answer["status"].as_str().is_some_and(is_bad) || answer.get("error").is_some() || !answer.is_object()
    };
    let is_taken = |text: &str, answer: &Value| {
        answer["status"] == "success" || is_accepted && (text.is_empty() || !is_refusal(answer))
    };
    response.confirmed("PagerDuty", is_taken).map(drop)
}

polliwog_sdk::register_notifier!(PagerDuty);

/// The longest summary, in characters.
const SUMMARY: usize = 1024;

fn body(alert: &Alert) -> Value {
    if alert.event() == Event::Resolved {
        return json!({
            "routing_key": http::secret("routing_key"),
            "event_action": "resolve",
            "dedup_key": alert.fingerprint,
        });
    }
    let severity = match alert.status {
        Status::Critical => "critical",
        Status::Warning => "warning",
        Status::Ok | Status::Unknown => "info",
    };
    let since = Timestamp::from_millisecond(alert.since).ok();
    let labels: Value =
        alert.labels.iter().map(|label| (label.name.clone(), Value::from(label.value.as_str()))).collect();
    let summary = format!("{}: {}", alert.subject(), alert.summary);
    // An alert about Polliwog itself has no target, and an event needs a source.
    let source = if alert.target_name.trim().is_empty() { "Polliwog" } else { &alert.target_name };
    let link = |href: &Option<String>, text: &str| href.as_ref().map(|href| json!({ "href": href, "text": text }));
    let links = [link(&alert.link, "Polliwog"), link(&alert.object_link, "source")].into_iter().flatten();
    json!({
        "routing_key": http::secret("routing_key"),
        "event_action": "trigger",
        "dedup_key": alert.fingerprint,
        "client": "Polliwog",
        "client_url": alert.link,
        "links": links.collect::<Value>(),
        "payload": {
            "summary": summary.chars().take(SUMMARY).collect::<String>(),
            "source": source,
            "severity": severity,
            "timestamp": since.unwrap_or_default().to_string(),
            "component": alert.dependency,
            "class": alert.class,
            "custom_details": { "labels": labels, "explains": alert.suppresses },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let all = notification(&[Event::Firing, Event::Resolved]).alerts;
        let expected = json!({
            "routing_key": "${secret.routing_key}",
            "event_action": "trigger",
            "dedup_key": "5f2a",
            "client": "Polliwog",
            "client_url": "http://polliwog.lan/targets/shop",
            "links": [{ "href": "http://polliwog.lan/targets/shop", "text": "Polliwog" }],
            "payload": {
                "summary": "Database (Shop): connection refused",
                "source": "Shop",
                "severity": "critical",
                "timestamp": "2026-07-20T20:05:00Z",
                "component": "db",
                "class": "dependency",
                "custom_details": { "labels": { "site": "zurich" }, "explains": 2 },
            },
        });
        assert_eq!(body(&all[0]), expected);
        let resolve = json!({ "routing_key": "${secret.routing_key}", "event_action": "resolve", "dedup_key": "5f2a" });
        assert_eq!(body(&all[1]), resolve);
        let own =
            Alert { target_name: String::new(), title: "channel ops".to_owned(), dependency: None, ..all[0].clone() };
        assert_eq!(body(&own)["payload"]["source"], "Polliwog");
        assert_eq!(body(&own)["payload"]["summary"], "channel ops: connection refused");
    }
}
