//! A notifier of a receiver that takes one alert in a request, such as a pager. What was sent is recorded, so that a
//! later attempt sends only the rest.
//!
//! `cargo build --example notifier --target wasm32-wasip2`

use polliwog_sdk::notifier_prelude::*;

/// The plugin.
pub struct Pager;

/// The settings of a channel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The group of people to page.
    group: Option<String>,
}

impl Notifier for Pager {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "pager",
        title: "Pager",
        version: env!("CARGO_PKG_VERSION"),
        summary: "A page for each alert",
        needs_every_alert: true,
        ..NotifierInfo::RECEIVER
    };

    fn send(channel: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        for alert in &notification.alerts {
            let body = json!({
                "key": alert.fingerprint,
                "open": alert.event() != Event::Resolved,
                "text": format!("{} ({}): {}", alert.title, alert.target_name, alert.summary),
                "group": settings.group,
                "link": alert.object_link.as_ref().or(alert.link.as_ref()),
            });
            let sent = http::Request::post_json(channel.under("pages"), &body).send()?.accepted();
            match sent {
                Ok(_) => progress::sent(alert),
                // It would refuse this one again, and must not keep the others from being sent.
                Err(CallError::Permanent(reason)) => progress::refused(alert, reason),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

polliwog_sdk::register_notifier!(Pager);
