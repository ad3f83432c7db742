//! Table `dependency`: the records of dependencies.

use model::{DependencyRecord, Json, Status, Timestamp};
use rusqlite::{Connection, Row, params};
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::time::Duration;

pub(crate) const V1: &str = "
CREATE TABLE dependency (
    target INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    name TEXT NOT NULL,
    canonical_name TEXT,
    title TEXT,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    skipped INTEGER NOT NULL,
    code INTEGER,
    description TEXT,
    impact TEXT,
    error TEXT,
    error_message TEXT,
    error_state TEXT,
    contact TEXT,
    check_details TEXT,
    parent TEXT,
    first_seen INTEGER NOT NULL,
    last_status_change INTEGER,
    missing_since INTEGER,
    PRIMARY KEY (target, name)
) STRICT, WITHOUT ROWID;
";

/// Properties that later versions of the contract with plugins have. `runs_on` is a JSON array of names.
pub(crate) const V14: &str = "
ALTER TABLE dependency ADD COLUMN runs_on TEXT NOT NULL DEFAULT '[]';
ALTER TABLE dependency ADD COLUMN independent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dependency ADD COLUMN link TEXT;
ALTER TABLE dependency ADD COLUMN valid_for_ms INTEGER;
UPDATE dependency SET runs_on = json_array(parent) WHERE parent IS NOT NULL;
ALTER TABLE dependency DROP COLUMN parent;
";

/// Writes the record of a dependency of the target with this number.
pub(crate) fn write(connection: &Connection, target: i64, record: &DependencyRecord) -> rusqlite::Result<()> {
    let reported = &record.reported;
    let json = |json: &Option<model::Json>| json.as_ref().map(|json| json.as_str().to_owned());
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO dependency (target, slot, name, canonical_name, title, type, status, skipped, code,
             description, impact, error, error_message, error_state, contact, check_details, runs_on, first_seen,
             last_status_change, missing_since, independent, link, valid_for_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
        )?
        .execute(params![
            target,
            record.slot,
            reported.name,
            record.canonical,
            reported.title,
            reported.kind,
            reported.status.as_str(),
            reported.skipped,
            reported.code,
            reported.description,
            reported.impact,
            json(&reported.error),
            reported.error_message,
            json(&record.error_state),
            json(&reported.contact),
            json(&reported.check_details),
            serde_json::to_string(&reported.runs_on).unwrap_or_else(|_| "[]".to_owned()),
            record.first_seen.as_millis(),
            record.last_status_change.map(Timestamp::as_millis),
            record.missing_since.map(Timestamp::as_millis),
            reported.independent,
            reported.link,
            reported.valid_for.map(|valid| i64::try_from(valid.as_millis()).unwrap_or(i64::MAX)),
        ])
        .map(drop)
}

/// Deletes a dependency.
pub(crate) fn delete(connection: &Connection, target: i64, name: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM dependency WHERE target = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.execute(params![target, name]).map(drop)
}

/// Returns the records of all targets, by target number.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<HashMap<i64, Vec<DependencyRecord>>> {
    let mut statement = connection.prepare(
        "SELECT target, slot, name, canonical_name, title, type, status, skipped, code, description, impact, error,
                error_message, error_state, contact, check_details, runs_on, first_seen, last_status_change, missing_since,
                independent, link, valid_for_ms
         FROM dependency",
    )?;
    let mut by_target: HashMap<i64, Vec<DependencyRecord>> = HashMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let records = by_target.entry(row.get(0)?).or_default();
        records.push(record(row, records.last())?);
    }
    Ok(by_target)
}

/// Reads a row. A contact that is that of the record `before` is shared with it.
fn record(row: &Row<'_>, before: Option<&DependencyRecord>) -> rusqlite::Result<DependencyRecord> {
    // Earlier versions stored JSON that cannot be parsed.
    let sound = |text: &&str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    let json = |column| {
        let text = row.get_ref(column)?.as_str_or_null()?.filter(sound);
        Ok::<_, rusqlite::Error>(text.map(Json::checked))
    };
    let contact = match before.and_then(|before| before.reported.contact.as_ref()) {
        Some(contact) if row.get_ref(14)?.as_str_or_null()? == Some(contact.as_str()) => Some(contact.clone()),
        _ => json(14)?,
    };
    let status = Status::from_word(row.get_ref(6)?.as_str()?).unwrap_or(Status::Unknown);
    let reported = model::Dependency {
        title: row.get(4)?,
        kind: row.get(5)?,
        skipped: row.get(7)?,
        code: row.get(8)?,
        description: row.get(9)?,
        impact: row.get(10)?,
        error: json(11)?,
        error_message: row.get(12)?,
        contact,
        check_details: json(15)?,
        runs_on: serde_json::from_str(row.get_ref(16)?.as_str()?).unwrap_or_default(),
        independent: row.get(20)?,
        link: row.get::<_, Option<String>>(21)?.map(Into::into),
        valid_for: row.get::<_, Option<i64>>(22)?.and_then(|ms| Some(Duration::from_millis(u64::try_from(ms).ok()?))),
        ..model::Dependency::new(row.get::<_, String>(2)?, status)
    };
    Ok(DependencyRecord {
        slot: row.get(1)?,
        reported,
        canonical: row.get(3)?,
        error_state: json(13)?,
        first_seen: Timestamp::from_millis(row.get(17)?),
        last_status_change: row.get::<_, Option<i64>>(18)?.map(Timestamp::from_millis),
        missing_since: row.get::<_, Option<i64>>(19)?.map(Timestamp::from_millis),
    })
}
