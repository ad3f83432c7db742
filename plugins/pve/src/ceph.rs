//! Ceph: its health, and each of its checks that is not well.
//!
//! The answer is what `ceph -s` says, up to a megabyte of it, and differs from version to version: only its health and how
//! many OSDs are up is read.

use crate::PollContext;
use crate::nodes::{Nodes, answers};
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Error, ErrorClass, Expiring, Part, evaluated};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const PART: Part<'_> = ("ceph", &["ceph/"]);
/// How often it is looked at, where there is Ceph.
const PERIOD: Duration = Duration::from_secs(60);
/// How often it is looked whether there is Ceph by now.
const ABSENT: Duration = Duration::from_secs(60 * 60);
/// Another path than `/cluster/ceph/status` is asked for so long.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ceph {
    health: Health,
    osdmap: Osds,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    status: Field<Text>,
    checks: BTreeMap<String, Check>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Check {
    severity: Field<Text>,
    summary: Summary,
    muted: Field<Flag>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Summary {
    message: Field<Text>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Osds {
    num_osds: Field<Number>,
    num_up_osds: Field<Number>,
    num_in_osds: Field<Number>,
}

pub(crate) fn report(context: &mut PollContext, nodes: &Nodes) {
    if !context.is_due(PART.0) {
        // Nothing is kept where there is none.
        context.report.keep(PART.0);
        return context.report.keep(PART.1[0]);
    }
    let ceph = ask(context, nodes);
    if let Err(error) = &ceph
        && (is_absent(error) || error.class == ErrorClass::Forbidden)
    {
        // One that may not be seen is said to be by the quorum, which wants the same right.
        return context.checked(PART.0, ABSENT);
    }
    if let Err(error) = &ceph
        && !context.is_known(PART.0)
    {
        context.diagnostics.add(|| format!("whether there is Ceph is not known: {}", error.message));
        return context.checked(PART.0, PERIOD);
    }
    // Also where it did not answer: a Ceph that hangs would take ten seconds of each poll.
    let Some(ceph) = context.part(PART, ceph) else { return context.checked(PART.0, PERIOD) };
    let dependency = evaluated(PART.0, "pve-ceph", overall(&ceph.health));
    let osds = osds(context, &ceph.osdmap);
    context.add(Dependency { description: osds, ..dependency });
    for (name, check) in &ceph.health.checks {
        let dependency = one(name, check);
        context.add(dependency);
    }
    // Ceph names a check only while it complains. One that is over is well, and not gone.
    for name in context.reported_before(PART.1[0]) {
        if context.report.dependencies.iter().all(|found| found.name != name) {
            context.add(Dependency::ok(name).with_kind("pve-ceph").with_description("Ceph complains of it no more"));
        }
    }
    context.checked(PART.0, PERIOD);
}

/// A node without Ceph's programs cannot say how Ceph is; another one may.
fn ask(context: &mut PollContext, nodes: &Nodes) -> Result<Ceph, Error> {
    let now = context.milliseconds();
    let known = context.memory.plugin.ceph_path.as_ref().and_then(|path| path.get(now));
    let path = known.cloned().unwrap_or_else(|| "/cluster/ceph/status".to_owned());
    let [answer] = context.api.ask([path.as_str()]);
    let ceph = answer.read::<Ceph>();
    let elsewhere = |error: &Error| matches!(error.class, ErrorClass::NotInstalled | ErrorClass::NodeUnreachable);
    if !ceph.as_ref().is_err_and(elsewhere) {
        return ceph;
    }
    let paths =
        nodes.keys().filter(|name| answers(context, nodes, name)).map(|name| format!("/nodes/{name}/ceph/status"));
    let paths: Vec<String> = paths.filter(|other| *other != path).collect();
    let others = context.api.ask_all(paths.clone());
    let mut silent = ceph.as_ref().err().filter(|error| !is_absent(error)).cloned();
    for (path, other) in paths.into_iter().zip(others) {
        match other.read() {
            Ok(found) => {
                context.memory.plugin.ceph_path = Some(Expiring::new(path, now, REMEMBERED));
                return Ok(found);
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => silent = silent.or(Some(error)),
        }
    }
    // There is none only where nobody has it: one that does not answer may.
    match silent {
        Some(error) => Err(error),
        None => {
            context.memory.plugin.ceph_path = None;
            ceph
        }
    }
}

fn is_absent(error: &Error) -> bool {
    matches!(error.class, ErrorClass::NotInstalled | ErrorClass::NotConfigured)
}

fn osds(context: &mut PollContext, osds: &Osds) -> Option<String> {
    let mut number =
        |field: &Field<Number>, what: &str| context.diagnostics.number(field, || format!("{what} of Ceph"));
    let all = number(&osds.num_osds, "num_osds")?;
    let (up, within) = (number(&osds.num_up_osds, "num_up_osds")?, number(&osds.num_in_osds, "num_in_osds")?);
    Some(format!("{up:.0} of {all:.0} OSDs up, {within:.0} in"))
}

fn overall(health: &Health) -> (Status, Option<String>) {
    let of = |status: Status, word: &str| {
        let checks: Vec<String> = health.checks.keys().cloned().collect();
        let which = if checks.is_empty() { String::new() } else { format!(": {}", proxmox::list(&checks)) };
        (status, Some(format!("{word}{which}")))
    };
    match health.status.get().map(|Text(status)| status.as_str()) {
        Some("HEALTH_OK") => (Status::Ok, None),
        Some(word @ "HEALTH_WARN") => of(Status::Warning, word),
        Some(word @ "HEALTH_ERR") => of(Status::Critical, word),
        Some(other) => (Status::Unknown, Some(format!("its health is {other:?}, which this plugin does not know"))),
        None => (Status::Unknown, Some("it does not say how it is".to_owned())),
    }
}

fn one(name: &str, check: &Check) -> Dependency {
    let said = check.summary.message.get().map_or_else(|| name.to_owned(), |Text(message)| message.clone());
    let muted = check.muted.get().is_some_and(|Flag(muted)| *muted);
    let dependency = format!("ceph/{name}");
    if muted {
        return Dependency::skipped(dependency).with_kind("pve-ceph").with_description(format!("muted there: {said}"));
    }
    let status = match check.severity.get().map(|Text(severity)| severity.as_str()) {
        Some("HEALTH_OK") => Status::Ok,
        Some("HEALTH_WARN") => Status::Warning,
        Some("HEALTH_ERR") => Status::Critical,
        _ => Status::Unknown,
    };
    evaluated(dependency, "pve-ceph", (status, Some(said)))
}
