//! Kind `alertmanager`: sends alerts to Alertmanager, `POST /api/v2/alerts` of its API,
//! <https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml>.
//!
//! Alertmanager groups, routes and repeats by its own rules. It ends an alert that is not sent again in time, so each
//! alert has an end: `lasts` after it was sent. Choose a `repeat_interval` of the route that is shorter; it also renews
//! the alerts after a restart of Alertmanager, which forgets them.

#![deny(unsafe_code)]

use jiff::Timestamp;
use polliwog_sdk::notifier_prelude::*;

/// The plugin for kind `alertmanager`.
pub struct Alertmanager;

/// The settings of a channel of kind `alertmanager`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The number of hours after which Alertmanager ends an alert that was not sent again.
    #[schemars(range(min = 1, max = 8760))]
    pub lasts_hours: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lasts_hours: 24 }
    }
}

impl Notifier for Alertmanager {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "alertmanager",
        title: "Alertmanager",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Alerts for an Alertmanager of Prometheus, which groups and routes them",
        needs_every_alert: true,
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        let login = "the name and the password, as user:password, if Alertmanager needs them";
        vec![SecretSpec::optional("login", login)]
    }

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let path = channel.under("api/v2/alerts");
        let request = http::Request::post_json(path, &body(&settings, notification));
        let request = match http::has_secret("login") {
            true => request.header("authorization", format!("Basic {}", http::basic("login"))),
            false => request,
        };
        let response = request.send()?;
        let is_ok = response.status() == 200;
        response
            .confirmed("Alertmanager", |text, answer| is_ok && text.is_empty() || answer["status"] == "success")
            .map(drop)
    }
}

polliwog_sdk::register_notifier!(Alertmanager);

/// A time in the form of RFC 3339.
fn time(millis: i64) -> String {
    Timestamp::from_millisecond(millis).unwrap_or_default().to_string()
}

fn body(settings: &Settings, notification: &Notification) -> Value {
    // The alert of a test ends after a minute.
    let soon = clock::now() + 60_000;
    let later = clock::now() + i64::from(settings.lasts_hours) * 3_600_000;
    let alert = |alert: &Alert| {
        let own = alert.labels.iter().map(|label| (label.name.as_str(), label.value.as_str()));
        let status = if alert.status == Status::Ok { None } else { Some(alert.status.as_str()) };
        let mut labels: serde_json::Map<String, Value> =
            own.map(|(name, value)| (name.to_owned(), value.into())).collect();
        // The identity of an alert is its labels, so these must be the same for each message about it.
        for (name, value) in [
            ("alertname", alert.class.as_str()),
            ("target", alert.target_id.as_deref().unwrap_or_default()),
            ("target_kind", &alert.kind),
            ("dependency", alert.dependency.as_deref().unwrap_or_default()),
            ("polliwog", &alert.fingerprint),
        ] {
            if !value.is_empty() {
                labels.insert(name.to_owned(), value.into());
            }
        }
        let mut annotations = json!({ "title": alert.title, "summary": alert.summary });
        if let Some(status) = status {
            annotations["status"] = status.into();
        }
        let mut shown = json!({
            "labels": labels,
            "annotations": annotations,
            "startsAt": time(alert.since),
            "endsAt": time(alert.resolved_at.unwrap_or(if alert.event() == Event::Test { soon } else { later })),
        });
        if let Some(link) = &alert.link {
            shown["generatorURL"] = link.as_str().into();
        }
        shown
    };
    notification.alerts.iter().map(alert).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_request_has_the_documented_fields() {
        let sent = body(&Settings::default(), &notification(&[Event::Firing, Event::Resolved]));
        let labels = json!({
            "alertname": "dependency",
            "site": "zurich",
            "target": "shop",
            "target_kind": "http",
            "dependency": "db",
            "polliwog": "5f2a",
        });
        let expected = json!([
            {
                "labels": labels,
                "annotations": { "title": "Database", "summary": "connection refused", "status": "critical" },
                "startsAt": "2026-07-20T20:05:00Z",
                "endsAt": "2026-07-21T20:17:00Z",
                "generatorURL": "http://polliwog.lan/targets/shop",
            },
            {
                "labels": labels,
                "annotations": { "title": "Database", "summary": "recovered after 12 min" },
                "startsAt": "2026-07-20T20:05:00Z",
                "endsAt": "2026-07-20T20:17:00Z",
                "generatorURL": "http://polliwog.lan/targets/shop",
            },
        ]);
        assert_eq!(sent, expected);
    }
}
