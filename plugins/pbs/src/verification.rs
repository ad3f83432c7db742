//! Whether what was backed up can be read back, as far as it was verified.
//!
//! A list of snapshots is long and slow to make: it is asked for once an hour, and a datastore that did not answer in time is
//! left alone as one is whose groups did not come.

use crate::Look;
use crate::datastores::Store;
use crate::groups;
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Number, Text};
use proxmox::{Trouble, count, judged, list, moment, rhythm};
use serde::Deserialize;
use std::time::Duration;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// One entry of `/admin/datastore/S/snapshots`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Snapshot {
    backup_type: Field<Text>,
    backup_id: Field<Text>,
    backup_time: Field<Number>,
    verification: Verification,
}

/// Missing where a snapshot was never verified.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Verification {
    state: Field<Text>,
}

/// What was found in one datastore.
#[derive(Default)]
struct Found {
    all: usize,
    verified: usize,
    damaged: Vec<String>,
}

pub(crate) fn report(look: &mut Look, stores: &[Store]) {
    if !look.settings.verification {
        return;
    }
    for store in stores {
        let name = format!("verification/{}", store.name);
        if !store.readable || groups::is_held(&store.name) || !rhythm::is_due(&name) {
            look.report.keep(name);
            continue;
        }
        let found = read(look, &store.name);
        if let Err(trouble) = &found {
            groups::hold_back(&store.name, trouble);
        }
        let Some(found) = look.part((&name, &[]), found) else { continue };
        rhythm::looked(&name, PERIOD);
        let verdict = match found.damaged.len() {
            0 => (Status::Ok, None),
            damaged => {
                let are = if damaged == 1 { "is" } else { "are" };
                let why = format!("{} {are} damaged: {}", count(damaged, "snapshot"), list(&found.damaged));
                (Status::Critical, Some(why))
            }
        };
        let dependency = judged(name, "pbs-verification", verdict).with_parent(format!("datastore/{}", store.name));
        look.add(dependency.with_description(format!(
            "{} of {} were verified",
            found.verified,
            count(found.all, "snapshot")
        )));
    }
}

fn read(look: &mut Look, store: &str) -> Result<Found, Trouble> {
    let namespaces = groups::namespaces(look, store)?;
    let path = |ns: &String| format!("/admin/datastore/{store}/snapshots?ns={}", groups::encoded(ns));
    let answers = look.api.ask_all(namespaces.iter().map(path).collect());
    let mut found = Found::default();
    for answer in answers {
        let snapshots: Vec<Snapshot> = answer.list(&mut look.notes)?;
        found.all += snapshots.len();
        for snapshot in &snapshots {
            match snapshot.verification.state.get().map(|Text(state)| state.as_str()) {
                Some("ok") => found.verified += 1,
                Some("failed") => {
                    found.verified += 1;
                    found.damaged.push(snapshot.shown());
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

impl Snapshot {
    fn shown(&self) -> String {
        let word = |field: &Field<Text>| field.get().map_or("?", |Text(word)| word.as_str()).to_owned();
        let time = self.backup_time.get().and_then(|Number(time)| moment(*time)).unwrap_or_default();
        format!("{}/{} of {time}", word(&self.backup_type), word(&self.backup_id))
    }
}
