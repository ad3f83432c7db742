//! A notifier whose receiver checks a signature of the body with a shared key, as of many webhooks. The host computes
//! it: the plugin never sees the key.
//!
//! `cargo build --example signed_webhook --target wasm32-wasip2`

use polliwog_sdk::http::{BodyEncoding, Part, Request, Signature};
use polliwog_sdk::notifier_prelude::*;

/// The plugin.
pub struct SignedWebhook;

/// A channel has no settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Notifier for SignedWebhook {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "signed-webhook",
        title: "Signed webhook",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Notifications as JSON, with a signature of the body",
        ..NotifierInfo::RECEIVER
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("key", "the key that the receiver checks signatures with")]
    }

    fn send(_: &Endpoint, _: Settings, notification: &Notification) -> Result<(), CallError> {
        let message = Message::of(notification);
        let body = json!({ "id": notification.id, "title": message.title, "text": message.text(4_000) });
        let signature = Signature::hmac_sha256(vec![Part::secret("key")]).input(Part::body());
        Request::new("POST", "")
            .header("content-type", "application/json")
            .header("x-signature", format!("sha256={}", http::signature("body")))
            .body(body.to_string(), BodyEncoding::Json)
            .sign("body", signature)
            .send()?
            .accepted()?;
        Ok(())
    }
}

polliwog_sdk::register_notifier!(SignedWebhook);
