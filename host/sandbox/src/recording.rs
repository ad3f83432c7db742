//! Recordings: the target and the exchanges of a poll, or of a sent notification, to be replayed later.

use crate::limits::Limits;
use crate::plugin::Plugin;
use crate::run::{Job, Target};
use crate::zone::Zone;
use egress::{Exchange, Grant, Origin, OriginGrant, Player, Secrets, Tape, Tls, requested};
use model::{AlertEvent, Kind, PluginValues, TargetId, Timestamp};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The value of every secret in a replay, which sends nothing.
const SECRET: &str = "a-secret-of-the-recording";

/// A recorded poll, or a recorded notification.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The kind that was polled or sent to.
    pub kind: String,
    /// The event of the notification; `None` for a poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// The number of alerts of the notification; `None` for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alerts: Option<u32>,
    /// The target as passed to the plugin.
    target: RecordedTarget,
    /// Every exchange, in the order of the responses.
    exchanges: Vec<Exchange>,
    /// Further polls of the target, each after the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    later: Vec<LaterPoll>,
}

/// A further poll of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaterPoll {
    /// The time of the poll, in milliseconds since 1970.
    now: i64,
    exchanges: Vec<Exchange>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordedTarget {
    url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    settings: Value,
    /// The names of the secrets, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<String>,
    /// The time of the poll, in milliseconds since 1970.
    now: i64,
    timeout_ms: u64,
    /// The IANA name of the time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
}

/// The times that a plugin receives besides its target.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The time of the poll.
    pub now: Timestamp,
    /// The poll's timeout.
    pub timeout: Duration,
    /// The time zone.
    pub zone: Zone,
}

impl Recording {
    /// Creates the recording of a poll.
    pub fn of(kind: &Kind, target: &Target, timing: Timing, exchanges: Vec<Exchange>) -> Self {
        let recorded = RecordedTarget {
            url: target.url.clone(),
            also: target.also.clone(),
            labels: target.labels.iter().cloned().collect(),
            settings: serde_json::from_str(&target.settings).unwrap_or_default(),
            secrets: target.secrets.clone(),
            now: timing.now.as_millis(),
            timeout_ms: u64::try_from(timing.timeout.as_millis()).unwrap_or(u64::MAX),
            time_zone: Some(timing.zone.name().to_owned()).filter(|name| name != Zone::UTC.name()),
        };
        Self { kind: kind.to_string(), event: None, alerts: None, target: recorded, exchanges, later: Vec::new() }
    }

    /// Makes it the recording of a notification.
    #[must_use]
    pub fn with_event(self, event: AlertEvent, alerts: u32) -> Self {
        Self { event: Some(event.as_str().to_owned()), alerts: Some(alerts).filter(|alerts| *alerts > 1), ..self }
    }

    /// Adds a further poll of the target.
    #[must_use]
    pub fn with_later(mut self, now: Timestamp, exchanges: Vec<Exchange>) -> Self {
        self.later.push(LaterPoll { now: now.as_millis(), exchanges });
        self
    }

    /// Returns whether all requests were answered with a status of 200 to 399.
    pub fn is_answered(&self) -> bool {
        let later = self.later.iter().flat_map(|poll| &poll.exchanges);
        let status = |exchange: &Exchange| exchange.response.as_ref().map(|response| response.status);
        self.exchanges
            .iter()
            .chain(later)
            .all(|exchange| status(exchange).is_some_and(|status| (200..400).contains(&status)))
    }

    /// Returns the number of polls.
    pub fn polls(&self) -> usize {
        1 + self.later.len()
    }

    /// Returns the number of alerts of the notification, at most 100.
    pub fn alerts(&self) -> u32 {
        self.alerts.unwrap_or(1).clamp(1, 100)
    }

    /// Returns the event of the notification; `None` for a poll.
    pub fn event(&self) -> Option<AlertEvent> {
        AlertEvent::from_word(self.event.as_deref()?)
    }

    /// Parses a recording. `name` is the file's name for messages.
    ///
    /// # Errors
    /// One sentence: why the text is not a valid recording, and what to do.
    pub fn parse(text: &str, name: &str) -> Result<Self, String> {
        let recording: Self = serde_json::from_str(text).map_err(|error| match text.trim_start().starts_with('[') {
            true => format!(
                "{name} is a list of exchanges, which only polliwog_sdk::testing accepts; a recording also has kind and \
                 target: record it with `polliwog poll --record`"
            ),
            false => format!("{name} is not a valid recording: {error}: record it again"),
        })?;
        if recording.event.is_some() && recording.event().is_none() {
            return Err(format!(
                "{name} has an unknown event: use {}",
                AlertEvent::ALL.map(AlertEvent::as_str).join(", ")
            ));
        }
        let later = recording.later.iter().flat_map(|poll| &poll.exchanges);
        for Exchange { request, response, error, .. } in recording.exchanges.iter().chain(later) {
            if response.is_some() == error.is_some() {
                return Err(format!("{name}: the exchange {} must have either a response or an error", request.url));
            }
        }
        Ok(recording)
    }

    /// The settings of the recorded target.
    pub fn settings(&self) -> Value {
        if self.target.settings.is_null() { Value::Object(Map::new()) } else { self.target.settings.clone() }
    }

    /// Creates a poll whose requests the recording answers: the first one, or a later one. `settings` is
    /// [`Self::settings`] as the plugin accepts them, in JSON.
    ///
    /// # Errors
    /// One sentence: which part of the recorded target is wrong.
    pub fn job(&self, plugin: &Plugin, poll: usize, settings: String) -> Result<Job, String> {
        let later = poll.checked_sub(1).and_then(|place| self.later.get(place));
        let (now, recorded) = later.map_or((self.target.now, &self.exchanges), |poll| (poll.now, &poll.exchanges));
        let parse = |url: &str| Origin::parse(url).map_err(|error| error.to_string());
        let (base, origin) = parse(&self.target.url)?;
        let mut origins = vec![origin];
        for also in &self.target.also {
            origins.push(parse(also)?.1);
        }
        let zone = match self.target.time_zone.as_deref() {
            None => Zone::UTC,
            Some(name) => Zone::named(name).ok_or_else(|| format!("its time zone {name:?} is not known"))?,
        };
        let tls = Tls::system().map_err(|error| error.to_string())?;
        let origins = origins.into_iter().map(|origin| OriginGrant { origin, tls: tls.clone() }).collect();
        let values = self.target.secrets.iter().map(|name| (name.clone(), SecretString::from(SECRET)));
        let secrets = Secrets::new(values.collect()).map_err(|error| error.to_string())?;
        let exchanges = recorded.iter().map(|exchange| {
            let mut exchange = exchange.clone();
            // A recording that was written by hand may have a path instead of a URL.
            if let Ok((origin, path)) =
                base.join(&exchange.request.url).map_err(drop).and_then(|url| requested(&url).map_err(drop))
            {
                exchange.request.url = format!("{origin}{path}");
            }
            exchange
        });
        let reference_in_base = Some(self.target.url.clone()).filter(|url| url.contains("${"));
        let target = Target {
            id: TargetId::new("recorded").map_err(|error| error.to_string())?,
            name: self.target.url.clone(),
            url: reference_in_base.clone().unwrap_or_else(|| base.to_string()),
            also: self.target.also.clone(),
            labels: self.target.labels.clone().into_iter().collect(),
            settings,
            secrets: self.target.secrets.clone(),
        };
        let tape = Tape::Replay(Arc::new(Player::new(exchanges.collect())));
        // A use that the operator had not permitted was recorded as an error.
        let grant = Grant { reference_in_base, expands_path: true, ..Grant::new(base, origins, secrets) };
        Ok(Job {
            plugin: plugin.clone(),
            target: Arc::new(target),
            grant: Arc::new(grant),
            limits: Limits::default(),
            timeout: Duration::from_millis(self.target.timeout_ms),
            now: Timestamp::from_millis(now),
            tape,
            zone: Some(zone),
            stored: PluginValues::default(),
        })
    }
}
