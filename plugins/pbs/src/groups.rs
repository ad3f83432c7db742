//! Backup groups: the newest backup of each guest or host, in each namespace of each datastore.
//!
//! The server walks the datastore to list them. A walk that hangs blocks a thread of the server until the server
//! restarts, so a datastore that did not answer in time is not requested for an hour.

use crate::backoff;
use crate::context::PollContext;
use crate::datastores::Store;
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, Error, Selection, Thresholds, count, evaluated, item, moment, percent_encoded};
use serde::Deserialize;
use std::time::Duration;

/// How often groups are listed.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// A check that could not read everything runs again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// The number of namespaces of one datastore that are checked.
const NAMESPACES: usize = 100;
/// The number of lists that are requested in one poll. The other datastores follow at the next poll: a poll has 512
/// requests.
const LISTS: usize = 250;

/// One entry of `/admin/datastore/S/namespace`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    ns: Field<Text>,
}

/// One entry of `/admin/datastore/S/groups`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Group {
    backup_type: Field<Text>,
    backup_id: Field<Text>,
    last_backup: Field<Number>,
    comment: Field<Text>,
    owner: Field<Text>,
}

pub(crate) fn report(context: &mut PollContext, stores: &[Store]) {
    let mut seen = Seen::default();
    for store in stores {
        let prefix = format!("group/{}/", store.name);
        let held = backoff::reason(context, &store.name);
        if !store.readable || held.is_some() || seen.lists >= LISTS || !context.is_due(&prefix) {
            if let Some(why) = held {
                context
                    .diagnostics
                    .add(|| format!("the backups in datastore {} are not listed for an hour: {why}", store.name));
            }
            context.report.keep(format!("groups/{}", store.name));
            context.report.keep(prefix.as_str());
            if store.lost {
                // They get older, and it is not known by how much.
                context.mark_unknown(prefix, format!("it cannot be checked: see \"datastore/{}\"", store.name));
            }
            continue;
        }
        let before = seen;
        let walked = walk(context, &store.name, &mut seen);
        if let Err(error) = &walked {
            backoff::back_off(context, &store.name, error);
        }
        if walked.is_ok() && seen.all > before.all && seen.wanted == before.wanted {
            context.diagnostics.add(|| {
                format!(
                    "no backup group of datastore {} is checked: see groups.include and groups.exclude in the settings",
                    store.name
                )
            });
        }
        context.checked(&prefix, if walked.is_ok() { PERIOD } else { AGAIN });
        let umbrella = format!("groups/{}", store.name);
        if context.part((&umbrella, &[&prefix]), walked).is_some() {
            let groups = count(seen.all - before.all, "backup group");
            let dependency = Dependency::ok(umbrella).with_kind("pbs-groups").with_description(groups);
            context.add(dependency.with_runs_on(format!("datastore/{}", store.name)));
        }
    }
}

/// The number of lists that were requested, of groups in them, and of groups that are checked.
#[derive(Clone, Copy, Default)]
struct Seen {
    lists: usize,
    all: usize,
    wanted: usize,
}

/// Returns the namespaces of a datastore that are checked. The first, with an empty name, is its root.
pub(crate) fn namespaces(context: &mut PollContext, store: &str) -> Result<Vec<String>, Error> {
    let [answer] = context.api.ask([format!("/admin/datastore/{store}/namespace").as_str()]);
    let namespaces: Vec<Namespace> = answer.list(&mut context.diagnostics)?;
    let mut names: Vec<String> =
        namespaces.iter().map(|entry| entry.ns.get().map(|Text(ns)| ns.clone()).unwrap_or_default()).collect();
    if names.is_empty() {
        // Every datastore has a root.
        names.push(String::new());
    }
    if names.len() > NAMESPACES {
        let more = names.len() - NAMESPACES;
        context.diagnostics.add(|| format!("datastore {store} has {more} more namespaces than are checked"));
        names.truncate(NAMESPACES);
    }
    Ok(names)
}

/// Reports every namespace of a datastore. If some cannot be read, the others are reported.
fn walk(context: &mut PollContext, store: &str, seen: &mut Seen) -> Result<(), Error> {
    let names = namespaces(context, store)?;
    seen.lists += names.len();
    let path = |ns: &String| format!("/admin/datastore/{store}/groups?ns={}", encoded(ns));
    let answers = context.api.ask_all(names.iter().map(path).collect());
    let mut first_error = Ok(());
    for (ns, answer) in names.iter().zip(answers) {
        if let Err(error) = groups(context, (store, ns), answer, seen) {
            first_error = first_error.and(Err(error));
        }
    }
    first_error
}

fn groups(context: &mut PollContext, (store, ns): (&str, &str), answer: Answer, seen: &mut Seen) -> Result<(), Error> {
    for (index, group) in answer.list::<Group>(&mut context.diagnostics)?.into_iter().enumerate() {
        seen.all += 1;
        let own = match (group.backup_type.get(), group.backup_id.get()) {
            (Some(Text(kind)), Some(Text(id))) => format!("{kind}/{id}"),
            _ => item(index),
        };
        let mut names = vec![own.clone(), format!("store:{store}"), format!("ns:{ns}")];
        names.extend(group.owner.get().map(|Text(owner)| format!("owner:{owner}")));
        names.extend(group.comment.get().map(|Text(comment)| format!("comment:{comment}")));
        // The name in the report.
        names.push(if ns.is_empty() { format!("{store}/{own}") } else { format!("{store}/{ns}/{own}") });
        let names = || names.iter().map(String::as_str);
        let settings = &context.settings.groups;
        let name = if ns.is_empty() { format!("group/{store}/{own}") } else { format!("group/{store}/{ns}/{own}") };
        // The server omits a comment that it cannot read.
        let unknown = [("owner:", group.owner.get().is_none()), ("comment:", group.comment.get().is_none())];
        let unknown: Vec<&str> = unknown.into_iter().filter_map(|(word, is)| is.then_some(word)).collect();
        let selection = Selection::of(names, (&settings.include, &settings.exclude), &unknown);
        if !selection.is_wanted(&mut context.report, || name.clone()) {
            continue;
        }
        seen.wanted += 1;
        let limits = settings.age(names());
        let dependency = one(context, name, &group, limits).with_runs_on(format!("datastore/{store}"));
        context.add(match group.comment.get() {
            Some(Text(comment)) => {
                dependency.with_title(format!("{own}: {}", comment.lines().next().unwrap_or_default()))
            }
            None => dependency,
        });
    }
    Ok(())
}

fn one(context: &mut PollContext, name: String, group: &Group, limits: Thresholds) -> Dependency {
    let last =
        context.diagnostics.number(&group.last_backup, || format!("last-backup of {name}")).filter(|last| *last > 0.0);
    let Some((last, when)) = last.and_then(|last| Some((last, moment(last)?))) else {
        return evaluated(
            name,
            "pbs-group",
            (Status::Unknown, Some("it is not known when it was last backed up".to_owned())),
        );
    };
    if let Some(verdict) = context.future(last, "its newest backup") {
        return evaluated(name, "pbs-group", verdict);
    }
    let (status, limit) = limits.evaluate((context.seconds() - last) / 3600.0);
    let why = (status != Status::Ok).then(|| format!("its newest backup is of {when}, more than {limit} hours ago"));
    evaluated(name, "pbs-group", (status, why)).with_description(format!("newest backup of {when}"))
}

/// A namespace in a query: `a/b`.
pub(crate) fn encoded(ns: &str) -> String {
    percent_encoded(ns, b"/")
}
