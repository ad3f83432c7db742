//! Table `alert`: alerts, pending, firing and resolved.
//!
//! The columns identify an alert; the rest of its record is JSON.

use crate::tables::{delivery, plugin_value};
use model::{
    Acknowledgement, AlertChange, AlertEvent, AlertRecord, AlertState, Class, LastNotified, Resolution, Status,
    Subject, TargetTraits, Timestamp,
};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) const V11: &str = "
CREATE TABLE alert (
    class TEXT NOT NULL,
    name TEXT NOT NULL,
    dependency TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (class, name, dependency)
) STRICT, WITHOUT ROWID;
";

/// A record without its subject. Times are milliseconds since the epoch. Field names appear in the database and must
/// not change.
#[derive(Serialize, Deserialize)]
struct RecordWire {
    state: String,
    status: String,
    since: i64,
    ended: Option<(i64, String)>,
    target_name: String,
    kind: String,
    labels: Vec<(String, String)>,
    #[serde(default)]
    shared_by: Option<String>,
    title: String,
    message: Option<String>,
    #[serde(default)]
    object_link: Option<String>,
    ancestors: Vec<String>,
    changes: Vec<i64>,
    flapping: Option<i64>,
    acknowledged: Option<AcknowledgementWire>,
    suppressed_by: Option<SubjectWire>,
    silenced_by: Option<String>,
    notified: Vec<NotifiedWire>,
}

#[derive(Serialize, Deserialize)]
struct AcknowledgementWire {
    by: String,
    at: i64,
    status: String,
}

#[derive(Serialize, Deserialize)]
struct NotifiedWire {
    channel: String,
    event: String,
    status: String,
    at: i64,
}

/// Class, name and dependency.
type SubjectWire = (String, String, String);

fn wire_of(subject: &Subject) -> SubjectWire {
    let dependency = subject.dependency_name().unwrap_or_default();
    (subject.class().as_str().to_owned(), subject.name().to_owned(), dependency.to_owned())
}

fn subject((class, name, dependency): &SubjectWire) -> Option<Subject> {
    Subject::new(Class::from_word(class)?, name, dependency).ok()
}

impl From<&AlertRecord> for RecordWire {
    fn from(record: &AlertRecord) -> Self {
        let acknowledged = record.acknowledged.as_ref().map(|held| AcknowledgementWire {
            by: held.by.clone(),
            at: held.at.as_millis(),
            status: held.status.as_str().to_owned(),
        });
        let notified = record.notified.iter().map(|last| NotifiedWire {
            channel: last.channel.clone(),
            event: last.event.as_str().to_owned(),
            status: last.status.as_str().to_owned(),
            at: last.at.as_millis(),
        });
        Self {
            state: record.state.as_str().to_owned(),
            status: record.status.as_str().to_owned(),
            since: record.since.as_millis(),
            ended: record.ended.map(|(at, why)| (at.as_millis(), why.as_str().to_owned())),
            target_name: record.traits.name.clone(),
            kind: record.traits.kind.clone(),
            labels: record.traits.labels.clone(),
            shared_by: record.traits.shared_by.clone(),
            title: record.title.clone(),
            message: record.message.clone(),
            object_link: record.object_link.clone(),
            ancestors: record.ancestors.clone(),
            changes: record.changes.iter().map(|at| at.as_millis()).collect(),
            flapping: record.flapping.map(Timestamp::as_millis),
            acknowledged,
            suppressed_by: record.suppressed_by.as_ref().map(wire_of),
            silenced_by: record.silenced_by.clone(),
            notified: notified.collect(),
        }
    }
}

impl RecordWire {
    /// Returns `None` if another version wrote a value that this one does not know.
    fn restore(self, subject_of: Subject) -> Option<AlertRecord> {
        let acknowledged = |held: AcknowledgementWire| {
            let (at, status) = (Timestamp::from_millis(held.at), Status::from_word(&held.status)?);
            Some(Acknowledgement { by: held.by, at, status })
        };
        let notified = |last: NotifiedWire| {
            let (event, status) = (AlertEvent::from_word(&last.event)?, Status::from_word(&last.status)?);
            Some(LastNotified { channel: last.channel, event, status, at: Timestamp::from_millis(last.at) })
        };
        let ended = |(at, why): (i64, String)| Some((Timestamp::from_millis(at), Resolution::from_word(&why)?));
        Some(AlertRecord {
            subject: subject_of,
            state: AlertState::from_word(&self.state)?,
            status: Status::from_word(&self.status)?,
            since: Timestamp::from_millis(self.since),
            ended: self.ended.map_or(Some(None), |end| ended(end).map(Some))?,
            traits: Arc::new(TargetTraits {
                name: self.target_name,
                kind: self.kind,
                labels: self.labels,
                shared_by: self.shared_by,
            }),
            title: self.title,
            message: self.message,
            object_link: self.object_link,
            ancestors: self.ancestors,
            changes: self.changes.into_iter().map(Timestamp::from_millis).collect(),
            flapping: self.flapping.map(Timestamp::from_millis),
            acknowledged: self.acknowledged.and_then(acknowledged),
            suppressed_by: self.suppressed_by.as_ref().and_then(subject),
            silenced_by: self.silenced_by,
            notified: self.notified.into_iter().map(notified).collect::<Option<_>>()?,
        })
    }
}

/// Applies a change.
pub(crate) fn apply(connection: &Connection, change: &AlertChange) -> rusqlite::Result<()> {
    match change {
        AlertChange::Save(record) => {
            let (class, name, dependency) = wire_of(&record.subject);
            let json = serde_json::to_string(&RecordWire::from(&**record))
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let sql = "INSERT INTO alert (class, name, dependency, record) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (class, name, dependency) DO UPDATE SET record = excluded.record";
            connection.prepare_cached(sql)?.execute(params![class, name, dependency, json])?;
        }
        AlertChange::Values { channel, kind, values } => {
            plugin_value::write_channel(connection, channel, kind.as_str(), values)?;
        }
        AlertChange::ForgetValues(channel) => plugin_value::delete_channel(connection, channel)?,
        AlertChange::Forget(subject) => {
            let (class, name, dependency) = wire_of(subject);
            let sql = "DELETE FROM alert WHERE class = ?1 AND name = ?2 AND dependency = ?3";
            connection.prepare_cached(sql)?.execute(params![class, name, dependency])?;
        }
        AlertChange::Deliver(delivery) => delivery::save(connection, delivery)?,
    }
    Ok(())
}

/// Returns all alerts. Rows that this version cannot read are left out: their alerts begin again.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<AlertRecord>> {
    let mut statement = connection.prepare_cached("SELECT class, name, dependency, record FROM alert")?;
    let mut rows = statement.query([])?;
    let mut alerts = Vec::new();
    while let Some(row) = rows.next()? {
        let key = (row.get(0)?, row.get(1)?, row.get(2)?);
        let wire: Option<RecordWire> = serde_json::from_str(&row.get::<_, String>(3)?).ok();
        match subject(&key).zip(wire).and_then(|(subject, wire)| wire.restore(subject)) {
            Some(record) => alerts.push(record),
            None => tracing::warn!("the stored alert {} {}{} cannot be read and begins again", key.0, key.1, key.2),
        }
    }
    Ok(alerts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TargetId;

    #[test]
    fn alerts_are_stored_replaced_and_deleted() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(V11).unwrap();
        let at = Timestamp::from_millis;
        let target = TargetId::new("a").unwrap();
        let mut record = AlertRecord {
            subject: Subject::dependency(&target, "db"),
            state: AlertState::Firing,
            status: Status::Critical,
            since: at(5),
            ended: None,
            traits: Arc::new(TargetTraits {
                name: "A".to_owned(),
                kind: "http".to_owned(),
                labels: vec![("site".to_owned(), "zurich".to_owned())],
                shared_by: Some("shops".to_owned()),
            }),
            title: "Database".to_owned(),
            message: Some("gone".to_owned()),
            object_link: Some("http://b".to_owned()),
            ancestors: vec!["node".to_owned()],
            changes: vec![at(6)],
            flapping: Some(at(7)),
            acknowledged: Some(Acknowledgement { by: "me".to_owned(), at: at(8), status: Status::Critical }),
            suppressed_by: Some(Subject::Target(target)),
            silenced_by: Some("s".to_owned()),
            notified: vec![LastNotified {
                channel: "ops".to_owned(),
                event: AlertEvent::Firing,
                status: Status::Critical,
                at: at(9),
            }],
        };
        let other = AlertRecord { subject: Subject::Other(Class::Plugin, "pve".into()), ..record.clone() };
        apply(&connection, &AlertChange::Save(Arc::new(other.clone()))).unwrap();
        for ended in [None, Some((at(10), Resolution::Missing))] {
            record.ended = ended;
            apply(&connection, &AlertChange::Save(Arc::new(record.clone()))).unwrap();
            assert_eq!(all(&connection).unwrap(), [record.clone(), other.clone()]);
        }
        apply(&connection, &AlertChange::Forget(record.subject.clone())).unwrap();
        assert_eq!(all(&connection).unwrap(), [other]);
    }
}
