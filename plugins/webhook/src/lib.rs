//! Kind `webhook`: posts notifications as JSON to any URL, or in the form of a template.
//!
//! The body is an object with `id`, `title`, `text`, `status`, `link`, `omitted`, `group` (an object of labels) and
//! `alerts`. Each alert has `fingerprint`, `event` (`firing`, `resolved`, `flapping`, `repeated`, `test`), `status`,
//! `class`, `targetId`, `targetName`, `kind`, `dependency`, `title`, `summary`, `since` and `resolvedAt` (milliseconds
//! since the Unix epoch), `labels` (an object), `link`, `objectLink` and `suppresses`. Absent values are null. The
//! header `Idempotency-Key` has the id.
//!
//! A template (Jinja's language, <https://docs.rs/minijinja>) gets the same object: `{{ title }}`,
//! `{% for alert in alerts %}`, `{{ text | tojson }}`.

#![deny(unsafe_code)]

use minijinja::Environment;
use polliwog_sdk::cache;
use polliwog_sdk::notifier_prelude::*;
use std::collections::BTreeMap;
use std::io;

/// The plugin for kind `webhook`.
pub struct Webhook;

/// The settings of a channel of kind `webhook`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Headers of the request. `${secret.NAME}` is replaced by a secret of the channel.
    pub headers: BTreeMap<String, String>,
    /// Whether any answer with status 2xx means that the message was taken, also a page for people, or JSON whose "ok"
    /// or "success" is false.
    pub any_answer: bool,
    /// A template of the body; without it, the body is JSON.
    pub template: Option<String>,
    /// The media type of the template's text.
    pub content_type: Option<String>,
}

impl Notifier for Webhook {
    type Settings = Settings;
    const INFO: NotifierInfo = NotifierInfo {
        kind: "webhook",
        title: "Webhook",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Notifications as JSON, or in the form of a template, to any URL",
        ..NotifierInfo::RECEIVER
    };

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        // A template may have a text for some notifications only.
        let template = settings.template.as_deref().map(|template| declared(template, settings.kind(), &example()));
        let mut problems: Vec<SettingsProblem> = template.and_then(Result::err).into_iter().collect();
        if settings.content_type.is_some() && settings.template.is_none() {
            let message = "it belongs to a template: without one, the body is JSON";
            problems.push(SettingsProblem::at("/content_type", message));
        }
        problems.extend(http::header_problems(&settings.headers));
        problems
    }

    fn send(_: &Endpoint, settings: Settings, notification: &Notification) -> Result<(), CallError> {
        let body = body(notification);
        let request = match &settings.template {
            None => http::Request::post_json("", &body),
            Some(template) => {
                let kind = settings.kind();
                let text = once(&notification.id, || usable(template, kind, &body)).unwrap_or_else(|problem| {
                    log::warn!("the default text is sent: {}", problem.sentence());
                    default_text(kind, &body)
                });
                let request = http::Request::new("POST", "").header("content-type", kind);
                request.body(text, http::BodyEncoding::Raw)
            }
        };
        let request = request.header("idempotency-key", &notification.id).configured_headers(&settings.headers);
        let response = request.send()?;
        let is_page = response.is_page();
        let refuses = |answer: &Value| ["ok", "success"].iter().any(|key| answer[key] == json!(false));
        let is_taken = |answer: &Value| settings.any_answer || (!is_page && !refuses(answer));
        response.confirmed("a webhook", |_, answer| is_taken(answer)).map(drop)
    }
}

polliwog_sdk::register_notifier!(Webhook);

impl Settings {
    /// The content type of the template's text.
    fn kind(&self) -> &str {
        self.content_type.as_deref().unwrap_or("text/plain; charset=utf-8")
    }
}

/// The key of the notification whose template is being rendered.
const RENDERING: &str = "rendering";

/// Renders a template, unless that ended an earlier attempt to send this notification: a template can need more memory
/// or time than a call has, which ends the call. The host calls again some seconds later.
fn once(id: &str, render: impl FnOnce() -> Result<String, SettingsProblem>) -> Result<String, SettingsProblem> {
    if cache::get(RENDERING).is_some_and(|of| of == id.as_bytes()) {
        let why = "it needs more memory or time to render than a plugin may use";
        return Err(SettingsProblem::at("/template", why));
    }
    // Without room for the value, it is rendered each time.
    let _ = cache::set(RENDERING, id.as_bytes(), cache::LONGEST);
    let text = render();
    cache::remove(RENDERING);
    text
}

/// Returns the text of a template if a receiver can use it: it is not empty, and of the type that is declared.
fn usable(template: &str, kind: &str, body: &Value) -> Result<String, SettingsProblem> {
    let text = declared(template, kind, body)?;
    match text.trim() {
        "" => Err(SettingsProblem::at("/template", "it renders nothing for this notification")),
        _ => Ok(text),
    }
}

/// Returns the text of a template, unless it is not JSON although that is declared.
fn declared(template: &str, kind: &str, body: &Value) -> Result<String, SettingsProblem> {
    let text = rendered(template, body)?;
    let is_json = || text.trim().is_empty() || serde_json::from_str::<Value>(&text).is_ok();
    if kind.contains("json") && !is_json() {
        let why =
            "it renders a text that is not JSON, which content_type says: write {{ title | tojson }} without quotes";
        return Err(SettingsProblem::at("/template", why));
    }
    Ok(text)
}

/// The text for a notification that its template cannot render. What it says is more important than its form.
fn default_text(content_type: &str, body: &Value) -> String {
    let (title, text) = (&body["title"], &body["text"]);
    match content_type.contains("json") {
        true => json!({ "title": title, "text": text }).to_string(),
        false => format!("{}\n{}", title.as_str().unwrap_or_default(), text.as_str().unwrap_or_default()),
    }
}

/// A body with every field, which shows whether a template can be rendered.
fn example() -> Value {
    let alert = json!({
        "fingerprint": "5f2a", "event": "firing", "status": "critical", "class": "dependency", "targetId": "shop",
        "targetName": "Shop", "kind": "http", "dependency": "db", "title": "Database \"main\"", "summary": "refused: \"db\"",
        "since": 1, "resolvedAt": 2, "labels": {}, "link": "http://localhost/", "objectLink": "http://localhost/", "suppresses": 0,
    });
    json!({
        "id": "1", "title": "Critical: Database \"main\"", "text": "refused: \"db\"\nfor 12 min", "status": "critical",
        "link": "http://localhost/", "omitted": 0, "group": {}, "alerts": [alert],
    })
}

/// The steps that a template may take: a notification of 100 alerts takes some ten thousand.
const FUEL: u64 = 300_000;
/// The largest body in bytes. The host takes no request with more than 1 MiB.
const LONGEST_BODY: usize = 512 << 10;

fn rendered(template: &str, body: &Value) -> Result<String, SettingsProblem> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    let why = |error: minijinja::Error| {
        let line = error.line().map_or_else(String::new, |line| format!(" in its line {line}"));
        let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        SettingsProblem::at("/template", format!("it is not valid{line}: {detail}"))
    };
    let mut text = Text::default();
    let parsed = environment.template_from_str(template).map_err(why)?;
    let rendered = parsed.render_captured_to(body, &mut text).map(drop);
    if text.is_too_long {
        return Err(SettingsProblem::at("/template", format!("it renders more than {} KiB", LONGEST_BODY >> 10)));
    }
    rendered.map_err(why)?;
    Ok(String::from_utf8_lossy(&text.bytes).into_owned())
}

/// A text that ends its rendering when it is longer than [`LONGEST_BODY`].
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_too_long = self.bytes.len() + bytes.len() > LONGEST_BODY;
        if self.is_too_long {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The length of the text in bytes.
const LONGEST: usize = 16_000;

fn object(labels: &[Label]) -> Value {
    labels.iter().map(|label| (label.name.clone(), Value::from(label.value.as_str()))).collect()
}

fn body(notification: &Notification) -> Value {
    let message = Message::of(notification);
    let alert = |alert: &Alert| {
        json!({
            "fingerprint": alert.fingerprint,
            "event": alert.event,
            "status": alert.status.as_str(),
            "class": alert.class,
            "targetId": alert.target_id,
            "targetName": alert.target_name,
            "kind": alert.kind,
            "dependency": alert.dependency,
            "title": alert.title,
            "summary": alert.summary,
            "since": alert.since,
            "resolvedAt": alert.resolved_at,
            "labels": object(&alert.labels),
            "link": alert.link,
            "objectLink": alert.object_link,
            "suppresses": alert.suppresses,
        })
    };
    json!({
        "id": notification.id,
        "title": message.title,
        "text": message.text(LONGEST),
        "status": message.status.as_str(),
        "link": message.link,
        "omitted": notification.omitted,
        "group": object(&notification.group),
        "alerts": notification.alerts.iter().map(alert).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::notification;

    #[test]
    fn the_body_has_the_documented_fields() {
        let sent = body(&notification(&[Event::Firing]));
        let expected = json!({
            "id": "polliwog-7",
            "title": "Critical: Database (Shop)",
            "text": "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich",
            "status": "critical",
            "link": "http://polliwog.lan/targets/shop",
            "omitted": 0,
            "group": { "target": "shop" },
            "alerts": [{
                "fingerprint": "5f2a", "event": "firing", "status": "critical", "class": "dependency",
                "targetId": "shop", "targetName": "Shop", "kind": "http", "dependency": "db", "title": "Database",
                "summary": "connection refused", "since": 1_784_577_900_000_u64, "resolvedAt": null, "labels": { "site": "zurich" },
                "link": "http://polliwog.lan/targets/shop", "objectLink": null, "suppresses": 2,
            }],
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_template_that_ended_a_call_is_not_rendered_for_that_notification() {
        let text = || Ok("text".to_owned());
        assert_eq!(once("1", text).unwrap(), "text");
        assert_eq!(once("1", text).unwrap(), "text", "it ended no call");
        let ends = std::panic::catch_unwind(|| once("2", || panic!("the memory is used up")));
        assert!(ends.is_err());
        assert!(once("2", text).unwrap_err().sentence().contains("more memory or time"));
        assert_eq!(once("3", text).unwrap(), "text");
    }

    #[test]
    fn a_template_is_checked_and_rendered() {
        let body = body(&notification(&[Event::Firing]));
        let text = rendered("{\"t\": {{ title | tojson }}}{% for a in alerts %} {{ a.event }}{% endfor %}", &body);
        assert_eq!(text.unwrap(), "{\"t\": \"Critical: Database (Shop)\"} firing");
        for (template, why) in [("{{ title", "line 1"), ("{% for x %}", "template"), ("{{ a | nothing }}", "nothing")] {
            let with = |template: &str| Settings { template: Some(template.to_owned()), ..Settings::default() };
            let problems = Webhook::check(&with(template));
            assert!(problems.len() == 1 && problems[0].sentence().contains(why), "{template}: {problems:?}");
        }
        let json = |template: &str| Settings {
            template: Some(template.to_owned()),
            content_type: Some("application/json".to_owned()),
            ..Settings::default()
        };
        assert!(Webhook::check(&json(r#"{"m": "{{ title }}"}"#))[0].sentence().contains("tojson"));
        assert!(Webhook::check(&json(r#"{"m": {{ title | tojson }}}"#)).is_empty());
        assert!(
            Webhook::check(&json("{% if omitted %}[]{% endif %}")).is_empty(),
            "it has a text for other notifications"
        );
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(rendered(endless, &body).is_err() && usable("{{ x }}", "text/plain", &body).is_err());
        let long = rendered("{% for a in range(9999) %}{{ text }}{% endfor %}", &body).unwrap_err();
        assert!(long.sentence().contains("more than 512 KiB"), "{long:?}");
        let lone = Settings { content_type: Some("text/html".to_owned()), ..Settings::default() };
        assert_eq!(Webhook::check(&lone)[0].setting.as_deref(), Some("/content_type"));
    }
}
