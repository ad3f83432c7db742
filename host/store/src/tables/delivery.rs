//! Table `delivery`: notifications that wait for their delivery, and what became of earlier ones.
//!
//! The columns choose deliveries; the notification is JSON.

use model::{
    AlertEvent, AlertProgress, Before, Class, Delivery, DeliveryFilter, DeliveryState, LastNotified, Notification,
    NotifiedAlert, Status, Subject, Timestamp, UnlistedAlert,
};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

pub(crate) const V12: &str = "
CREATE TABLE delivery (
    number INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    last_attempt INTEGER,
    next_attempt INTEGER,
    error TEXT,
    notification TEXT NOT NULL
) STRICT;
CREATE INDEX delivery_waiting ON delivery (number) WHERE state = 'waiting';
";

/// The outcomes of single alerts, as a JSON array of fingerprints and reasons.
pub(crate) const V15: &str = "ALTER TABLE delivery ADD COLUMN progress TEXT NOT NULL DEFAULT '[]';";

/// The number of deliveries that are kept once they do not wait any more.
const KEPT: i64 = 10_000;

/// A notification without its number and channel. Times are milliseconds since the epoch. Field names appear in the
/// database and must not change.
#[derive(Serialize, Deserialize)]
struct NotificationWire {
    id: String,
    route: String,
    group: Vec<(String, String)>,
    alerts: Vec<AlertWire>,
    omitted: u32,
    /// Not stored any more once nothing can be sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unlisted: Vec<UnlistedWire>,
    link: Option<String>,
}

/// Class, name and dependency.
type SubjectWire = (String, String, String);

#[derive(Serialize, Deserialize)]
struct AlertWire {
    fingerprint: String,
    event: String,
    subject: SubjectWire,
    status: String,
    target_name: String,
    kind: String,
    title: String,
    summary: String,
    since: i64,
    resolved_at: Option<i64>,
    labels: Vec<(String, String)>,
    link: Option<String>,
    #[serde(default)]
    object_link: Option<String>,
    suppresses: u32,
    #[serde(default)]
    before: BeforeWire,
}

#[derive(Serialize, Deserialize)]
struct UnlistedWire {
    fingerprint: String,
    event: String,
    subject: SubjectWire,
    #[serde(default)]
    before: BeforeWire,
}

/// The last message before this one; an earlier version did not store it.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BeforeWire {
    #[default]
    Unknown,
    Nothing,
    Message {
        event: String,
        status: String,
        at: i64,
    },
}

impl From<&Before> for BeforeWire {
    fn from(before: &Before) -> Self {
        match before {
            Before::Unknown => Self::Unknown,
            Before::Nothing => Self::Nothing,
            Before::Message(LastNotified { event, status, at, .. }) => Self::Message {
                event: event.as_str().to_owned(),
                status: status.as_str().to_owned(),
                at: at.as_millis(),
            },
        }
    }
}

impl BeforeWire {
    fn restore(self, channel: &str) -> Option<Before> {
        Some(match self {
            Self::Unknown => Before::Unknown,
            Self::Nothing => Before::Nothing,
            Self::Message { event, status, at } => Before::Message(LastNotified {
                channel: channel.to_owned(),
                event: AlertEvent::from_word(&event)?,
                status: Status::from_word(&status)?,
                at: Timestamp::from_millis(at),
            }),
        })
    }
}

fn subject_wire(subject: &Subject) -> SubjectWire {
    let dependency = subject.dependency_name().unwrap_or_default().to_owned();
    (subject.class().as_str().to_owned(), subject.name().to_owned(), dependency)
}

fn restored_subject((class, name, dependency): &SubjectWire) -> Option<Subject> {
    Subject::new(Class::from_word(class)?, name, dependency).ok()
}

impl From<&UnlistedAlert> for UnlistedWire {
    fn from(alert: &UnlistedAlert) -> Self {
        Self {
            fingerprint: alert.fingerprint.clone(),
            event: alert.event.as_str().to_owned(),
            subject: subject_wire(&alert.subject),
            before: (&alert.before).into(),
        }
    }
}

impl UnlistedWire {
    /// As [`AlertWire::restore`].
    fn restore(self, channel: &str) -> Option<UnlistedAlert> {
        Some(UnlistedAlert {
            fingerprint: self.fingerprint,
            event: AlertEvent::from_word(&self.event)?,
            subject: restored_subject(&self.subject)?,
            before: self.before.restore(channel)?,
        })
    }
}

impl From<&NotifiedAlert> for AlertWire {
    fn from(alert: &NotifiedAlert) -> Self {
        Self {
            fingerprint: alert.fingerprint.clone(),
            event: alert.event.as_str().to_owned(),
            subject: subject_wire(&alert.subject),
            status: alert.status.as_str().to_owned(),
            target_name: alert.target_name.clone(),
            kind: alert.kind.clone(),
            title: alert.title.clone(),
            summary: alert.summary.clone(),
            since: alert.since.as_millis(),
            resolved_at: alert.resolved_at.map(Timestamp::as_millis),
            labels: alert.labels.clone(),
            link: alert.link.clone(),
            object_link: alert.object_link.clone(),
            suppresses: alert.suppresses,
            before: (&alert.before).into(),
        }
    }
}

impl AlertWire {
    /// Returns `None` if another version wrote a value that this one does not know.
    fn restore(self, channel: &str) -> Option<NotifiedAlert> {
        Some(NotifiedAlert {
            fingerprint: self.fingerprint,
            event: AlertEvent::from_word(&self.event)?,
            subject: restored_subject(&self.subject)?,
            status: Status::from_word(&self.status)?,
            target_name: self.target_name,
            kind: self.kind,
            title: self.title,
            summary: self.summary,
            since: Timestamp::from_millis(self.since),
            resolved_at: self.resolved_at.map(Timestamp::from_millis),
            labels: self.labels,
            link: self.link,
            object_link: self.object_link,
            suppresses: self.suppresses,
            before: self.before.restore(channel)?,
        })
    }
}

/// Stores a delivery, in place of an earlier state of it.
pub(crate) fn save(connection: &Connection, delivery: &Delivery) -> rusqlite::Result<()> {
    let Delivery { notification, created, state, attempts, last_attempt, next_attempt, error, progress } = delivery;
    let number = i64::try_from(notification.number).unwrap_or(i64::MAX);
    let may_be_sent_again = matches!(state, DeliveryState::Waiting | DeliveryState::Undeliverable);
    let unlisted = if may_be_sent_again { &notification.unlisted[..] } else { &[] };
    let wire = NotificationWire {
        id: notification.id.clone(),
        route: notification.route.clone(),
        group: notification.group.clone(),
        alerts: notification.alerts.iter().map(AlertWire::from).collect(),
        omitted: notification.omitted,
        unlisted: unlisted.iter().map(UnlistedWire::from).collect(),
        link: notification.link.clone(),
    };
    let json = serde_json::to_string(&wire).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let progress: Vec<(&str, Option<&str>)> =
        progress.iter().map(|alert| (alert.fingerprint.as_str(), alert.refused.as_deref())).collect();
    let progress =
        serde_json::to_string(&progress).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let millis = |at: &Option<Timestamp>| at.map(Timestamp::as_millis);
    let sql = "INSERT INTO delivery (number, channel, state, created, attempts, last_attempt, next_attempt, error, notification, progress)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
               ON CONFLICT (number) DO UPDATE SET state = ?3, created = ?4, attempts = ?5, last_attempt = ?6, next_attempt = ?7,
                                                  error = ?8, notification = ?9, progress = ?10";
    connection.prepare_cached(sql)?.execute(params![
        number,
        notification.channel,
        state.as_str(),
        created.as_millis(),
        attempts,
        millis(last_attempt),
        millis(next_attempt),
        error,
        json,
        progress
    ])?;
    if *state == DeliveryState::Waiting && *attempts == 0 {
        let sql = "DELETE FROM delivery WHERE number <= ?1 AND state != 'waiting'";
        connection.prepare_cached(sql)?.execute([number - KEPT])?;
    }
    Ok(())
}

const COLUMNS: &str =
    "number, channel, state, created, attempts, last_attempt, next_attempt, error, notification, progress";

/// Reads a row. `None` if another version wrote it in a form that this one does not know.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<Delivery>> {
    let number: i64 = row.get(0)?;
    let wire: Option<NotificationWire> = serde_json::from_str(&row.get::<_, String>(8)?).ok();
    let (channel, state): (String, String) = (row.get(1)?, row.get(2)?);
    let (last, next): (Option<i64>, Option<i64>) = (row.get(5)?, row.get(6)?);
    let (created, attempts, error) = (row.get(3)?, row.get(4)?, row.get(7)?);
    let progress: Vec<(String, Option<String>)> = serde_json::from_str(&row.get::<_, String>(9)?).unwrap_or_default();
    let of_alert = |(fingerprint, refused)| AlertProgress { fingerprint, refused };
    let restored = || {
        let wire = wire?;
        let alerts = wire.alerts.into_iter().map(|alert| alert.restore(&channel)).collect::<Option<_>>()?;
        let unlisted = wire.unlisted.into_iter().map(|alert| alert.restore(&channel)).collect::<Option<_>>()?;
        Some(Delivery {
            notification: Notification {
                number: u64::try_from(number).ok()?,
                id: wire.id,
                channel,
                route: wire.route,
                group: wire.group,
                alerts,
                omitted: wire.omitted,
                unlisted,
                link: wire.link,
            },
            created: Timestamp::from_millis(created),
            state: DeliveryState::from_word(&state)?,
            attempts,
            last_attempt: last.map(Timestamp::from_millis),
            next_attempt: next.map(Timestamp::from_millis),
            error,
            progress: progress.into_iter().map(of_alert).collect(),
        })
    };
    let restored = restored();
    if restored.is_none() {
        tracing::warn!("the stored delivery {number} cannot be read and is left out");
    }
    Ok(restored)
}

/// Returns the deliveries that wait, the oldest first, and the number of the last one of all.
pub(crate) fn waiting(connection: &Connection) -> rusqlite::Result<(Vec<Delivery>, u64)> {
    let sql = format!("SELECT {COLUMNS} FROM delivery WHERE state = 'waiting' ORDER BY number");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let last: i64 = connection.query_row("SELECT coalesce(max(number), 0) FROM delivery", [], |row| row.get(0))?;
    Ok((rows.into_iter().flatten().collect(), u64::try_from(last).unwrap_or(0)))
}

/// Returns at most `limit` deliveries, the newest first.
pub(crate) fn page(connection: &Connection, filter: &DeliveryFilter, limit: u32) -> rusqlite::Result<Vec<Delivery>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM delivery WHERE (?1 IS NULL OR channel = ?1) AND (?2 IS NULL OR state = ?2) AND number < ?3
         ORDER BY number DESC LIMIT ?4"
    );
    let before = filter.before.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(&sql)?;
    let state = filter.state.map(DeliveryState::as_str);
    let rows = statement.query_map(params![filter.channel, state, before, limit], read)?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Returns one delivery.
pub(crate) fn one(connection: &Connection, number: u64) -> rusqlite::Result<Option<Delivery>> {
    let next = DeliveryFilter { before: Some(number.saturating_add(1)), ..DeliveryFilter::default() };
    let found = page(connection, &next, 1)?.pop();
    Ok(found.filter(|delivery| delivery.notification.number == number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TargetId;

    fn delivery(number: u64) -> Delivery {
        let at = Timestamp::from_millis(5);
        let alert = NotifiedAlert {
            fingerprint: "f".to_owned(),
            event: AlertEvent::Firing,
            subject: Subject::dependency(&TargetId::new("shop").unwrap(), "db"),
            status: Status::Critical,
            target_name: "Shop".to_owned(),
            kind: "http".to_owned(),
            title: "Database".to_owned(),
            summary: "refused".to_owned(),
            since: at,
            resolved_at: Some(at),
            labels: vec![("site".to_owned(), "zurich".to_owned())],
            link: Some("http://a".to_owned()),
            object_link: Some("http://b".to_owned()),
            suppresses: 3,
            before: Before::Nothing,
        };
        let last = LastNotified { channel: "ops".to_owned(), event: AlertEvent::Flapping, status: Status::Warning, at };
        let unlisted = [Before::Unknown, Before::Message(last)].map(|before| UnlistedAlert {
            before,
            event: AlertEvent::Resolved,
            ..alert.clone().into()
        });
        let notification = Notification {
            number,
            id: format!("n-{number}"),
            channel: "ops".to_owned(),
            route: "route-1".to_owned(),
            group: vec![("target".to_owned(), "shop".to_owned())],
            alerts: vec![alert],
            omitted: 2,
            unlisted: unlisted.to_vec(),
            link: None,
        };
        Delivery::new(notification, at)
    }

    #[test]
    fn deliveries_are_stored_changed_chosen_and_deleted_when_they_are_old() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(V12).unwrap();
        connection.execute_batch(V15).unwrap();
        assert_eq!(waiting(&connection).unwrap(), (vec![], 0));
        for number in 1..=3 {
            save(&connection, &delivery(number)).unwrap();
        }
        let done = Delivery {
            state: DeliveryState::Delivered,
            attempts: 2,
            last_attempt: Some(Timestamp::from_millis(9)),
            error: Some("503".to_owned()),
            progress: [None, Some("refused")]
                .map(|why| AlertProgress { fingerprint: "f".to_owned(), refused: why.map(str::to_owned) })
                .to_vec(),
            ..delivery(2)
        };
        save(&connection, &done).unwrap();
        // Nothing of it can be sent again.
        let done = Delivery { notification: Notification { unlisted: Vec::new(), ..done.notification }, ..done };
        assert_eq!(waiting(&connection).unwrap(), (vec![delivery(1), delivery(3)], 3));
        let all = page(&connection, &DeliveryFilter::default(), 10).unwrap();
        assert_eq!(all, [delivery(3), done.clone(), delivery(1)]);
        let filter = DeliveryFilter { state: Some(DeliveryState::Waiting), before: Some(3), ..Default::default() };
        assert_eq!(page(&connection, &filter, 10).unwrap(), [delivery(1)]);
        let other = DeliveryFilter { channel: Some("mail".to_owned()), ..Default::default() };
        assert_eq!(page(&connection, &other, 10).unwrap(), []);
        assert_eq!(one(&connection, 2).unwrap(), Some(done));
        assert_eq!(one(&connection, 4).unwrap(), None);
        // Those that wait stay, however old they are.
        save(&connection, &delivery(2 + KEPT as u64)).unwrap();
        assert_eq!(one(&connection, 2).unwrap(), None);
        assert_eq!(one(&connection, 1).unwrap(), Some(delivery(1)));
    }
}
