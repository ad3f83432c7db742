//! Tables `fleet_kept` and `fleet_place`: the records that an operator has read from the broker, and how far.

use model::{KeptPlace, KeptRecord};
use rusqlite::{Connection, params};

pub(crate) const V10: &str = "
CREATE TABLE fleet_kept (
    stream TEXT NOT NULL,
    key TEXT NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (stream, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE fleet_place (
    stream TEXT PRIMARY KEY,
    incarnation TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    mark TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Keeps records, and the place that they reach, if there is one.
pub(crate) fn keep(connection: &Connection, records: &[KeptRecord], place: Option<&KeptPlace>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO fleet_kept (stream, key, payload) VALUES (?1, ?2, ?3)
         ON CONFLICT (stream, key) DO UPDATE SET payload = ?3",
    )?;
    for KeptRecord { stream, key, payload } in records {
        statement.execute(params![stream, key, payload])?;
    }
    let Some(KeptPlace { stream, incarnation, sequence, mark }) = place else { return Ok(()) };
    let sql = "INSERT OR REPLACE INTO fleet_place (stream, incarnation, sequence, mark) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![stream, incarnation, sequence.cast_signed(), mark]).map(drop)
}

/// Calls a function with each record.
pub(crate) fn each(connection: &Connection, mut each: impl FnMut(KeptRecord)) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT stream, key, payload FROM fleet_kept")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(KeptRecord { stream: row.get(0)?, key: row.get(1)?, payload: row.get(2)? });
    }
    Ok(())
}

/// Returns the place in each stream.
pub(crate) fn places(connection: &Connection) -> rusqlite::Result<Vec<KeptPlace>> {
    let mut statement = connection.prepare_cached("SELECT stream, incarnation, sequence, mark FROM fleet_place")?;
    let place = statement.query_map([], |row| {
        let sequence = row.get::<_, i64>(2)?.cast_unsigned();
        Ok(KeptPlace { stream: row.get(0)?, incarnation: row.get(1)?, sequence, mark: row.get(3)? })
    })?;
    place.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_of_each_key_is_kept_and_the_last_place() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(V10).unwrap();
        let record = |stream: &str, key: &str, payload: &[u8]| KeptRecord {
            stream: stream.to_owned(),
            key: key.to_owned(),
            payload: payload.to_vec(),
        };
        let place = |sequence, mark: &str| KeptPlace {
            stream: "a".to_owned(),
            incarnation: "i".to_owned(),
            sequence,
            mark: mark.to_owned(),
        };
        keep(&connection, &[record("a", "k", b"1"), record("b", "k", b"2")], None).unwrap();
        assert_eq!(places(&connection).unwrap(), []);
        keep(&connection, &[record("a", "k", b"3")], Some(&place(7, "m"))).unwrap();
        keep(&connection, &[], Some(&place(9, "n"))).unwrap();
        let mut found = Vec::new();
        each(&connection, |record| found.push(record)).unwrap();
        assert_eq!(found, [record("a", "k", b"3"), record("b", "k", b"2")]);
        assert_eq!(places(&connection).unwrap(), [place(9, "n")]);
    }
}
