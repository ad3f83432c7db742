//! Datastores: whether they are there, how full they are, and when they will be full.

use crate::{Memory, PollContext, backoff};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, Error, ErrorClass, Evaluation, Thresholds, bytes, evaluated, moment, percent, worse};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const DAY: f64 = 24.0 * 3600.0;
/// From here on the server's estimate is judged. Percent used.
const HALF: f64 = 50.0;
/// After the list of all did not come in time, each is asked for by itself for so long.
const SINGLY: Duration = Duration::from_secs(10 * 60);
const HUNG: &str = "datastore-usage";
const UNMOUNTED: &str = "its removable disk is not mounted";
const SWAPPED: &str = "where it is taken away in turn, name it in datastores.may_rest";

/// One entry of `/admin/datastore`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Listed {
    store: Field<Text>,
    /// `/config/datastore` calls it so.
    name: Field<Text>,
    maintenance: Field<Text>,
    mount_status: Field<Text>,
    backend_type: Field<Text>,
}

/// One entry of `/status/datastore-usage`, or `/admin/datastore/S/status`, which has no store, estimate or error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Usage {
    store: Field<Text>,
    total: Field<Number>,
    used: Field<Number>,
    avail: Field<Number>,
    error: Field<Text>,
    estimated_full_date: Field<Number>,
    mount_status: Field<Text>,
}

/// A datastore that is looked at, and whether anything in it can be read.
pub(crate) struct Store {
    pub name: String,
    pub readable: bool,
    /// Whether somebody took it out of use, so that no job runs on it.
    pub rests: bool,
    /// Whether nobody can say how what is in it is; not where it did not answer once, or may rest.
    pub lost: bool,
}

/// Reports each datastore, and gives those that are looked at.
pub(crate) fn report(context: &mut PollContext, list: Vec<Listed>, usage: Option<Answer>) -> Vec<Store> {
    let settings = &context.settings.datastores;
    let wanted = |name: &str| settings.include.match_any([name]) && !settings.exclude.match_any([name]);
    let named = |entry: Listed| {
        let name = entry.store.get().or(entry.name.get())?.0.clone();
        wanted(&name).then_some((name, entry))
    };
    let all = list.len();
    let stores: Vec<(String, Listed)> = list.into_iter().filter_map(named).collect();
    if stores.is_empty() && all > 0 && !settings.exclude.is_all() {
        context.warn_of_api("no datastore is looked at: see datastores.include and datastores.exclude in the settings");
    }
    let usage = usages(context, &stores, usage);
    let mut seen = Vec::new();
    for (name, entry) in &stores {
        let verdict = match usage.get(name) {
            Some(Ok(usage)) if is_unmounted(entry, usage) => unmounted(),
            Some(Ok(usage)) => evaluate(context, name, entry, usage),
            Some(Err(error)) => untold(error),
            None if is_unmounted(entry, &Usage::default()) => unmounted(),
            None => Verdict::of(Status::Unknown, "the server does not say how full it is".to_owned()),
        };
        let verdict = match maintained(entry) {
            // It is used still, and may be broken or full.
            Some(maintained) if maintained.readable && usage.contains_key(name) => maintained.or_worse(verdict),
            Some(maintained) => maintained,
            None => verdict,
        };
        let rests = verdict.rests || maintained(entry).is_some();
        let may_rest = rests
            && verdict.status == Status::Warning
            && context.settings.datastores.may_rest.match_any([name.as_str()]);
        let shown = format!("datastore/{name}");
        context.add(match verdict.why {
            Some(why) if may_rest => Dependency::skipped(shown).with_kind("pbs-datastore").with_description(why),
            why => {
                let hint = |why| if why == UNMOUNTED { format!("{why}; {SWAPPED}") } else { why };
                let dependency = evaluated(shown, "pbs-datastore", (verdict.status, why.map(hint)));
                Dependency { description: verdict.description, ..dependency }
            }
        });
        let lost = !verdict.readable && !may_rest && verdict.status != Status::Unknown;
        seen.push(Store { name: name.clone(), readable: verdict.readable, rests, lost });
    }
    seen
}

/// How full each is, or why that cannot be told.
type Usages = BTreeMap<String, Result<Usage, Error>>;

/// Where all are asked about at once, unless one of them held that up a moment ago: its disk hangs, perhaps, and each such
/// question holds one of the server's threads until it is restarted.
pub(crate) fn usage_of_all(memory: &Memory) -> Option<&'static str> {
    memory.is_due(HUNG).then_some("/status/datastore-usage")
}

fn usages(context: &mut PollContext, stores: &[(String, Listed)], answer: Option<Answer>) -> Usages {
    let list = answer.map(|answer| answer.list::<Usage>(&mut context.diagnostics));
    match list {
        Some(Ok(list)) => {
            return list.into_iter().filter_map(|usage| Some((usage.store.get()?.0.clone(), Ok(usage)))).collect();
        }
        Some(Err(error)) if error.no_answer => context.checked(HUNG, SINGLY),
        // One whose disk fails makes the list of all fail.
        Some(Err(_)) | None => {}
    }
    let is_used = |entry: &Listed| maintained(entry).is_none() && !is_unmounted(entry, &Usage::default());
    let in_use = stores.iter().filter(|(_, entry)| is_used(entry)).map(|(name, _)| name);
    let (held, asked): (Vec<&String>, Vec<&String>) = in_use.partition(|name| backoff::why(context, name).is_some());
    let answers = context.api.ask_all(asked.iter().map(|name| format!("/admin/datastore/{name}/status")).collect());
    let mut usages: Usages = asked.into_iter().cloned().zip(answers.into_iter().map(Answer::read::<Usage>)).collect();
    for (name, usage) in &usages {
        if let Err(error) = usage {
            backoff::back(context, name, error);
        }
    }
    usages.extend(
        held.into_iter()
            .map(|name| (name.clone(), Err(Error::backing_off(backoff::why(context, name).unwrap_or_default())))),
    );
    usages
}

struct Verdict {
    status: Status,
    why: Option<String>,
    description: Option<String>,
    /// Whether its contents can be listed.
    readable: bool,
    /// Whether it was taken away.
    rests: bool,
}

impl Verdict {
    fn of(status: Status, why: String) -> Self {
        Self { status, why: Some(why), description: None, readable: status != Status::Critical, rests: false }
    }

    fn or_worse(self, other: Self) -> Self {
        let (description, readable) = (other.description, self.readable && other.readable);
        let (status, why) = worse((self.status, self.why), (other.status, other.why));
        Self { status, why, description, readable, rests: self.rests || other.rests }
    }
}

/// Why it cannot be told how full one is: the server cannot use it, or this poll could not ask.
fn untold(error: &Error) -> Verdict {
    // What the server answers when it did not expect an error: that of the disk.
    match error.class {
        // A proxy in front says so when what is behind it does not answer.
        ErrorClass::Refused | ErrorClass::ServerFailed if !error.no_answer => {
            Verdict::of(Status::Critical, format!("the server cannot use it: {}", error.message))
        }
        _ => {
            let verdict = Verdict::of(Status::Unknown, format!("how full it is cannot be told: {}", error.message));
            // One that does not answer this would hold another of the server's threads.
            Verdict { readable: !error.no_answer, ..verdict }
        }
    }
}

/// That somebody took it out of use on purpose: `offline,message=disk swap tonight`, `read-only`.
fn maintained(entry: &Listed) -> Option<Verdict> {
    let Text(maintenance) = entry.maintenance.get()?;
    let (mode, message) = maintenance.split_once(',').unwrap_or((maintenance, ""));
    let mode = mode.strip_prefix("type=").unwrap_or(mode);
    let message = message.strip_prefix("message=").unwrap_or(message).trim_matches('"');
    let because = if message.is_empty() { String::new() } else { format!(": {message}") };
    let verdict = Verdict::of(Status::Warning, format!("it is in maintenance mode {mode}{because}"));
    Some(Verdict { readable: mode == "read-only", ..verdict })
}

fn is_unmounted(entry: &Listed, usage: &Usage) -> bool {
    let all = [&entry.mount_status, &usage.mount_status];
    all.iter().any(|status| status.get().is_some_and(|Text(status)| status == "notmounted"))
}

fn unmounted() -> Verdict {
    Verdict { readable: false, rests: true, ..Verdict::of(Status::Warning, UNMOUNTED.to_owned()) }
}

fn evaluate(context: &mut PollContext, name: &str, entry: &Listed, usage: &Usage) -> Verdict {
    if let Some(Text(error)) = usage.error.get() {
        return Verdict::of(Status::Critical, format!("the server cannot use it: {}", error.trim()));
    }
    let diagnostics = &mut context.diagnostics;
    let mut number =
        |field: &Field<Number>, what: &str| diagnostics.number(field, || format!("{what} of datastore {name}"));
    let (total, used) = (number(&usage.total, "total"), number(&usage.used, "used"));
    let avail = number(&usage.avail, "avail");
    // Blocks that are reserved are neither used nor to be had: what is left counts, as for df.
    let whole = used.zip(avail).map(|(used, avail)| used + avail).or(total);
    let Some(share) = used.zip(whole).and_then(|(used, whole)| percent(used, whole)) else {
        let why = "the server does not say how full it is: either its disk says nothing sensible, or the token lacks \
                   Datastore.Audit on it";
        return Verdict::of(Status::Unknown, why.to_owned());
    };
    let size = total.or(whole).map(bytes).unwrap_or_default();
    if entry.backend_type.get().is_some_and(|Text(backend)| backend == "s3") {
        let description = format!("in an S3 bucket; its local cache of {size} is {share:.0} % used");
        return Verdict { status: Status::Ok, why: None, description: Some(description), readable: true, rests: false };
    }
    let (estimated, full) = estimate(context, name, usage, share);
    let (status, why) = worse(fullness(context, name, share), estimated);
    let description = format!("{share:.0} % of {size} used{full}");
    Verdict { status, why, description: Some(description), readable: true, rests: false }
}

fn fullness(context: &mut PollContext, name: &str, share: f64) -> proxmox::Verdict {
    let limits = context.settings.datastores.usage();
    let Evaluation { status, limit, after } = context.hysteresis.evaluate(&format!("datastore/{name}"), limits, share);
    let why = format!("more than {limit} % is used{after}: make room (prune and garbage collection), or give it more");
    (status, (status != Status::Ok).then_some(why))
}

/// When it will be full, by the server's own estimate, and the same for a person: 0 is never, and a date that is over means
/// that it shrinks. The first backups fill a new one so fast that it would be full in days: it is judged when half is used.
fn estimate(context: &mut PollContext, name: &str, usage: &Usage, share: f64) -> (proxmox::Verdict, String) {
    let none = ((Status::Ok, None), String::new());
    // Up to the largest 64-bit number for far away.
    let Some(Number(date)) = usage.estimated_full_date.get() else {
        if let Field::Odd(odd) = &usage.estimated_full_date {
            context.diagnostics.add(|| {
                format!("estimated-full-date of datastore {name} is {odd}, which is no number: it is not judged")
            });
        }
        return none;
    };
    let Some(when) = moment(*date).filter(|_| *date > context.seconds()) else { return none };
    let day = &when[..10];
    let full = format!("; full on {day}, as it grows now");
    let half = Thresholds { warning: HALF, critical: 0.0 };
    if context.hysteresis.evaluate(&format!("datastore/{name} half"), half, share).status == Status::Ok {
        return ((Status::Ok, None), full);
    }
    let (limits, days) = (context.settings.datastores.full(), (date - context.seconds()) / DAY);
    let Evaluation { status, limit, .. } = context.hysteresis.evaluate(&format!("datastore/{name} full"), limits, days);
    let why = format!("it will be full in fewer than {limit} days ({day}), as it grows now");
    ((status, (status != Status::Ok).then_some(why)), full)
}
