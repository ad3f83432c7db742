//! Notifications of made-up alerts: of a test, and for authors of plugins.

use model::{AlertEvent, Before, Class, Notification, NotifiedAlert, Status, Subject, TargetId, Timestamp};
use std::time::Duration;

/// The end of the long summary, which is longer than most receivers show.
const AGAIN: &str = "; the connection was refused again";
/// How often it is repeated.
const TIMES: usize = 30;
/// The age of a made-up alert.
const AGE: Duration = Duration::from_secs(12 * 60);

/// The notification of a test, about the channel itself.
pub(crate) fn test_notification(channel: &str, now: Timestamp) -> Notification {
    let alert = NotifiedAlert {
        fingerprint: format!("test-{channel}"),
        event: AlertEvent::Test,
        subject: Subject::Other(Class::Channel, channel.into()),
        status: Status::Ok,
        target_name: channel.to_owned(),
        kind: String::new(),
        title: format!("channel {channel}"),
        summary: "this is a test of Polliwog: notifications of this channel arrive here".to_owned(),
        since: now,
        resolved_at: None,
        labels: Vec::new(),
        link: None,
        object_link: None,
        suppresses: 0,
        before: Before::Unknown,
    };
    notification(channel, alert, now)
}

/// A notification of an event, about this number of made-up dependencies of a made-up target. The summary of the second
/// alert is long.
pub fn sample_notification(channel: &str, (event, alerts): (AlertEvent, u32), now: Timestamp) -> Notification {
    if event == AlertEvent::Test {
        return test_notification(channel, now);
    }
    let mut notification = one_alert(channel, event, now);
    let first = notification.alerts[0].clone();
    for number in 2..=alerts {
        let long = if number == 2 { AGAIN.repeat(TIMES) } else { String::new() };
        let target = TargetId::new("shop").expect("the constant is an id");
        let dependency = format!("database-{number}");
        notification.alerts.push(NotifiedAlert {
            fingerprint: format!("5f0c2a9e1b7d4c3886e1a90d2f4{number:05x}"),
            subject: Subject::dependency(&target, dependency),
            title: format!("Database {number}"),
            summary: format!("{}{long}", first.summary),
            status: if number % 2 == 0 && first.status == Status::Critical { Status::Warning } else { first.status },
            suppresses: 0,
            ..first.clone()
        });
    }
    notification
}

fn one_alert(channel: &str, event: AlertEvent, now: Timestamp) -> Notification {
    let is_over = event == AlertEvent::Resolved;
    let target = TargetId::new("shop").expect("the constant is an id");
    let summary = match event {
        AlertEvent::Resolved => "recovered after 12 min",
        AlertEvent::Repeated => "still, for 12 min: connection refused",
        AlertEvent::Flapping => "fires and resolves repeatedly; silent until it is stable. Last: connection refused",
        AlertEvent::Firing | AlertEvent::Test => "connection refused",
    };
    let alert = NotifiedAlert {
        fingerprint: "5f0c2a9e1b7d4c3886e1a90d2f4b6c7d".to_owned(),
        event,
        subject: Subject::dependency(&target, "database"),
        status: if is_over { Status::Ok } else { Status::Critical },
        target_name: "Shop".to_owned(),
        kind: "http".to_owned(),
        title: "Database".to_owned(),
        summary: summary.to_owned(),
        since: now.before(AGE),
        resolved_at: is_over.then_some(now),
        labels: vec![("site".to_owned(), "zurich".to_owned())],
        link: Some("https://polliwog.example/targets/shop".to_owned()),
        object_link: Some("https://pve1.example:8006/#v1:0:=qemu%2F100".to_owned()),
        suppresses: if is_over { 0 } else { 2 },
        before: Before::Unknown,
    };
    notification(channel, alert, now)
}

fn notification(channel: &str, alert: NotifiedAlert, now: Timestamp) -> Notification {
    Notification {
        number: 0,
        id: format!("{}-{channel}-{}", alert.event.as_str(), now.as_millis()),
        channel: channel.to_owned(),
        route: String::new(),
        group: Vec::new(),
        alerts: vec![alert],
        omitted: 0,
        unlisted: Vec::new(),
        link: None,
    }
}
