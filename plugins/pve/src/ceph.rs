//! Ceph: its health, and each health check that complains.
//!
//! The answer is the output of `ceph -s`, up to a megabyte, and differs between versions. Only the health and the
//! number of OSDs are read.

use crate::context::PollContext;
use crate::nodes::{Nodes, answers};
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Error, ErrorClass, Expiring, Part, evaluated};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

const PART: Part<'_> = ("ceph", &["ceph/"]);
/// How often Ceph is checked.
const PERIOD: Duration = Duration::from_secs(60);
/// How often a cluster without Ceph is checked for it.
const ABSENT: Duration = Duration::from_secs(60 * 60);
/// How long another path than `/cluster/ceph/status` is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ceph {
    #[serde(deserialize_with = "health")]
    health: Health,
    #[serde(deserialize_with = "or_default")]
    osdmap: Osds,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    status: Field<Text>,
    #[serde(deserialize_with = "or_default")]
    checks: Checks,
}

/// All checks, also those with one name: the host reports the worst.
#[derive(Default)]
struct Checks(Vec<(String, Check)>);

impl<'de> Deserialize<'de> for Checks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Checks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Checks, A::Error> {
                let mut checks = Vec::new();
                while let Some(check) = map.next_entry()? {
                    checks.push(check);
                }
                Ok(Checks(checks))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A check. One that is no object is unknown.
#[derive(Default)]
struct Check(CheckFields);

#[derive(Default, Deserialize)]
#[serde(default)]
struct CheckFields {
    severity: Field<Text>,
    #[serde(deserialize_with = "or_default")]
    summary: Summary,
    muted: Field<Flag>,
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_default(deserializer).map(Self)
    }
}

/// Reads a value. One of another shape has no field, so that it does not hide the others.
fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Reads a health. Older versions have its status alone.
fn health<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Health, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    let status = |status| Health { status, ..Health::default() };
    Ok(match raw.get().starts_with('"') {
        true => serde_json::from_str(raw.get()).map(status).unwrap_or_default(),
        false => serde_json::from_str(raw.get()).unwrap_or_default(),
    })
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
        // A cluster without Ceph has nothing to keep.
        context.report.keep(PART.0);
        return context.report.keep(PART.1[0]);
    }
    let ceph = ask(context, nodes);
    if let Err(error) = &ceph
        && (is_absent(error) || error.class == ErrorClass::Forbidden)
    {
        // The quorum needs the same privilege and reports that it is missing.
        if !context.is_known(PART.0) {
            // It may have been reported because it was not known whether there is Ceph.
            context.report.remove(PART.0);
        }
        return context.checked(PART.0, ABSENT);
    }
    if let Err(error) = &ceph
        && !context.is_known(PART.0)
    {
        let why = format!("it is not known whether there is Ceph: {}", error.message);
        // A proxy may remove the text by which a cluster without Ceph is recognised.
        match error.no_answer || matches!(error.class, ErrorClass::Timeout | ErrorClass::NodeUnreachable) {
            true => context.add(evaluated(PART.0, "pve-ceph", (Status::Unknown, Some(why)))),
            false => context.diagnostics.add(|| why),
        }
        return context.checked(PART.0, PERIOD);
    }
    // Also after an error: a Ceph that hangs would take ten seconds of each poll.
    let Some(ceph) = context.part(PART, ceph) else { return context.checked(PART.0, PERIOD) };
    let dependency = evaluated(PART.0, "pve-ceph", overall(&ceph.health));
    let osds = osds(context, &ceph.osdmap);
    context.add(Dependency { description: osds, ..dependency });
    for (name, check) in &ceph.health.checks.0 {
        let dependency = one(name, check);
        context.add(dependency);
    }
    // Ceph lists a check only while it complains. A check that no longer complains is ok, and was not removed.
    for name in context.reported_before(PART.1[0]) {
        if context.report.dependencies.iter().all(|found| found.name != name) {
            context
                .add(Dependency::ok(name).with_kind("pve-ceph").with_description("Ceph no longer reports this check"));
        }
    }
    context.checked(PART.0, PERIOD);
}

/// Requests the status. A node without Ceph's programs does not know it; another node may.
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
    // The cluster has no Ceph only if no node has it. A node that does not answer may.
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
        let mut checks: Vec<String> = health.checks.0.iter().map(|(name, _)| name.clone()).collect();
        checks.sort_unstable();
        checks.dedup();
        let which = if checks.is_empty() { String::new() } else { format!(": {}", proxmox::list(&checks)) };
        (status, Some(format!("{word}{which}")))
    };
    match health.status.get().map(|Text(status)| status.as_str()) {
        Some("HEALTH_OK") => (Status::Ok, None),
        Some(word @ "HEALTH_WARN") => of(Status::Warning, word),
        Some(word @ "HEALTH_ERR") => of(Status::Critical, word),
        Some(other) => (Status::Unknown, Some(format!("its health is {other:?}, which this plugin does not know"))),
        None => (Status::Unknown, Some("it does not report its state".to_owned())),
    }
}

fn one(name: &str, Check(check): &Check) -> Dependency {
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
