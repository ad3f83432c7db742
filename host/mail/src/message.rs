//! A notification as a message: a subject that fits a phone, and the facts as text and as HTML.

use crate::Settings;
use jiff::Timestamp as Instant;
use lettre::Message;
use lettre::message::MultiPart;
use lettre::message::header::{HeaderName, HeaderValue};
use maud::{DOCTYPE, Markup, html};
use model::{AlertEvent, Notification, NotifiedAlert, Status, Timestamp, short_duration};

/// The domain of message ids. They need not be addresses; RFC 5322, 3.6.4 asks that they be unique.
const DOMAIN: &str = "polliwog.invalid";
/// The number of alerts whose threads a message belongs to.
const THREADS: usize = 20;
/// The length of a subject in characters.
const SUBJECT: usize = 120;

/// Writes a message. Every attempt of a notification has the same id, and every message about an alert refers to the
/// same invented first message, so that mail programs show an alert as one thread.
pub(crate) fn compose(
    settings: &Settings,
    notification: &Notification,
    now: Timestamp,
) -> Result<Message, lettre::error::Error> {
    let threads: Vec<String> = notification.alerts.iter().take(THREADS).map(thread).collect();
    let mut builder = Message::builder()
        .from(settings.from.clone())
        .date_now()
        .message_id(Some(format!("<{}@{DOMAIN}>", notification.id)))
        .subject(subject(notification))
        .references(threads.join(" "))
        .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()));
    if let [first, ..] = &threads[..] {
        builder = builder.in_reply_to(first.clone());
    }
    for recipient in &settings.to {
        builder = builder.to(recipient.clone());
    }
    builder.multipart(MultiPart::alternative_plain_html(text(notification, now), page(notification, now).into_string()))
}

/// The id of the invented first message of an alert's thread: another one for each episode.
fn thread(alert: &NotifiedAlert) -> String {
    format!("<{}.{}@{DOMAIN}>", alert.fingerprint, alert.since.as_millis())
}

fn subject(notification: &Notification) -> String {
    let text = match (&notification.alerts[..], notification.omitted) {
        ([alert], 0) => heading(alert),
        _ => counts(notification),
    };
    // A line break would end the header.
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SUBJECT).collect()
}

const fn is_over(alert: &NotifiedAlert) -> bool {
    matches!(alert.event, AlertEvent::Resolved)
}

/// The name of an alert's subject, with its target if that is another.
fn name(alert: &NotifiedAlert) -> String {
    match alert.subject.dependency_name().is_some() && alert.title != alert.target_name {
        true => format!("{} ({})", alert.title, alert.target_name),
        false => alert.title.clone(),
    }
}

/// The state of an alert in a word or two.
fn state(alert: &NotifiedAlert) -> String {
    match alert.event {
        AlertEvent::Firing => alert.status.as_str().to_owned(),
        AlertEvent::Repeated => format!("still {}", alert.status.as_str()),
        AlertEvent::Flapping => "flapping".to_owned(),
        AlertEvent::Resolved => "resolved".to_owned(),
        AlertEvent::Test => "test".to_owned(),
    }
}

fn heading(alert: &NotifiedAlert) -> String {
    let state = state(alert);
    let (first, rest) = state.split_at(state.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}: {}", first.to_uppercase(), name(alert))
}

/// The numbers of a notification of several alerts, with the target if they have one in common.
fn counts(notification: &Notification) -> String {
    let Notification { alerts, omitted, .. } = notification;
    let of = |status| alerts.iter().filter(|alert| !is_over(alert) && alert.status == status).count();
    let parts = [Status::Critical, Status::Warning, Status::Unknown].map(|status| (of(status), status.as_str()));
    let over = alerts.iter().filter(|alert| is_over(alert)).count();
    let more = usize::try_from(*omitted).unwrap_or(usize::MAX);
    let all = parts.into_iter().chain([(over, "resolved"), (more, "more")]).filter(|(count, _)| *count > 0);
    let text = all.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ");
    match alerts.first() {
        Some(first) if alerts.iter().all(|alert| alert.target_name == first.target_name) => {
            format!("{}: {text}", first.target_name)
        }
        _ => text,
    }
}

/// The facts about an alert, each with its name.
fn facts(alert: &NotifiedAlert, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = vec![("What", alert.summary.clone())];
    let end = alert.resolved_at.filter(|_| is_over(alert));
    let lasted = short_duration(end.unwrap_or(now).since(alert.since));
    if alert.event != AlertEvent::Test {
        facts.push(("Since", format!("{} ({lasted})", time(alert.since))));
    }
    if let Some(end) = end {
        facts.push(("Until", time(end)));
    }
    if alert.suppresses > 0 && !is_over(alert) {
        let alerts = if alert.suppresses == 1 { "alert is" } else { "alerts are" };
        facts.push(("Affects", format!("{} more {alerts} explained by this one", alert.suppresses)));
    }
    if !alert.labels.is_empty() {
        let labels = alert.labels.iter().map(|(name, value)| format!("{name}={value}"));
        facts.push(("Labels", labels.collect::<Vec<_>>().join(" ")));
    }
    facts
}

fn time(at: Timestamp) -> String {
    Instant::from_millisecond(at.as_millis())
        .map_or_else(|_| "unknown".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

fn rest(notification: &Notification) -> Option<String> {
    (notification.omitted > 0).then(|| format!("and {} more alerts", notification.omitted))
}

fn text(notification: &Notification, now: Timestamp) -> String {
    let mut text = String::new();
    for alert in &notification.alerts {
        text.push_str(&heading(alert));
        text.push('\n');
        for (name, value) in facts(alert, now) {
            text.push_str(&format!("  {name:<8}{value}\n"));
        }
        if let Some(link) = &alert.link {
            text.push_str(&format!("  {:<8}{link}\n", "Page"));
        }
        text.push('\n');
    }
    rest(notification)
        .into_iter()
        .chain(notification.link.clone())
        .for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

/// Mail programs ignore style sheets, so that each element has its style.
fn page(notification: &Notification, now: Timestamp) -> Markup {
    html! {
        (DOCTYPE)
        html {
            body style="font-family: sans-serif; font-size: 15px; color: #222; background: #fff" {
                @for alert in &notification.alerts {
                    p style={ "margin: 16px 0 4px; padding-left: 8px; font-weight: bold; border-left: 6px solid " (colour(alert)) } {
                        (heading(alert))
                    }
                    table cellpadding="3" style="border-collapse: collapse" {
                        @for (name, value) in facts(alert, now) {
                            tr {
                                td style="color: #666; vertical-align: top; padding-left: 14px" { (name) }
                                td { (value) }
                            }
                        }
                    }
                    @if let Some(link) = &alert.link {
                        p style="margin: 4px 0 0 14px" { a href=(link) { "Open its page" } }
                    }
                }
                @if let Some(rest) = rest(notification) { p { (rest) } }
                @if let Some(link) = &notification.link { p { a href=(link) { "All alerts" } } }
            }
        }
    }
}

const fn colour(alert: &NotifiedAlert) -> &'static str {
    match (alert.event, alert.status) {
        (AlertEvent::Resolved | AlertEvent::Test, _) | (_, Status::Ok) => "#1a7f37",
        (_, Status::Critical) => "#c8102e",
        _ => "#b7791f",
    }
}
