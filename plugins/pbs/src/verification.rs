//! Verification: whether snapshots can be read back, as far as they were verified.
//!
//! A list of snapshots is long and takes the server long. Each list is requested once an hour, one after the other, and
//! a poll requests only as many as leave time and room for the other checks. A datastore that did not answer in time is
//! not requested for a while, as in `groups`.

use crate::context::PollContext;
use crate::datastores::Store;
use crate::memory::Walk;
use crate::{backoff, groups};
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Number, Text};
use proxmox::{Error, Evaluation, Verdict, count, evaluated, list, moment, percent};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::time::Duration;

/// How often snapshots are checked.
const PERIOD: Duration = Duration::from_secs(60 * 60);
/// A check that could not read everything runs again after this time.
const AGAIN: Duration = Duration::from_secs(5 * 60);
/// How long an unfinished walk is remembered.
const WALK: Duration = Duration::from_secs(30 * 60);
/// The number of damaged snapshots that are named.
const NAMED: usize = 20;

/// The time that one poll may spend on lists. The last list may exceed it.
struct Budget {
    requests: u32,
    bytes: usize,
    time: Duration,
}

const EACH_POLL: Budget = Budget { requests: 50, bytes: 4 << 20, time: Duration::from_secs(4) };

/// One entry of `/admin/datastore/S/snapshots`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Snapshot {
    backup_type: Field<Text>,
    backup_id: Field<Text>,
    backup_time: Field<Number>,
    #[serde(deserialize_with = "verification")]
    verification: Verification,
}

/// Missing or null if a snapshot was never verified.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Verification {
    state: Field<Text>,
}

/// Reads a verification. Of one that is not an object, a text is its state, and any other value but null is a state
/// that is neither ok nor failed.
fn verification<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verification, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    let read = match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).map(|state| Verification { state }).ok(),
        Some(b'{') => serde_json::from_str(raw.get()).ok().or_else(|| {
            // Of two states, the worse counts.
            let has_failed = raw.get().to_ascii_lowercase().contains("\"failed\"");
            let state = Text(if has_failed { "failed" } else { "repeated" }.to_owned());
            Some(Verification { state: Field::Is(state) })
        }),
        Some(b'n') => None,
        _ => Some(Verification { state: Field::Odd(raw.get().to_owned()) }),
    };
    Ok(read.unwrap_or_default())
}

/// Runs last, so that no other check waits for it.
pub(crate) fn report(context: &mut PollContext, stores: &[Store]) {
    if !context.settings.verification {
        return context.report.remove("verification/");
    }
    let mut budget = EACH_POLL;
    for store in stores {
        let name = format!("verification/{}", store.name);
        let snapshots = backoff::snapshots(&store.name);
        let held = backoff::reason(context, &store.name).or_else(|| backoff::reason(context, &snapshots)).is_some();
        let due = store.readable && !held && context.is_due(&name);
        if !due || budget.is_spent() {
            context.report.keep(name.as_str());
            if store.lost {
                context.mark_unknown(name, format!("it cannot be checked: see \"datastore/{}\"", store.name));
            }
            continue;
        }
        let walk = walk(context, &store.name, &mut budget).map_err(|error| {
            let hint = "if that is always so, raise the target's timeout, or set verification to false";
            let message = format!("{}; {hint}", error.message);
            if error.no_answer { Error { message, ..error } } else { error }
        });
        if let Err(error) = &walk {
            backoff::back_off(context, &snapshots, error);
            context.checked(&name, AGAIN);
        }
        let Some(walk) = context.part((&name, &[]), walk) else { continue };
        if !walk.left.is_empty() {
            // The next poll continues the walk.
            context.report.keep(name);
            continue;
        }
        context.checked(&name, PERIOD);
        let verdict = match walk.damaged {
            0 if walk.unclear > 0 => {
                let what = count(walk.unclear, "snapshot");
                (Status::Unknown, Some(format!("verified with a result that is neither ok nor failed: {what}")))
            }
            0 => unverified(context, &name, &walk),
            damaged => {
                let are = if damaged == 1 { "is" } else { "are" };
                let why = format!("{} {are} damaged: {}", count(damaged, "snapshot"), list(&walk.named));
                (Status::Critical, Some(why))
            }
        };
        let dependency = evaluated(name, "pbs-verification", verdict).with_runs_on(format!("datastore/{}", store.name));
        let of = count(walk.all, "snapshot");
        context.add(dependency.with_description(format!("{} of {of} were verified", walk.verified)));
    }
}

/// Evaluates the share of snapshots that were never verified, if none is damaged.
fn unverified(context: &mut PollContext, name: &str, walk: &Walk) -> Verdict {
    let Some(share) = percent((walk.all - walk.verified) as f64, walk.all as f64) else { return (Status::Ok, None) };
    let Evaluation { status, limit, after } = context.hysteresis.evaluate(name, context.settings.unverified(), share);
    let why = format!(
        "more than {limit} % of its snapshots were never verified{after}: add a verify job, or run it more often"
    );
    (status, (status != Status::Ok).then_some(why))
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes == 0 || self.time.is_zero()
    }
}

/// Continues the walk of a datastore, or starts one.
fn walk(context: &mut PollContext, store: &str, budget: &mut Budget) -> Result<Walk, Error> {
    let now = context.milliseconds();
    let mut walk = match context.memory.plugin.walks.get(store, now) {
        Some(walk) => walk.clone(),
        None => Walk { left: groups::namespaces(context, store)?, ..Walk::default() },
    };
    while let Some(ns) = walk.left.last().filter(|_| !budget.is_spent()) {
        let path = format!("/admin/datastore/{store}/snapshots?ns={}", groups::encoded(ns));
        let [answer] = context.api.patient().ask([path.as_str()]);
        let (bytes, time) = answer.cost();
        budget.requests -= 1;
        budget.bytes = budget.bytes.saturating_sub(bytes);
        budget.time = budget.time.saturating_sub(time);
        let ns = ns.clone();
        let snapshots = answer
            .list::<Snapshot>(&mut context.diagnostics)
            .inspect_err(|_| context.memory.plugin.walks.remove(store))?;
        walk.left.pop();
        walk.take(&snapshots, &ns);
    }
    if walk.left.is_empty() {
        context.memory.plugin.walks.remove(store);
    } else {
        context.memory.plugin.walks.set(store, walk.clone(), now, WALK);
    }
    Ok(walk)
}

impl Walk {
    fn take(&mut self, snapshots: &[Snapshot], ns: &str) {
        self.all += snapshots.len();
        for snapshot in snapshots {
            match snapshot.verification.state.get().map(|Text(state)| state.trim().to_ascii_lowercase()).as_deref() {
                Some("ok") => self.verified += 1,
                Some("failed") => {
                    self.verified += 1;
                    self.damaged += 1;
                    if self.named.len() < NAMED {
                        self.named.push(snapshot.shown(ns));
                    }
                }
                Some(_) => self.unclear += 1,
                None => {}
            }
        }
    }
}

impl Snapshot {
    fn shown(&self, ns: &str) -> String {
        let word = |field: &Field<Text>| field.get().map_or("?", |Text(word)| word.as_str()).to_owned();
        let time = self.backup_time.get().and_then(|Number(time)| moment(*time));
        let time = time.unwrap_or_else(|| "an unknown time".to_owned());
        let inside = if ns.is_empty() { String::new() } else { format!("{ns}/") };
        format!("{inside}{}/{} of {time}", word(&self.backup_type), word(&self.backup_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_with_another_result_is_neither_good_nor_missing() {
        // The numbers of those that were verified, are damaged, and are unclear.
        for (verification, expected) in [
            (r#"{"state":"ok"}"#, (1, 0, 0)),
            (r#"{"state":"OK "}"#, (1, 0, 0)),
            (r#"{"state":"failed"}"#, (1, 1, 0)),
            (r#"{"state":"FAILED"}"#, (1, 1, 0)),
            (r#""failed""#, (1, 1, 0)),
            (r#"{"state":"corrupt"}"#, (0, 0, 1)),
            (r#"{"state":"failed","state":"ok"}"#, (1, 1, 0)),
            (r#"{"state":"ok","state":"ok"}"#, (0, 0, 1)),
            ("null", (0, 0, 0)),
            ("{}", (0, 0, 0)),
            ("[5]", (0, 0, 0)),
        ] {
            let list = format!(r#"[{{"backup-type":"vm","backup-id":"1","verification":{verification}}}]"#);
            let mut walk = Walk::default();
            walk.take(&serde_json::from_str::<Vec<Snapshot>>(&list).unwrap(), "");
            assert_eq!((walk.verified, walk.damaged, walk.unclear), expected, "{verification}");
        }
    }
}
