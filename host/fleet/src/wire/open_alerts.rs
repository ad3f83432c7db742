//! The alerts of targets that one device polls at a time, for the device that polls them next.

use super::{Record, WireError, name, text};
use model::{Acknowledgement, AlertEvent, AlertRecord, AlertState, LastNotified, Status, Subject, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::Arc;

/// The maximum size of the alerts of a deployment in bytes.
pub const LARGEST_ALERTS: usize = 32 << 10;
/// The maximum length of a dependency's name, and of a title, in bytes.
const LONGEST: usize = 1024;

/// The alerts that are open for a deployment: `alerts.<deployment>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlerts {
    /// The device that wrote it.
    pub owner: String,
    /// The term of the lease under which that device polled.
    pub term: u64,
    /// The alerts.
    pub alerts: Vec<OpenAlert>,
}

/// An alert that fires. Times are milliseconds since 1970, by the clock of the device that observed it.
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
    /// Who acknowledged it, when, and the word of the status at that time.
    pub acknowledged: Option<(String, i64, String)>,
    /// The channels that took a message about it: name, word of the event, word of the status, time.
    pub notified: Vec<(String, String, String, i64)>,
}

impl OpenAlerts {
    /// Makes the record of as many of these alerts as fit into it, the worst and oldest first. Returns the number of
    /// those that do not.
    pub fn fitting((owner, term): (&str, u64), mut alerts: Vec<OpenAlert>) -> (Self, usize) {
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
    /// Describes an alert of a target that fires. The messages in `undelivered`, by channel, are not known to have
    /// reached their receivers. `None` if the alert is not of a target, or does not fire.
    pub fn of(alert: &AlertRecord, undelivered: impl Fn(&str) -> bool) -> Option<Self> {
        let target = alert.subject.target()?.to_string();
        let is_told = |last: &LastNotified| last.event != AlertEvent::Resolved;
        let is_open = match alert.state {
            AlertState::Firing => true,
            // It recovered and failed again, and receivers still have it open.
            AlertState::Pending => alert.notified.iter().any(is_told),
            AlertState::Resolved => false,
        };
        if !is_open {
            return None;
        }
        let word = |status: Status| status.as_str().to_owned();
        let taken = alert.notified.iter().filter(|last| is_told(last) && !undelivered(&last.channel));
        let notified = |last: &LastNotified| {
            (last.channel.clone(), last.event.as_str().to_owned(), word(last.status), last.at.as_millis())
        };
        let acknowledged = alert.acknowledged.as_ref();
        Some(Self {
            target,
            dependency: alert.subject.dependency_name().map(str::to_owned),
            status: word(alert.status),
            since: alert.since.as_millis(),
            title: alert.title[..alert.title.floor_char_boundary(LONGEST)].to_owned(),
            acknowledged: acknowledged.map(|held| (held.by.clone(), held.at.as_millis(), word(held.status))),
            notified: taken.map(notified).collect(),
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
            Some((by, when, status)) => Some(Acknowledgement { by, at: at(when), status: Status::from_word(&status)? }),
            None => None,
        };
        let notified = self.notified.into_iter().map(|(channel, event, status, when)| {
            let (event, status) = (AlertEvent::from_word(&event)?, Status::from_word(&status)?);
            Some(LastNotified { channel, event, status, at: at(when) })
        });
        let mut notified = notified.collect::<Option<Vec<_>>>()?;
        notified.sort_by(|one, other| one.channel.cmp(&other.channel));
        Some(AlertRecord {
            subject,
            state: AlertState::Firing,
            status: Status::from_word(&self.status)?,
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
        text(self.acknowledged.as_ref().map_or("", |(by, ..)| by), LONGEST, "operator")?;
        self.notified.iter().try_for_each(|(channel, ..)| text(channel, LONGEST, "channel"))
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
            let (sent, omitted) = OpenAlerts::fitting(("a", 3), OpenAlert::of(&alert, |_| false).into_iter().collect());
            let mut received: OpenAlerts = decode(&encode(&sent).unwrap()).unwrap();
            assert_eq!((omitted, received.alerts.len(), received.term), (0, 1, 3));
            assert_eq!(received.alerts.remove(0).into_record(), Some(alert));
        }
    }

    #[test]
    fn what_receivers_have_open_is_handed_over_with_the_channels_that_took_it() {
        use AlertEvent::{Firing, Flapping, Resolved};
        type Case<'a> = (AlertState, &'a [(&'a str, AlertEvent)], Option<&'a [&'a str]>);
        let cases: [Case<'_>; 7] = [
            (AlertState::Firing, &[], Some(&[])),
            (AlertState::Firing, &[("ops", Firing), ("pager", Firing)], Some(&["ops"])),
            (AlertState::Firing, &[("ops", Flapping)], Some(&["ops"])),
            (AlertState::Firing, &[("ops", Resolved)], Some(&[])),
            (AlertState::Pending, &[("ops", Firing)], Some(&["ops"])),
            (AlertState::Pending, &[], None),
            (AlertState::Resolved, &[("ops", Firing)], None),
        ];
        for (state, channels, expected) in cases {
            let open = OpenAlert::of(&record(Some("db"), state, channels), |channel| channel == "pager");
            let taken = open.as_ref().map(|open| open.notified.iter().map(|(channel, ..)| channel.as_str()).collect());
            assert_eq!(taken, expected.map(<[&str]>::to_vec), "{state:?} {channels:?}");
        }
    }

    #[test]
    fn of_too_many_alerts_the_worst_and_oldest_fit() {
        let alert = |number: i64, status: Status| OpenAlert {
            dependency: Some(format!("{number:0>200}")),
            since: number,
            status: status.as_str().to_owned(),
            ..OpenAlert::of(&record(Some("db"), AlertState::Firing, &[]), |_| false).unwrap()
        };
        let mut alerts: Vec<OpenAlert> = (0..200).map(|number| alert(number, Status::Warning)).collect();
        alerts.push(alert(900, Status::Critical));
        alerts.push(OpenAlert { title: "x".repeat(LONGEST + 1), ..alert(0, Status::Critical) });
        let (sent, omitted) = OpenAlerts::fitting(("a", u64::MAX), alerts);
        let bytes = encode(&sent).unwrap();
        assert!(bytes.len() > LARGEST_ALERTS - 600 && omitted + sent.alerts.len() == 202, "{omitted}");
        assert!(
            sent.alerts.iter().any(|alert| alert.since == 900) && sent.alerts.iter().all(|alert| alert.since != 199)
        );
        let broken = OpenAlerts { owner: "a.b".to_owned(), ..sent.clone() };
        assert_eq!(encode(&broken), Err(WireError::Name("a.b".to_owned())));
        let wrong = |change: fn(&mut OpenAlert)| {
            let mut alert = sent.alerts[0].clone();
            change(&mut alert);
            alert.into_record()
        };
        assert_eq!(wrong(|alert| alert.status = "broken".to_owned()), None);
        assert_eq!(wrong(|alert| alert.target = "a b/c".to_owned()), None);
    }
}
