//! The texts of a notification.

use crate::alert::Alert;
use model::{
    AlertEvent, AlertRecord, Before, Class, NotifiedAlert, Resolution, Status, Subject, Timestamp, hex, short_duration,
};
use sha2::{Digest, Sha256};

/// Bytes of a fingerprint: two alerts have the same one with a probability that can be neglected.
const FINGERPRINT: usize = 16;

/// The facts that a message needs in addition to its alert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub installation: &'a str,
    pub address: Option<&'a str>,
    pub channel: &'a str,
    pub at: Timestamp,
}

/// Returns the identity of an alert for receivers. It stays the same when another device of a fleet takes over a
/// target.
pub(crate) fn fingerprint(installation: &str, AlertRecord { subject, traits, .. }: &AlertRecord) -> String {
    let dependency = subject.dependency_name().unwrap_or_default();
    let shared = traits.shared_by.as_ref().map(|deployment| format!("deployment\0{deployment}"));
    let owner = shared.as_deref().unwrap_or(installation);
    let text = [owner, subject.class().as_str(), subject.name(), dependency].join("\0");
    hex(&Sha256::digest(text)[..FINGERPRINT])
}

/// Describes an alert for a message.
pub(crate) fn describe(alert: &Alert, event: AlertEvent, suppresses: u32, frame: Frame<'_>) -> NotifiedAlert {
    let record = &alert.record;
    let is_over = event == AlertEvent::Resolved;
    NotifiedAlert {
        fingerprint: fingerprint(frame.installation, record),
        event,
        subject: record.subject.clone(),
        status: if is_over { Status::Ok } else { record.status },
        target_name: record.traits.name.clone(),
        kind: record.traits.kind.clone(),
        title: record.title.clone(),
        summary: summary(record, event, frame.at),
        since: record.since,
        resolved_at: record.ended.map(|(at, _)| at),
        labels: record.traits.labels.clone(),
        link: frame.address.map(|address| link(address, &record.subject)),
        object_link: record.object_link.clone(),
        suppresses,
        before: alert.last_notified(frame.channel).map_or(Before::Nothing, |last| Before::Message(last.clone())),
    }
}

fn link(address: &str, subject: &Subject) -> String {
    match subject {
        Subject::Dependency { target, .. } | Subject::Target(target) => format!("{address}/targets/{target}"),
        Subject::Other(Class::Plugin, _) => format!("{address}/plugins"),
        Subject::Other(Class::Deployment | Class::Device, _) => format!("{address}/fleet"),
        Subject::Other(..) => format!("{address}/alerts"),
    }
}

fn summary(record: &AlertRecord, event: AlertEvent, at: Timestamp) -> String {
    let (message, since) = (record.message.as_deref(), record.since);
    let wrong = match (message, &record.subject) {
        (Some(message), Subject::Target(_)) if record.status == Status::Critical => {
            format!("cannot be polled: {message}")
        }
        (Some(message), _) => message.to_owned(),
        (None, Subject::Target(_)) if record.status == Status::Critical => "cannot be polled".to_owned(),
        (None, _) => record.status.as_str().to_owned(),
    };
    match event {
        AlertEvent::Firing | AlertEvent::Test => wrong,
        AlertEvent::Repeated => format!("still, for {}: {wrong}", short_duration(at.since(since))),
        AlertEvent::Flapping => format!("fires and resolves repeatedly; silent until it is stable. Last: {wrong}"),
        AlertEvent::Resolved => {
            let (end, resolution) = record.ended.unwrap_or((at, Resolution::Recovered));
            let lasted = short_duration(end.since(since));
            match resolution {
                Resolution::Recovered => format!("recovered after {lasted}"),
                Resolution::Eased => format!("only a warning now, after {lasted}"),
                Resolution::Skipped => format!("over because its check is skipped now, after {lasted}"),
                Resolution::Missing => {
                    format!("over because it is no longer reported and was dismissed, after {lasted}")
                }
                Resolution::Gone => format!("over because it was removed, after {lasted}"),
                Resolution::Removed => {
                    let noun = if record.subject.class() == Class::Channel { "channel" } else { "target" };
                    format!("over because the {noun} was removed, after {lasted}")
                }
                Resolution::Disabled => format!("over because it was disabled, after {lasted}"),
                Resolution::HandedOver => format!("over here because another device polls the target, after {lasted}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Now;
    use model::{Moment, TargetId, TargetTraits};
    use std::sync::Arc;

    #[test]
    fn an_alert_of_a_target_that_devices_share_has_the_same_identity_on_each() {
        let identity = |device: &str, shared_by: Option<&str>, id: &str| {
            let now = Now { moment: Moment::START, wall: Timestamp::from_millis(0) };
            let mut alert = Alert::new(Subject::dependency(&TargetId::new(id).unwrap(), "db"), now);
            let shared_by = shared_by.map(str::to_owned);
            alert.record_mut().traits = Arc::new(TargetTraits { shared_by, ..TargetTraits::default() });
            fingerprint(device, &alert.record)
        };
        let first = identity("one", Some("shops"), "a");
        assert_eq!(first, identity("two", Some("shops"), "a"));
        assert_ne!(first, identity("one", Some("others"), "a"));
        assert_ne!(first, identity("one", Some("shops"), "b"));
        assert_ne!(identity("one", None, "a"), identity("two", None, "a"));
    }
}
