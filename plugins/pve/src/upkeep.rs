//! Checks of each node that run once an hour: certificates, ZFS pools, and optionally disks, updates and subscriptions.

use crate::context::PollContext;
use crate::nodes::{Node, Nodes, answers, unreachable_because};
use crate::samples;
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{
    Answer, Error, Evaluation, Fact, Verdict, certificates, count, evaluated, hourly, list, percent, subscription,
};
use serde::Deserialize;

type Read = Result<Dependency, Error>;

/// One entry of `/nodes/N/disks/list`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Disk {
    devpath: Field<Text>,
    model: Field<Text>,
    health: Field<Text>,
    /// The remaining life in percent; `N/A` for spinning disks.
    wearout: Field<Number>,
}

/// One entry of `/nodes/N/disks/zfs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pool {
    name: Field<Text>,
    health: Field<Text>,
    size: Field<Number>,
    alloc: Field<Number>,
}

/// One entry of `/nodes/N/apt/update`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Update {
    package: Field<Text>,
}

pub(crate) fn report(context: &mut PollContext, nodes: &Nodes) {
    let (wanted, subscription) = (&context.settings.upkeep, context.settings.subscription);
    let status = Fact::new("subscription", "/subscription", subscribed);
    let all = [
        (true, Fact::new("certificate", "/certificates/info", certificate)),
        (wanted.zfs, Fact::new("zfs", "/disks/zfs", pools)),
        (wanted.disks, Fact::new("disks", "/disks/list", disks).slow()),
        (wanted.updates, Fact::new("updates", "/apt/update", updates)),
        (subscription || context.settings.samples, if subscription { status } else { status.samples_only() }),
    ];
    let unwanted = [(wanted.zfs, "zfs/"), (wanted.disks, "disks/"), (wanted.updates, "updates/")];
    let unwanted = unwanted.into_iter().chain([(subscription, "subscription/")]);
    unwanted.filter(|(wanted, _)| !wanted).for_each(|(_, family)| context.report.remove(family));
    let facts: Vec<Fact<_, _>> = all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, fact)| fact).collect();
    let wanted = nodes.iter().filter(|(_, node)| node.wanted).map(|(name, _)| name);
    let (there, gone): (Vec<&String>, Vec<&String>) = wanted.partition(|name| answers(context, nodes, name));
    for name in gone {
        for dependency in facts.iter().filter_map(|fact| fact.name(name)) {
            context.report.keep(dependency.clone());
            if nodes.get(name).is_some_and(Node::is_offline) {
                context.mark_unknown(dependency, format!("it cannot be checked: its node {name} is offline"));
            }
        }
    }
    let there: Vec<String> = there.into_iter().cloned().collect();
    for (node, why) in hourly(context, &there, true, &facts) {
        unreachable_because(context, &node, &why);
    }
}

fn certificate(context: &mut PollContext, name: String, answer: Answer) -> Read {
    certificates(context, (name, "pve-certificate", renew), context.settings.certificates, answer)
}

/// The command renews the node's certificate and not that of the authority (pve-cluster: PVE/Cluster/Setup.pm).
fn renew(file: &str) -> &'static str {
    match file {
        "pveproxy-ssl.pem" => {
            "run \"pvenode acme cert renew\" on the node if ACME issued it, else \"pvenode cert set\""
        }
        "pve-root-ca.pem" => {
            "it signs the certificates of all nodes: after replacing it (\"man pvecm\"), update it wherever one of \
             them is pinned or trusted"
        }
        _ => "run \"pvecm updatecerts --force\" on the node; update the fingerprint wherever it is pinned",
    }
}

fn subscribed(context: &mut PollContext, name: String, answer: Answer) -> Read {
    samples::subscription(context, &name, answer.clone());
    subscription(context, name, "pve-subscription", answer)
}

fn pools(context: &mut PollContext, name: String, answer: Answer) -> Read {
    let pools: Vec<Pool> = answer.list(&mut context.diagnostics)?;
    let exclude = &context.settings.upkeep.zfs_exclude;
    let excluded = |pool: &Pool| pool.name.get().is_some_and(|Text(name)| exclude.match_any([name.as_str()]));
    let pools: Vec<Pool> = pools.into_iter().filter(|pool| !excluded(pool)).collect();
    let mut bad: Vec<Verdict> = pools.iter().map(|pool| pool_verdict(context, &name, pool)).collect();
    bad.retain(|(status, _)| *status != Status::Ok);
    let status = bad.iter().fold(Status::Ok, |worst, (status, _)| worst.worse(*status));
    // Pools that failed come before pools that still work.
    bad.sort_by_key(|(found, why)| (*found != status, why.as_deref().is_some_and(|why| why.contains("degraded"))));
    let why: Vec<String> = bad.into_iter().filter_map(|(_, why)| why).collect();
    let verdict = (status, (!why.is_empty()).then(|| why.join("; ")));
    Ok(evaluated(name, "pve-zfs", verdict).with_description(count(pools.len(), "pool")))
}

/// Evaluates a pool. `own` is the name of the dependency for the node's pools.
fn pool_verdict(context: &mut PollContext, own: &str, pool: &Pool) -> Verdict {
    let name = pool.name.get().map_or("a pool", |Text(name)| name.as_str());
    let health = pool.health.get().map_or("", |Text(health)| health.as_str());
    match health {
        "ONLINE" => {}
        "DEGRADED" => {
            let why =
                format!("pool {name} is degraded: it works without the failed disks; see \"zpool status {name}\"");
            return (Status::Critical, Some(why));
        }
        "" => return (Status::Unknown, Some(format!("pool {name} does not report its state"))),
        // zpoolconcepts(7).
        other if !matches!(other, "FAULTED" | "OFFLINE" | "REMOVED" | "UNAVAIL" | "SUSPENDED") => {
            return (
                Status::Unknown,
                Some(format!("pool {name} is {other:?}, a state that this plugin does not know")),
            );
        }
        other => return (Status::Critical, Some(format!("pool {name} is {other}: see \"zpool status {name}\""))),
    }
    let size = context.diagnostics.number(&pool.size, || format!("size of pool {name}"));
    let used = context.diagnostics.number(&pool.alloc, || format!("alloc of pool {name}"));
    let Some(share) = used.zip(size).and_then(|(used, size)| percent(used, size)) else { return (Status::Ok, None) };
    let limits = context.settings.storages.usage();
    let Evaluation { status, limit, after } = context.hysteresis.evaluate(&format!("{own} {name}"), limits, share);
    (status, (status != Status::Ok).then(|| format!("pool {name}: more than {limit} % is used{after}")))
}

fn disks(context: &mut PollContext, name: String, answer: Answer) -> Read {
    let disks: Vec<Disk> = answer.list(&mut context.diagnostics)?;
    let mut found = Found::default();
    disks.iter().for_each(|disk| found.take(context, &name, disk));
    Ok(evaluated(name, "pve-disks", found.verdict()).with_description(count(disks.len(), "disk")))
}

/// Disks with problems.
#[derive(Default)]
struct Found {
    failing: Vec<String>,
    worn_out: Vec<String>,
    worn: Vec<String>,
    /// In an unknown state.
    unclear: Vec<String>,
}

impl Found {
    /// Adds a disk. `own` is the name of the dependency for the node's disks.
    fn take(&mut self, context: &mut PollContext, own: &str, disk: &Disk) {
        let path = disk.devpath.get().map_or("a disk", |Text(path)| path.as_str());
        let shown =
            disk.model.get().map_or_else(|| path.to_owned(), |Text(model)| format!("{path} ({})", model.trim()));
        let health = disk.health.get().map_or("", |Text(health)| health.as_str());
        match health {
            "PASSED" | "OK" | "UNKNOWN" | "" => {}
            // SCSI disks write a sentence: "HARDWARE IMPENDING FAILURE ...".
            failed if failed.to_uppercase().contains("FAIL") => self.failing.push(format!("{shown} {health}")),
            _ => self.unclear.push(format!("{shown} is {health:?}")),
        }
        if let Some(Number(left)) = disk.wearout.get().filter(|Number(left)| *left < 0.0) {
            // The field is 100 minus the used life. A disk may be used more than it was built for, or the number is
            // wrong.
            return self.worn.push(format!("{shown} reports that {} % of its life are used", 100.0 - left));
        }
        let left = context.diagnostics.number(&disk.wearout, || format!("wearout of {shown} of {own}"));
        let Some(left) = left else { return };
        match context.settings.upkeep.wear().evaluate(left).0 {
            Status::Critical => self.worn_out.push(format!("{shown} has {left:.0} % left")),
            Status::Warning => self.worn.push(format!("{shown} has {left:.0} % left")),
            Status::Ok | Status::Unknown => {}
        }
    }

    fn verdict(self) -> Verdict {
        let Self { failing, worn_out, worn, unclear } = self;
        if !failing.is_empty() {
            return (Status::Critical, Some(format!("failing: {}; replace it", list(&failing))));
        }
        if !worn_out.is_empty() || !worn.is_empty() {
            let status = if worn_out.is_empty() { Status::Warning } else { Status::Critical };
            return (status, Some(format!("worn: {}", list(&[worn_out, worn].concat()))));
        }
        if !unclear.is_empty() {
            return (Status::Unknown, Some(format!("in a state that this plugin does not know: {}", list(&unclear))));
        }
        (Status::Ok, None)
    }
}

fn updates(context: &mut PollContext, name: String, answer: Answer) -> Read {
    let updates: Vec<Update> = answer.list(&mut context.diagnostics)?;
    let packages: Vec<String> =
        updates.iter().filter_map(|update| update.package.get()).map(|Text(package)| package.clone()).collect();
    let verdict = if updates.is_empty() {
        (Status::Ok, None)
    } else {
        (Status::Warning, Some(format!("{} to be installed: {}", count(updates.len(), "update"), list(&packages))))
    };
    Ok(evaluated(name, "pve-updates", verdict))
}
