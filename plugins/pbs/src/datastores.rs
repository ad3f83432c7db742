//! Datastores: whether they are available, how full they are, and when they will be full.

use crate::backoff;
use crate::context::{Memory, PollContext};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Answer, Error, ErrorClass, Evaluation, Thresholds};
use proxmox::{bytes, complaint, evaluated, item, moment, percent, worse};
use serde::Deserialize;
use std::time::Duration;

const DAY: f64 = 24.0 * 3600.0;
/// From this usage on the server's estimate is evaluated. Percent.
const HALF: f64 = 50.0;
/// How long each datastore is requested separately after the list of all did not come in time.
const SINGLY: Duration = Duration::from_secs(10 * 60);
const HUNG: &str = "datastore-usage";
/// The end of the names of usages that do not say which datastore they are of.
const OF_USAGES: &str = " of the usages";
const UNMOUNTED: &str = "its removable disk is not mounted";
const SWAPPED: &str = "if it is swapped regularly, list it in datastores.may_rest";

/// One entry of `/admin/datastore`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Listed {
    store: Field<Text>,
    /// The name in `/config/datastore`.
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

/// A datastore that is checked.
pub(crate) struct Store {
    pub name: String,
    pub readable: bool,
    /// Whether an operator took it out of use, so that no job runs on it.
    pub rests: bool,
    /// True if the state of its contents is unknown. A single timeout or an expected maintenance window does not count.
    pub lost: bool,
}

/// Reports each datastore. Returns those that are checked.
pub(crate) fn report(context: &mut PollContext, list: Vec<Listed>, usage: Option<Answer>) -> Vec<Store> {
    for (index, entry) in list.iter().enumerate() {
        if entry.store.get().or(entry.name.get()).is_none() {
            context.add(Dependency::unknown(format!("datastore/{}", item(index)), "the datastore has no name"));
        }
    }
    let settings = &context.settings.datastores;
    let wanted = |name: &str| settings.include.match_any([name]) && !settings.exclude.match_any([name]);
    let named = |entry: Listed| Some((entry.store.get().or(entry.name.get())?.0.clone(), entry));
    let all = list.len();
    let (stores, others): (Vec<(String, Listed)>, Vec<_>) =
        list.into_iter().filter_map(named).partition(|(name, _)| wanted(name));
    for (name, _) in others {
        let of_store = ["datastore", "groups", "verification"].map(|family| format!("{family}/{name}"));
        of_store.into_iter().chain([format!("group/{name}/")]).for_each(|part| context.report.remove(part));
    }
    if stores.is_empty() && all > 0 && !settings.exclude.is_all() {
        context.warn_of_api("no datastore is checked: see datastores.include and datastores.exclude in the settings");
    }
    let mut usage = usages(context, &stores, usage);
    // Entries without a name.
    for (index, usage) in usage.remove("").into_iter().flatten().enumerate() {
        let name = format!("datastore/{}{OF_USAGES}", item(index));
        let Verdict { status, why, .. } = of_usage(context, &name, &Listed::default(), &usage);
        context.add(evaluated(name, "pbs-datastore", (status, why)));
    }
    for name in context.reported_before("datastore/") {
        if name.ends_with(OF_USAGES) && context.report.dependencies.iter().all(|found| found.name != name) {
            context.report.remove(name);
        }
    }
    let mut seen = Vec::new();
    for (name, entry) in &stores {
        let of = usage.get(name).map_or(&[][..], Vec::as_slice);
        let verdicts: Vec<Verdict> = of.iter().map(|usage| of_usage(context, name, entry, usage)).collect();
        let verdict = verdicts.into_iter().reduce(Verdict::or_worse).unwrap_or_else(|| match entry {
            entry if is_unmounted(entry, &Usage::default()) => unmounted(),
            _ => Verdict::of(Status::Unknown, "the server does not report its usage".to_owned()),
        });
        let verdict = match maintained(entry) {
            // A read-only datastore is in use, and may be broken or full.
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

/// The usages of each datastore, or why they are not known: several, if it is listed more than once. Those without a
/// name have an empty one.
type Usages = SortedMap<String, Vec<Result<Usage, Error>>>;

fn of_usage(context: &mut PollContext, name: &str, entry: &Listed, usage: &Result<Usage, Error>) -> Verdict {
    match usage {
        Ok(usage) if is_unmounted(entry, usage) => unmounted(),
        Ok(usage) => evaluate(context, name, entry, usage),
        Err(error) => without_usage(error),
    }
}

/// The path for the usage of all datastores. `None` if one of them delayed it a moment ago: its disk may hang, and each
/// such request blocks a thread of the server until the server restarts.
pub(crate) fn usage_of_all(memory: &Memory) -> Option<&'static str> {
    memory.is_due(HUNG).then_some("/status/datastore-usage")
}

fn usages(context: &mut PollContext, stores: &[(String, Listed)], answer: Option<Answer>) -> Usages {
    let list = answer.map(|answer| answer.list::<Usage>(&mut context.diagnostics));
    match list {
        Some(Ok(list)) => {
            let mut usages = Usages::new();
            for usage in list {
                let name = usage.store.get().map(|Text(name)| name.clone()).unwrap_or_default();
                let of = usages.get_or_default(name.clone());
                of.push(Ok(usage));
                if of.len() > 1 && !name.is_empty() {
                    context.diagnostics.repeated("/status/datastore-usage", name);
                }
            }
            return usages;
        }
        Some(Err(error)) if error.no_answer => context.checked(HUNG, SINGLY),
        // A datastore whose disk fails makes the list of all fail.
        Some(Err(_)) | None => {}
    }
    let is_used = |entry: &Listed| maintained(entry).is_none() && !is_unmounted(entry, &Usage::default());
    let in_use = stores.iter().filter(|(_, entry)| is_used(entry)).map(|(name, _)| name);
    let (held, asked): (Vec<&String>, Vec<&String>) = in_use.partition(|name| backoff::reason(context, name).is_some());
    let answers = context.api.ask_all(asked.iter().map(|name| format!("/admin/datastore/{name}/status")).collect());
    let read = answers.into_iter().map(|answer| vec![answer.read::<Usage>()]);
    let mut usages: Usages = asked.into_iter().cloned().zip(read).collect();
    for (name, usage) in &usages {
        if let [Err(error)] = usage.as_slice() {
            backoff::back_off(context, name, error);
        }
    }
    let why = |name: &String| Error::backing_off(backoff::reason(context, name).unwrap_or_default());
    usages.extend(held.into_iter().map(|name| (name.clone(), vec![Err(why(name))])));
    usages
}

struct Verdict {
    status: Status,
    why: Option<String>,
    description: Option<String>,
    /// Whether its contents can be listed.
    readable: bool,
    /// Whether an operator took it out of use.
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

/// Evaluates a missing usage: the server cannot use the datastore, or could not be asked.
fn without_usage(error: &Error) -> Verdict {
    // The server's answer to an error that it does not expect, such as one of the disk.
    match error.class {
        // A proxy answers so when the server behind it does not.
        ErrorClass::Refused | ErrorClass::ServerFailed if !error.no_answer => {
            Verdict::of(Status::Critical, format!("the server cannot use it: {}", error.message))
        }
        _ => {
            let verdict = Verdict::of(Status::Unknown, format!("its usage is not known: {}", error.message));
            // Listing its contents would block another thread of the server.
            Verdict { readable: !error.no_answer, ..verdict }
        }
    }
}

/// The maintenance mode of a datastore: `offline,message=disk swap tonight`, `read-only`.
fn maintained(entry: &Listed) -> Option<Verdict> {
    let maintenance = complaint(&entry.maintenance)?;
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
    if let Some(error) = complaint(&usage.error) {
        return Verdict::of(Status::Critical, format!("the server cannot use it: {error}"));
    }
    let diagnostics = &mut context.diagnostics;
    let mut number =
        |field: &Field<Number>, what: &str| diagnostics.number(field, || format!("{what} of datastore {name}"));
    let (total, used) = (number(&usage.total, "total"), number(&usage.used, "used"));
    let avail = number(&usage.avail, "avail");
    // Reserved blocks are neither used nor available. As for df, the available space counts.
    let whole = used.zip(avail).map(|(used, avail)| used + avail).or(total);
    let Some(share) = used.zip(whole).and_then(|(used, whole)| percent(used, whole)) else {
        let why = "the server does not report its usage: either its disk reports nonsense, or the token lacks \
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

/// Evaluates the server's estimate of when the datastore will be full, and describes it. 0 means never, and a date in
/// the past means that it shrinks. The first backups fill a new datastore so fast that it would be full in days, so the
/// estimate counts once half is used.
fn estimate(context: &mut PollContext, name: &str, usage: &Usage, share: f64) -> (proxmox::Verdict, String) {
    let none = ((Status::Ok, None), String::new());
    // A date in the far future may be the largest 64-bit number.
    let Some(Number(date)) = usage.estimated_full_date.get() else {
        if let Field::Odd(odd) = &usage.estimated_full_date {
            context
                .diagnostics
                .add(|| format!("estimated-full-date of datastore {name} is {odd}, which is not a number: ignored"));
        }
        return none;
    };
    let Some(when) = moment(*date).filter(|_| *date > context.seconds()) else { return none };
    let day = &when[..10];
    let full = format!("; full on {day}, at the current rate");
    let half = Thresholds { warning: HALF, critical: 0.0 };
    if context.hysteresis.evaluate(&format!("datastore/{name} half"), half, share).status == Status::Ok {
        return ((Status::Ok, None), full);
    }
    let (limits, days) = (context.settings.datastores.full(), (date - context.seconds()) / DAY);
    let Evaluation { status, limit, .. } = context.hysteresis.evaluate(&format!("datastore/{name} full"), limits, days);
    let why = format!("it will be full in fewer than {limit} days ({day}), at the current rate");
    ((status, (status != Status::Ok).then_some(why)), full)
}
