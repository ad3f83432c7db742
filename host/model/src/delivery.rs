//! Deliveries: notifications on their way to a channel, and what became of them.

use crate::{AlertRecord, Kind, Notification, PluginValues, Subject, Timestamp};
use std::sync::Arc;

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is tried until it succeeds or its time is over.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// It is not tried any more.
    Undeliverable,
    /// It is not sent, because later notifications of the channel say what is still true of it.
    Replaced,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Delivered, Self::Undeliverable, Self::Replaced];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Undeliverable => "undeliverable",
            Self::Replaced => "replaced",
        }
    }

    /// Returns the state with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The outcome of one alert of a notification that is sent in several requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertProgress {
    /// The fingerprint of the alert.
    pub fingerprint: String,
    /// Why the receiver refuses it; `None` if it took it.
    pub refused: Option<String>,
}

/// A notification with its attempts and their outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The notification; its number identifies the delivery.
    pub notification: Notification,
    /// When it was made.
    pub created: Timestamp,
    /// The state.
    pub state: DeliveryState,
    /// The number of attempts.
    pub attempts: u32,
    /// When the last attempt ended.
    pub last_attempt: Option<Timestamp>,
    /// When the next attempt is due; `None` for at once, or if it is over.
    pub next_attempt: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// The alerts whose outcome is known already. Further attempts do not contain them.
    pub progress: Vec<AlertProgress>,
}

impl Delivery {
    /// Creates the delivery of a new notification.
    pub const fn new(notification: Notification, created: Timestamp) -> Self {
        Self {
            notification,
            created,
            state: DeliveryState::Waiting,
            attempts: 0,
            last_attempt: None,
            next_attempt: None,
            error: None,
            progress: Vec::new(),
        }
    }
}

impl Delivery {
    /// Returns the notification with the alerts whose outcome is not known yet.
    pub fn rest(&self) -> Notification {
        let mut rest = self.notification.clone();
        rest.alerts.retain(|alert| self.progress.iter().all(|known| known.fingerprint != alert.fingerprint));
        rest
    }

    /// Returns why the receiver refuses some of the alerts; `None` if it refuses none.
    pub fn refusals(&self) -> Option<String> {
        let reasons: Vec<&str> = self.progress.iter().filter_map(|known| known.refused.as_deref()).collect();
        let (first, all) = (reasons.first()?, self.notification.alerts.len());
        let others = if reasons.len() > 1 { "; the first: " } else { ": " };
        Some(format!("{} of {all} alerts refused{others}{first}", reasons.len()))
    }
}

/// A change of the stored alerts.
#[derive(Clone, Debug, PartialEq)]
pub enum AlertChange {
    /// Stores the record of an alert, in place of an earlier one.
    Save(Arc<AlertRecord>),
    /// Deletes the record of an alert.
    Forget(Subject),
    /// Stores a delivery, in place of an earlier state of it.
    Deliver(Box<Delivery>),
    /// Stores what a plugin keeps for a channel.
    Values {
        /// The channel.
        channel: String,
        /// The kind of the channel.
        kind: Kind,
        /// The values.
        values: PluginValues,
    },
    /// Deletes what a plugin kept for a channel.
    ForgetValues(String),
}

/// A choice of deliveries.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Only those of this channel.
    pub channel: Option<String>,
    /// Only those in this state.
    pub state: Option<DeliveryState>,
    /// Only those with a smaller number.
    pub before: Option<u64>,
}

/// The state of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelState {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// The URL as configured, without the values of secrets.
    pub url: String,
    /// The number of notifications that wait.
    pub waiting: usize,
    /// When the oldest notification that waits was made.
    pub oldest: Option<Timestamp>,
    /// The notifications that the receiver took since the start of the host.
    pub delivered: u64,
    /// The attempts that failed since the start of the host.
    pub failed_attempts: u64,
    /// The notifications that were given up since the start of the host.
    pub undeliverable: u64,
    /// When the receiver last took a notification since the start of the host.
    pub last_success: Option<Timestamp>,
    /// Why it does not deliver at present; `None` if the last attempt succeeded or there was none.
    pub problem: Option<String>,
}
