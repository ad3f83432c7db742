//! The alerts of targets that one device polls at a time, for the device that polls them next.

use super::{Record, WireError, name, text};
use model::{
    Acknowledgement, AlertEvent, AlertRecord, AlertState, LastNotified, MAYBE, Resolution, Status, Subject, TargetId,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::Arc;

/// The maximum size of the alerts of a deployment in bytes.
pub const LARGEST_ALERTS: usize = 128 << 10;
/// The maximum length of a dependency's name, and of a title, in bytes.
const LONGEST: usize = 1024;

/// The alerts that receivers may have open for a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlerts {
    /// The device that observed them.
    pub owner: String,
    /// The term of the lease under which the record was written.
    pub term: u64,
    /// The alerts.
    pub alerts: Vec<OpenAlert>,
}

/// An alert that fires, or whose end a receiver may not know. Times are milliseconds since 1970, by the clock of the
/// device that observed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlert {
    /// The target's id.
    pub target: String,
    /// The dependency's name; `None` if the target cannot be polled.
    pub dependency: Option<String>,
    /// The word of the status.
    pub status: String,
    /// The time of the first observation.
    pub since: i64,
    /// The title for users.
    pub title: String,
    /// The acknowledgement, if an operator acknowledged the alert.
    pub acknowledged: Option<AcknowledgementWire>,
    /// The channels that may have been notified of it.
    pub notified: Vec<NotifiedWire>,
}

/// An operator's acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgementWire {
    /// The operator.
    pub by: String,
    /// The time.
    pub at: i64,
    /// The word of the alert's status at that time.
    pub status: String,
}

/// The last message for a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedWire {
    /// The channel.
    pub channel: String,
    /// The word of the event.
    pub event: String,
    /// The word of the status. "ok" if the message may not have arrived: the channel is notified again while the alert
    /// fires, and of its end in any case.
    pub status: String,
    /// The time.
    pub at: i64,
}

impl OpenAlerts {
    /// Makes the record of as many of these alerts as fit into it, the worst and oldest first. Returns the number of
    /// those that do not.
    pub fn fitting(owner: &str, term: u64, mut alerts: Vec<OpenAlert>) -> (Self, usize) {
        // The owner, the term and the numbers of items need less.
        let mut left = LARGEST_ALERTS - 256;
        let count = alerts.len();
        alerts.retain(|alert| alert.check().is_ok());
        alerts.sort_by_cached_key(|alert| (Reverse(Status::from_word(&alert.status)), alert.since));
        let fits = |alert: &OpenAlert| {
            let size = postcard::experimental::serialized_size(alert).unwrap_or(usize::MAX);
            let fits = size <= left;
            left -= if fits { size } else { 0 };
            fits
        };
        alerts.retain(fits);
        let omitted = count - alerts.len();
        alerts.sort_by(|one, other| (&one.target, &one.dependency).cmp(&(&other.target, &other.dependency)));
        (Self { owner: owner.to_owned(), term, alerts }, omitted)
    }
}

impl OpenAlert {
    /// Describes an alert of a target that fires, or that a receiver may have open. `waits`: whether a message about it
    /// to a channel is not delivered yet. `None` if no receiver can have the alert open.
    pub fn from_record(alert: &AlertRecord, waits: impl Fn(&str) -> bool) -> Option<Self> {
        let target = alert.subject.target()?.to_string();
        let word = |status: Status| status.as_str().to_owned();
        let notified = alert.notified.iter().filter_map(|last| {
            let waits = waits(&last.channel);
            let status = if waits { MAYBE } else { last.status };
            let event = if waits { AlertEvent::Firing } else { last.event };
            (event != AlertEvent::Resolved).then(|| NotifiedWire {
                channel: last.channel.clone(),
                event: event.as_str().to_owned(),
                status: word(status),
                at: last.at.as_millis(),
            })
        });
        let notified: Vec<NotifiedWire> = notified.collect();
        let is_handed_over = alert.ended.is_some_and(|(_, why)| why == Resolution::HandedOver);
        if is_handed_over || (alert.state != AlertState::Firing && notified.is_empty()) {
            return None;
        }
        let acknowledged = alert.acknowledged.as_ref().map(|held| AcknowledgementWire {
            by: held.by.clone(),
            at: held.at.as_millis(),
            status: word(held.status),
        });
        Some(Self {
            target,
            dependency: alert.subject.dependency_name().map(str::to_owned),
            status: word(alert.status),
            since: alert.since.as_millis(),
            title: alert.title[..alert.title.floor_char_boundary(LONGEST)].to_owned(),
            acknowledged,
            notified,
        })
    }

    /// Returns the alert; `None` if a word or the target's id is not valid.
    pub fn into_record(self) -> Option<AlertRecord> {
        let target = TargetId::new(&self.target).ok()?;
        let subject = match self.dependency {
            Some(dependency) => Subject::dependency(&target, dependency),
            None => Subject::Target(target),
        };
        let at = Timestamp::from_millis;
        let acknowledged = match self.acknowledged {
            Some(AcknowledgementWire { by, at: when, status }) => {
                Some(Acknowledgement { by, at: at(when), status: Status::from_word(&status)? })
            }
            None => None,
        };
        let notified = self.notified.into_iter().map(|last| {
            let (event, status) = (AlertEvent::from_word(&last.event)?, Status::from_word(&last.status)?);
            Some(LastNotified { channel: last.channel, event, status, at: at(last.at) })
        });
        let mut notified = notified.collect::<Option<Vec<_>>>()?;
        notified.sort_by(|one, other| one.channel.cmp(&other.channel));
        notified.dedup_by(|one, other| one.channel == other.channel);
        Some(AlertRecord {
            subject,
            state: AlertState::Firing,
            status: Status::from_word(&self.status).filter(|status| *status != Status::Ok)?,
            since: at(self.since),
            ended: None,
            traits: Arc::default(),
            title: self.title,
            message: None,
            object_link: None,
            ancestors: Vec::new(),
            changes: Vec::new(),
            flapping: None,
            acknowledged,
            suppressed_by: None,
            silenced_by: None,
            notified,
        })
    }

    fn check(&self) -> Result<(), WireError> {
        text(&self.target, LONGEST, "target")?;
        text(self.dependency.as_deref().unwrap_or_default(), LONGEST, "dependency")?;
        text(&self.title, LONGEST, "title")?;
        text(self.acknowledged.as_ref().map_or("", |held| &held.by), LONGEST, "operator")?;
        self.notified.iter().try_for_each(|last| text(&last.channel, LONGEST, "channel"))
    }
}

impl Record for OpenAlerts {
    const LARGEST: usize = LARGEST_ALERTS;
    const VERSION: u8 = 1;

    fn check(&self) -> Result<(), WireError> {
        name(&self.owner)?;
        self.alerts.iter().try_for_each(OpenAlert::check)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    fn record(dependency: Option<&str>, state: AlertState, channels: &[(&str, AlertEvent)]) -> AlertRecord {
        let (target, at) = (TargetId::new("shop").unwrap(), Timestamp::from_millis);
        let notified = channels.iter().map(|(channel, event)| LastNotified {
            channel: (*channel).to_owned(),
            event: *event,
            status: Status::Critical,
            at: at(9),
        });
        AlertRecord {
            subject: dependency.map_or(Subject::Target(target.clone()), |name| Subject::dependency(&target, name)),
            state,
            status: Status::Critical,
            since: at(5),
            ended: None,
            traits: Arc::default(),
            title: "Database".to_owned(),
            message: None,
            object_link: None,
            ancestors: Vec::new(),
            changes: Vec::new(),
            flapping: None,
            acknowledged: Some(Acknowledgement { by: "me".to_owned(), at: at(8), status: Status::Critical }),
            suppressed_by: None,
            silenced_by: None,
            notified: notified.collect(),
        }
    }

    #[test]
    fn an_alert_survives_the_way_to_another_device() {
        for dependency in [None, Some("db")] {
            let alert = record(dependency, AlertState::Firing, &[("ops", AlertEvent::Firing)]);
            let (sent, omitted) =
                OpenAlerts::fitting("a", 3, OpenAlert::from_record(&alert, |_| false).into_iter().collect());
            let mut received: OpenAlerts = decode(&encode(&sent).unwrap()).unwrap();
            assert_eq!((omitted, received.alerts.len(), received.term), (0, 1, 3));
            assert_eq!(received.alerts.remove(0).into_record(), Some(alert));
        }
    }

    #[test]
    fn what_receivers_may_have_open_is_handed_over() {
        use AlertEvent::{Firing, Flapping, Resolved};
        type Case<'a> = (AlertState, &'a [(&'a str, AlertEvent)], Option<&'a str>);
        // The messages to `pager` wait.
        let cases: [Case<'_>; 10] = [
            (AlertState::Firing, &[], Some("")),
            (AlertState::Firing, &[("ops", Firing), ("pager", Firing)], Some("ops firing critical, pager firing ok")),
            (AlertState::Firing, &[("ops", Flapping)], Some("ops flapping critical")),
            (AlertState::Firing, &[("ops", Resolved), ("pager", Resolved)], Some("pager firing ok")),
            (AlertState::Pending, &[("ops", Firing)], Some("ops firing critical")),
            (AlertState::Pending, &[], None),
            (AlertState::Resolved, &[("ops", Firing)], Some("ops firing critical")),
            (AlertState::Resolved, &[("ops", Resolved)], None),
            (AlertState::Resolved, &[("pager", Resolved)], Some("pager firing ok")),
            (AlertState::Resolved, &[], None),
        ];
        for (state, channels, expected) in cases {
            let open = OpenAlert::from_record(&record(Some("db"), state, channels), |channel| channel == "pager");
            let notified = open.map(|open| {
                let shown = |last: &NotifiedWire| format!("{} {} {}", last.channel, last.event, last.status);
                open.notified.iter().map(shown).collect::<Vec<_>>().join(", ")
            });
            assert_eq!(notified.as_deref(), expected, "{state:?} {channels:?}");
        }
        let ended = Some((Timestamp::from_millis(9), Resolution::HandedOver));
        let mut elsewhere = record(Some("db"), AlertState::Resolved, &[("ops", Firing)]);
        elsewhere.ended = ended;
        assert_eq!(OpenAlert::from_record(&elsewhere, |_| false), None);
    }

    #[test]
    fn of_too_many_alerts_the_worst_and_oldest_fit() {
        let alert = |number: i64, status: Status| OpenAlert {
            dependency: Some(format!("{number:0>200}")),
            since: number,
            status: status.as_str().to_owned(),
            ..OpenAlert::from_record(&record(Some("db"), AlertState::Firing, &[]), |_| false).unwrap()
        };
        let mut alerts: Vec<OpenAlert> = (0..900).map(|number| alert(number, Status::Warning)).collect();
        alerts.push(alert(9000, Status::Critical));
        alerts.push(OpenAlert { title: "x".repeat(LONGEST + 1), ..alert(0, Status::Critical) });
        let (sent, omitted) = OpenAlerts::fitting("a", u64::MAX, alerts);
        let bytes = encode(&sent).unwrap();
        assert!(bytes.len() > LARGEST_ALERTS - 600 && omitted + sent.alerts.len() == 902, "{omitted}");
        assert!(
            sent.alerts.iter().any(|alert| alert.since == 9000) && sent.alerts.iter().all(|alert| alert.since != 899)
        );
        let broken = OpenAlerts { owner: "a.b".to_owned(), ..sent.clone() };
        assert_eq!(encode(&broken), Err(WireError::Name("a.b".to_owned())));
        let wrong = |change: fn(&mut OpenAlert)| {
            let mut alert = sent.alerts[0].clone();
            change(&mut alert);
            alert.into_record()
        };
        assert_eq!(wrong(|alert| alert.status = "broken".to_owned()), None);
        assert_eq!(wrong(|alert| alert.status = "ok".to_owned()), None);
        assert_eq!(wrong(|alert| alert.target = "a b/c".to_owned()), None);
    }
}
