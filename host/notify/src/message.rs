//! The texts of a notification.

use crate::alert::Alert;
use model::{
    AlertEvent, AlertRecord, Class, NotifiedAlert, Resolution, Status, Subject, Timestamp, hex, short_duration,
};
use sha2::{Digest, Sha256};

/// Bytes of a fingerprint: two alerts have the same one with a probability that can be neglected.
const FINGERPRINT: usize = 16;

/// The facts that a message needs in addition to its alert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub installation: &'a str,
    pub address: Option<&'a str>,
    pub at: Timestamp,
}

/// Returns the identity of an alert for receivers.
fn fingerprint(installation: &str, subject: &Subject) -> String {
    let dependency = subject.dependency_name().unwrap_or_default();
    let text = [installation, subject.class().as_str(), subject.name(), dependency].join("\0");
    hex(&Sha256::digest(text)[..FINGERPRINT])
}

/// Describes an alert for a message.
pub(crate) fn describe(alert: &Alert, event: AlertEvent, suppresses: u32, frame: Frame<'_>) -> NotifiedAlert {
    let record = &alert.record;
    let is_over = event == AlertEvent::Resolved;
    NotifiedAlert {
        fingerprint: fingerprint(frame.installation, &record.subject),
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
                Resolution::Missing => {
                    format!("over because it is no longer reported and was dismissed, after {lasted}")
                }
                Resolution::Gone => format!("over because it was removed, after {lasted}"),
                Resolution::Removed => {
                    let noun = if record.subject.class() == Class::Channel { "channel" } else { "target" };
                    format!("over because the {noun} was removed, after {lasted}")
                }
                Resolution::Disabled => format!("over because it was disabled, after {lasted}"),
            }
        }
    }
}
