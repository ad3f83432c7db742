//! The trait of a plugin that sends notifications, and the texts of a message.

mod answers;

use crate::bindings::exports::polliwog::plugin::definition::Guest as DefinitionGuest;
use crate::bindings::exports::polliwog::plugin::notifier::Guest as NotifierGuest;
use crate::bindings::exports::polliwog::plugin::session::Guest as SessionGuest;
use crate::definition::{checked, migrated, not_migrated, settings_of};
use crate::poller::{Session, closed};
use crate::report::millis;
use crate::{Alert, CallError, DeliveryRules, Descriptor, Endpoint, Notification, SecretSpec, SettingsProblem, Status};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::marker::PhantomData;
use std::time::Duration;

/// A plugin that sends notifications: its description, its settings, and one attempt.
///
/// ```
/// use polliwog_sdk::notifier_prelude::*;
/// use polliwog_sdk::{NoSettings, testing};
///
/// struct Board;
///
/// impl Notifier for Board {
///     type Settings = NoSettings;
///     const INFO: NotifierInfo = NotifierInfo {
///         kind: "board",
///         title: "Board",
///         version: "0.1.0",
///         summary: "Messages for a board",
///         ..NotifierInfo::RECEIVER
///     };
///
///     fn send(_: &Endpoint, _: NoSettings, notification: &Notification) -> Result<(), CallError> {
///         let body = json!({ "text": Message::of(notification).title });
///         http::Request::post_json("", &body).send()?.accepted()?;
///         Ok(())
///     }
/// }
///
/// let taken = r#"[{ "request": { "method": "POST", "url": "" }, "response": { "status": 204 } }]"#;
/// let taken = testing::Recording::parse(taken);
/// assert!(testing::send::<Board>(taken, testing::channel(), testing::notification(&[Event::Firing])).is_ok());
/// ```
pub trait Notifier {
    /// The channel's settings. Operators see their JSON Schema, with descriptions from the doc comments.
    type Settings: DeserializeOwned + JsonSchema;
    /// The description of this plugin.
    const INFO: NotifierInfo;
    /// The version of the shape of the settings. See [`Poller::SETTINGS_VERSION`](crate::Poller::SETTINGS_VERSION).
    const SETTINGS_VERSION: u32 = 1;

    /// Returns the secrets that an operator can configure.
    fn secrets() -> Vec<SecretSpec> {
        Vec::new()
    }

    /// Returns the problems of settings that match their schema. Empty if the settings are valid.
    fn check(settings: &Self::Settings) -> Vec<SettingsProblem> {
        let _ = settings;
        Vec::new()
    }

    /// Converts settings of an earlier version to [`SETTINGS_VERSION`](Self::SETTINGS_VERSION).
    ///
    /// # Errors
    /// If they have no equivalent, so that an operator must change them.
    fn migrate(version: u32, settings: Value) -> Result<Value, SettingsProblem> {
        let _ = settings;
        Err(not_migrated(version))
    }

    /// Sends one notification. Each attempt runs in its own instance.
    ///
    /// # Errors
    /// If the receiver did not take it. The host tries again after a transient error.
    fn send(channel: &Endpoint, settings: Self::Settings, notification: &Notification) -> Result<(), CallError>;
}

/// The description of a plugin that sends notifications. End it with `..NotifierInfo::RECEIVER`: later versions have
/// more fields.
///
/// ```
/// # use polliwog_sdk::NotifierInfo;
/// const INFO: NotifierInfo = NotifierInfo {
///     kind: "board",
///     title: "Board",
///     version: "0.1.0",
///     summary: "Messages for a board",
///     needs_every_alert: true,
///     ..NotifierInfo::RECEIVER
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NotifierInfo {
    /// The value of `kind = "..."` of a channel: `[a-z][a-z0-9-]{0,31}`.
    pub kind: &'static str,
    /// The display name.
    pub title: &'static str,
    /// The plugin's own semantic version.
    pub version: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// The address of the plugin's page, with http or https.
    pub homepage: Option<&'static str>,
    /// The licence as an SPDX expression, for example `Apache-2.0`.
    pub license: Option<&'static str>,
    /// The schemes of the URLs that the plugin accepts. The host refuses a channel with another scheme.
    pub schemes: &'static [&'static str],
    /// The timeout of an attempt of a channel without a configured timeout, at most 49 days.
    pub default_timeout: Duration,
    /// Whether the receiver groups alerts: then each alert is sent to it, however many there are.
    pub needs_every_alert: bool,
}

impl NotifierInfo {
    /// The defaults: any address, a timeout of 15 s, and several alerts in one message.
    pub const RECEIVER: Self = Self {
        kind: "",
        title: "",
        version: "",
        summary: "",
        homepage: None,
        license: None,
        schemes: &["http", "https"],
        default_timeout: Duration::from_secs(15),
        needs_every_alert: false,
    };
}

/// Implements the exports of the component for a [`Notifier`].
pub struct ExportedNotifier<N>(PhantomData<N>);

impl<N: Notifier> DefinitionGuest for ExportedNotifier<N> {
    fn describe() -> Descriptor {
        let NotifierInfo { kind, title, version, summary, homepage, license, schemes, default_timeout, .. } = N::INFO;
        Descriptor {
            kind: kind.to_owned(),
            title: title.to_owned(),
            version: version.to_owned(),
            summary: summary.to_owned(),
            homepage: homepage.map(str::to_owned),
            license: license.map(str::to_owned),
            schemes: schemes.iter().map(|&scheme| scheme.to_owned()).collect(),
            settings_schema: schemars::schema_for!(N::Settings).as_value().to_string(),
            settings_version: N::SETTINGS_VERSION,
            secrets: N::secrets(),
            default_interval_ms: None,
            default_timeout_ms: millis(default_timeout),
            extra: Vec::new(),
        }
    }

    fn check_settings(settings: String) -> Vec<SettingsProblem> {
        checked(&settings, N::check)
    }

    fn migrate_settings(version: u32, settings: String) -> Result<String, SettingsProblem> {
        migrated(version, &settings, N::migrate)
    }
}

impl<N: Session> SessionGuest for ExportedNotifier<N> {
    fn close(channel: Endpoint) {
        closed::<N>(&channel);
    }
}

impl<N: Notifier> NotifierGuest for ExportedNotifier<N> {
    fn describe_delivery() -> DeliveryRules {
        DeliveryRules { needs_every_alert: N::INFO.needs_every_alert, extra: Vec::new() }
    }

    fn send(channel: Endpoint, notification: Notification) -> Result<(), CallError> {
        N::send(&channel, settings_of(&channel, N::INFO.kind)?, &notification)
    }
}

/// Escapes a text for HTML, in elements and in attributes with double quotes.
///
/// ```
/// assert_eq!(polliwog_sdk::escape_html("<b> & \"c\""), "&lt;b&gt; &amp; &quot;c&quot;");
/// ```
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Why an alert is in a notification.
///
/// ```
/// # use polliwog_sdk::{Event, testing};
/// let notification = testing::notification(&[Event::Firing, Event::Resolved]);
/// let is_over = notification.alerts.iter().map(|alert| alert.event() == Event::Resolved).collect::<Vec<_>>();
/// assert_eq!(is_over, [false, true]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The alert fires, or got worse.
    Firing,
    /// The alert is over.
    Resolved,
    /// The alert fires and resolves repeatedly. No message follows until it is stable.
    Flapping,
    /// The alert fires still, or something else that hosts of later versions notify.
    Repeated,
    /// An operator tests the channel.
    Test,
}

impl Event {
    /// Returns the name: `firing`, `resolved`, `flapping`, `repeated` or `test`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
            Self::Flapping => "flapping",
            Self::Repeated => "repeated",
            Self::Test => "test",
        }
    }
}

impl Alert {
    /// Returns why the alert is in its notification. A name that this version does not know is [`Event::Repeated`].
    ///
    /// ```
    /// # use polliwog_sdk::{Event, testing};
    /// let mut alert = testing::notification(&[Event::Resolved]).alerts.remove(0);
    /// assert_eq!(alert.event(), Event::Resolved);
    /// alert.event = "of a later host".to_owned();
    /// assert_eq!(alert.event(), Event::Repeated);
    /// ```
    pub fn event(&self) -> Event {
        let known = [Event::Firing, Event::Resolved, Event::Flapping, Event::Test];
        known.into_iter().find(|event| event.as_str() == self.event).unwrap_or(Event::Repeated)
    }

    /// The name of its subject for people, with its target if that is another.
    ///
    /// ```
    /// # use polliwog_sdk::{Event, testing};
    /// let alert = testing::notification(&[Event::Firing]).alerts.remove(0);
    /// assert_eq!(alert.subject(), "Database (Shop)");
    /// ```
    pub fn subject(&self) -> String {
        match self.dependency.is_some() && self.title != self.target_name {
            true => format!("{} ({})", self.title, self.target_name),
            false => self.title.clone(),
        }
    }
}

/// The texts of a notification for people, short enough for a phone.
///
/// ```
/// # use polliwog_sdk::{Event, Message, testing};
/// let message = Message::of(&testing::notification(&[Event::Firing]));
/// assert_eq!(message.title, "Critical: Database (Shop)");
/// assert!(message.text(200).contains("connection refused"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The problem in a few words: `Critical: Database (Shop)`.
    pub title: String,
    /// One line for each alert, the worst first. A notification of one alert has a line for each fact.
    pub lines: Vec<String>,
    /// The number of alerts that have no line.
    pub omitted: u32,
    /// The page about the alert, or about all of them.
    pub link: Option<String>,
    /// The worst status; `Ok` if all alerts are over.
    pub status: Status,
}

impl Message {
    /// Describes a notification.
    pub fn of(notification: &Notification) -> Self {
        // Each attempt has the same texts.
        let Notification { alerts, omitted, created_at: now, .. } = notification;
        let now = *now;
        let worst = alerts.iter().filter(|alert| !is_over(alert)).map(|alert| severity(alert.status)).max();
        let status = worst.map_or(Status::Ok, |severity| SEVERITIES[severity]);
        if let ([alert], 0) = (&alerts[..], *omitted) {
            let link = alert.link.clone().or_else(|| notification.link.clone());
            return Self { title: title(alert), lines: facts(alert, now), omitted: 0, link, status };
        }
        let line = |alert: &Alert| {
            let name = alert.subject();
            match is_over(alert) {
                true => format!("{} {name}: {}", mark(alert), alert.summary),
                false => format!("{} {name}: {} ({})", mark(alert), alert.summary, age(alert, now)),
            }
        };
        let lines = alerts.iter().map(line).collect();
        Self { title: counts(notification), lines, omitted: *omitted, link: notification.link.clone(), status }
    }

    /// Returns the lines as one text of at most `limit` bytes. Alerts and lines that do not fit are counted.
    pub fn text(&self, limit: usize) -> String {
        /// The space for the number of what does not fit.
        const REST: usize = 32;
        let mut text = String::new();
        let mut left = usize::try_from(self.omitted).unwrap_or(usize::MAX);
        for (place, line) in self.lines.iter().enumerate() {
            let room = limit.saturating_sub(text.len() + REST);
            if line.len() > room {
                left = left.saturating_add(self.lines.len() - place);
                if text.is_empty() {
                    left -= 1;
                    text.push_str(&line[..floor(line, room)]);
                    text.push('…');
                }
                break;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
        }
        if left > 0 {
            text.push_str(&format!("\n… and {left} more"));
        }
        text
    }
}

/// The largest character boundary that is not above `limit`.
fn floor(text: &str, limit: usize) -> usize {
    (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Statuses from the best to the worst.
const SEVERITIES: [Status; 4] = [Status::Ok, Status::Unknown, Status::Warning, Status::Critical];

fn severity(status: Status) -> usize {
    SEVERITIES.iter().position(|known| *known == status).unwrap_or(0)
}

fn is_over(alert: &Alert) -> bool {
    alert.event() == Event::Resolved
}

fn mark(alert: &Alert) -> &'static str {
    match (alert.event(), alert.status) {
        (Event::Resolved, _) => "✓",
        (_, Status::Critical) => "✗",
        _ => "!",
    }
}

fn title(alert: &Alert) -> String {
    let (name, status) = (alert.subject(), alert.status.as_str());
    match alert.event() {
        Event::Firing => format!("{}{}: {name}", status[..1].to_uppercase(), &status[1..]),
        Event::Repeated => format!("Still {status}: {name}"),
        Event::Flapping => format!("Flapping: {name}"),
        Event::Resolved => format!("Resolved: {name}"),
        Event::Test => format!("Test: {name}"),
    }
}

/// The facts about a single alert.
fn facts(alert: &Alert, now: i64) -> Vec<String> {
    let mut lines = vec![alert.summary.clone()];
    if alert.event() == Event::Firing || alert.event() == Event::Flapping {
        lines.push(age(alert, now));
    }
    if alert.suppresses > 0 && !is_over(alert) {
        let alerts = if alert.suppresses == 1 { "alert is" } else { "alerts are" };
        lines.push(format!("{} more {alerts} explained by this one", alert.suppresses));
    }
    if !alert.labels.is_empty() {
        let labels = alert.labels.iter().map(|label| format!("{}={}", label.name, label.value));
        lines.push(labels.collect::<Vec<_>>().join(" "));
    }
    lines
}

fn age(alert: &Alert, now: i64) -> String {
    format!("for {}", duration(u64::try_from(now.saturating_sub(alert.since)).unwrap_or(0) / 1000))
}

/// A duration in its two largest units, rounded down.
fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// The numbers of a notification of several alerts, with what they have in common.
fn counts(notification: &Notification) -> String {
    let number = |status| notification.alerts.iter().filter(|alert| !is_over(alert) && alert.status == status).count();
    let over = notification.alerts.iter().filter(|alert| is_over(alert)).count();
    let parts = SEVERITIES.iter().rev().map(|status| (number(*status), status.as_str()));
    let parts = parts.chain([(over, "resolved")]).filter(|(count, _)| *count > 0);
    let mut text = parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ");
    if notification.omitted > 0 {
        text.push_str(&format!(", {} more", notification.omitted));
    }
    let first = notification.alerts.first().map(|alert| alert.target_name.as_str()).unwrap_or_default();
    let is_one = !first.is_empty() && notification.alerts.iter().all(|alert| alert.target_name == first);
    let common = match is_one {
        true => first.to_owned(),
        false => notification.group.iter().map(|label| label.value.as_str()).collect::<Vec<_>>().join(", "),
    };
    if common.trim().is_empty() { text } else { format!("{common}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::notification;

    #[test]
    fn one_alert_is_described_with_its_facts_and_several_with_their_numbers() {
        let one = Message::of(&notification(&[Event::Firing]));
        assert_eq!(one.title, "Critical: Database (Shop)");
        assert_eq!(
            one.text(1000),
            "connection refused\nfor 12 min\n2 more alerts are explained by this one\nsite=zurich"
        );
        assert_eq!((one.link.as_deref(), one.status), (Some("http://polliwog.lan/targets/shop"), Status::Critical));
        let over = Message::of(&notification(&[Event::Resolved]));
        assert_eq!((over.title.as_str(), over.status), ("Resolved: Database (Shop)", Status::Ok));
        let some = Notification { omitted: 7, ..notification(&[Event::Firing, Event::Resolved]) };
        let several = Message::of(&some);
        assert_eq!(several.title, "Shop: 1 critical, 1 resolved, 7 more");
        assert_eq!(several.lines[0], "✗ Database (Shop): connection refused (for 12 min)");
        assert_eq!(several.lines[1..], ["✓ Database (Shop): recovered after 12 min"]);
        assert!(several.text(1000).ends_with("\n… and 7 more"));
        assert!(several.text(100).ends_with("\n… and 8 more"), "{}", several.text(100));
    }

    #[test]
    fn a_text_is_cut_at_a_line_and_says_how_many_are_missing() {
        let message = |lines: &[&str]| Message {
            title: String::new(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            omitted: 0,
            link: None,
            status: Status::Ok,
        };
        let long = "ä".repeat(100);
        assert_eq!(message(&["one", "two", "three"]).text(100), "one\ntwo\nthree");
        assert_eq!(message(&["one", &long, "three"]).text(100), "one\n… and 2 more");
        let cut = message(&[&long]).text(101);
        assert!(cut.ends_with('…') && cut.len() <= 101, "{cut}");
    }
}
