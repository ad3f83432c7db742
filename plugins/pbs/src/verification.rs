//! Whether what was backed up can be read back, as far as it was verified.
//!
//! A list of snapshots is long and slow to make: each is asked for once an hour, one after the other, and no more of them in
//! one poll than leaves time and room for everything else. A datastore that did not answer in time is left alone as one is
//! whose groups did not come.

use crate::PollContext;
use crate::datastores::Store;
use crate::memory::Walk;
use crate::{backoff, groups};
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Number, Text};
use proxmox::{Error, Evaluation, Verdict, count, evaluated, list, moment, percent};
use serde::Deserialize;
use std::time::Duration;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(60 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(5 * 60);
/// A walk that is not finished after so long begins anew.
const WALK: Duration = Duration::from_secs(30 * 60);
/// Damaged snapshots that are remembered by name.
const NAMED: usize = 20;

/// What one poll may spend on lists. The last of them may go beyond it.
struct Budget {
    requests: u32,
    bytes: usize,
    milliseconds: f64,
}

const EACH_POLL: Budget = Budget { requests: 50, bytes: 4 << 20, milliseconds: 4_000.0 };

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

/// Last of all, so that nothing else waits for it.
pub(crate) fn report(context: &mut PollContext, stores: &[Store]) {
    if !context.settings.verification {
        return;
    }
    let mut budget = EACH_POLL;
    for store in stores {
        let name = format!("verification/{}", store.name);
        let snapshots = backoff::snapshots(&store.name);
        let held = backoff::why(context, &store.name).or_else(|| backoff::why(context, &snapshots)).is_some();
        let due = store.readable && !held && context.is_due(&name);
        if !due || budget.is_spent() {
            context.report.keep(name.as_str());
            if store.lost {
                context.mark_unknown(name, format!("nobody can see it: \"datastore/{}\" says why", store.name));
            }
            continue;
        }
        let walk = walk(context, &store.name, &mut budget).map_err(|error| {
            let hint = "where that is always so, raise the target's timeout, or set verification to false";
            let message = format!("{}; {hint}", error.message);
            if error.no_answer { Error { message, ..error } } else { error }
        });
        if let Err(error) = &walk {
            backoff::back(context, &snapshots, error);
            context.checked(&name, AGAIN);
        }
        let Some(walk) = context.part((&name, &[]), walk) else { continue };
        if !walk.left.is_empty() {
            // The rest has its turn at the next poll.
            context.report.keep(name);
            continue;
        }
        context.checked(&name, PERIOD);
        let verdict = match walk.damaged {
            0 => unverified(context, &name, &walk),
            damaged => {
                let are = if damaged == 1 { "is" } else { "are" };
                let why = format!("{} {are} damaged: {}", count(damaged, "snapshot"), list(&walk.named));
                (Status::Critical, Some(why))
            }
        };
        let dependency = evaluated(name, "pbs-verification", verdict).with_parent(format!("datastore/{}", store.name));
        let of = count(walk.all, "snapshot");
        context.add(dependency.with_description(format!("{} of {of} were verified", walk.verified)));
    }
}

/// None is damaged, as far as they were verified.
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
        self.requests == 0 || self.bytes == 0 || self.milliseconds <= 0.0
    }
}

/// Goes on with a datastore's walk, or begins one.
fn walk(context: &mut PollContext, store: &str, budget: &mut Budget) -> Result<Walk, Error> {
    let now = context.milliseconds();
    let mut walk = match context.memory.plugin.walks.get(store, now) {
        Some(walk) => walk.clone(),
        None => Walk { left: groups::namespaces(context, store)?, ..Walk::default() },
    };
    while let Some(ns) = walk.left.last().filter(|_| !budget.is_spent()) {
        let path = format!("/admin/datastore/{store}/snapshots?ns={}", groups::encoded(ns));
        let [answer] = context.api.patient().ask([path.as_str()]);
        let (bytes, milliseconds) = answer.cost();
        budget.requests -= 1;
        budget.bytes = budget.bytes.saturating_sub(bytes);
        budget.milliseconds -= milliseconds;
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
            match snapshot.verification.state.get().map(|Text(state)| state.as_str()) {
                Some("ok") => self.verified += 1,
                Some("failed") => {
                    self.verified += 1;
                    self.damaged += 1;
                    if self.named.len() < NAMED {
                        self.named.push(snapshot.shown(ns));
                    }
                }
                _ => {}
            }
        }
    }
}

impl Snapshot {
    fn shown(&self, ns: &str) -> String {
        let word = |field: &Field<Text>| field.get().map_or("?", |Text(word)| word.as_str()).to_owned();
        let time = self.backup_time.get().and_then(|Number(time)| moment(*time));
        let time = time.unwrap_or_else(|| "a time that is not known".to_owned());
        let inside = if ns.is_empty() { String::new() } else { format!("{ns}/") };
        format!("{inside}{}/{} of {time}", word(&self.backup_type), word(&self.backup_id))
    }
}
