//! What is asked of each node once an hour: certificates, ZFS pools, and, where that is wanted, disks, updates, subscriptions.

use crate::Look;
use crate::nodes::{Nodes, answers, unreachable_because};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{
    Answer, Fact, Trouble, Verdict, certificates, count, hourly, judged, list, percent, subscription, worse,
};
use serde::Deserialize;

type Read = Result<Dependency, Trouble>;

/// A disk of this much of its life left, in percent, is a warning, and of that much critical.
const WORN: (f64, f64) = (10.0, 3.0);
const RENEW: &str = "run \"pvecm updatecerts --force\" on the node, or order it anew from ACME";

/// One entry of `/nodes/N/disks/list`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Disk {
    devpath: Field<Text>,
    model: Field<Text>,
    health: Field<Text>,
    /// What is left, in percent; `N/A` for disks that spin.
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

pub(crate) fn report(look: &mut Look, nodes: &Nodes) {
    let wanted = &look.settings.upkeep;
    let all = [
        (true, Fact { sort: "certificate", path: "/certificates/info", read: certificate }),
        (wanted.zfs, Fact { sort: "zfs", path: "/disks/zfs", read: pools }),
        (wanted.disks, Fact { sort: "disks", path: "/disks/list", read: disks }),
        (wanted.updates, Fact { sort: "updates", path: "/apt/update", read: updates }),
        (look.settings.subscription, Fact { sort: "subscription", path: "/subscription", read: subscribed }),
    ];
    let facts: Vec<Fact<_>> = all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, fact)| fact).collect();
    let wanted = nodes.iter().filter(|(_, node)| node.wanted).map(|(name, _)| name);
    let (there, gone): (Vec<&String>, Vec<&String>) = wanted.partition(|name| answers(nodes, name));
    for name in gone {
        for Fact { sort, .. } in &facts {
            look.report.keep(format!("{sort}/{name}"));
        }
    }
    let there: Vec<String> = there.into_iter().cloned().collect();
    for (node, why) in hourly(look, &there, true, &facts) {
        unreachable_because(&node, &why);
    }
}

fn certificate(look: &mut Look, name: String, answer: Answer) -> Read {
    certificates(look, (name, "pve-certificate", |_| RENEW), look.settings.certificates, answer)
}

fn subscribed(look: &mut Look, name: String, answer: Answer) -> Read {
    subscription(look, (name, "pve-subscription"), answer)
}

fn pools(look: &mut Look, name: String, answer: Answer) -> Read {
    let pools: Vec<Pool> = answer.list(&mut look.notes)?;
    let mut worst: Verdict = (Status::Ok, None);
    for pool in &pools {
        worst = worse(worst, pool_verdict(look, pool));
    }
    Ok(judged(name, "pve-zfs", worst).with_description(count(pools.len(), "pool")))
}

fn pool_verdict(look: &mut Look, pool: &Pool) -> Verdict {
    let name = pool.name.get().map_or("a pool", |Text(name)| name.as_str());
    let health = pool.health.get().map_or("", |Text(health)| health.as_str());
    match health {
        "ONLINE" => {}
        "DEGRADED" => {
            let why = format!(
                "pool {name} is degraded: it works without the disks that failed; \"zpool status {name}\" says which"
            );
            return (Status::Critical, Some(why));
        }
        "" => return (Status::Unknown, Some(format!("pool {name} does not say how it is"))),
        // zpoolconcepts(7).
        other if !matches!(other, "FAULTED" | "OFFLINE" | "REMOVED" | "UNAVAIL" | "SUSPENDED") => {
            return (
                Status::Unknown,
                Some(format!("pool {name} is {other:?}, a state that this plugin does not know")),
            );
        }
        other => return (Status::Critical, Some(format!("pool {name} is {other}: look at \"zpool status {name}\""))),
    }
    let size = look.notes.number(&pool.size, || format!("size of pool {name}"));
    let used = look.notes.number(&pool.alloc, || format!("alloc of pool {name}"));
    let Some(share) = used.zip(size).and_then(|(used, size)| percent(used, size)) else { return (Status::Ok, None) };
    let (status, limit) = look.settings.storages.usage().judge(share);
    (status, (status != Status::Ok).then(|| format!("pool {name}: more than {limit} % is used")))
}

fn disks(look: &mut Look, name: String, answer: Answer) -> Read {
    let disks: Vec<Disk> = answer.list(&mut look.notes)?;
    let (mut failing, mut worn, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    let mut worn_out = false;
    for disk in &disks {
        let path = disk.devpath.get().map_or("a disk", |Text(path)| path.as_str());
        let shown =
            disk.model.get().map_or_else(|| path.to_owned(), |Text(model)| format!("{path} ({})", model.trim()));
        let health = disk.health.get().map_or("", |Text(health)| health.as_str());
        match health {
            "PASSED" | "OK" | "UNKNOWN" | "" => {}
            failed if failed.to_uppercase().starts_with("FAIL") => failing.push(format!("{shown} {health}")),
            _ => unclear.push(format!("{shown} is {health:?}")),
        }
        let left = look.notes.number(&disk.wearout, || format!("wearout of {shown} of {name}"));
        if let Some(left) = left.filter(|left| *left <= WORN.0) {
            worn_out |= left <= WORN.1;
            worn.push(format!("{shown} has {left:.0} % left"));
        }
    }
    let verdict = if !failing.is_empty() {
        (Status::Critical, Some(format!("failing: {}; replace it", list(&failing))))
    } else if !worn.is_empty() {
        (if worn_out { Status::Critical } else { Status::Warning }, Some(format!("worn: {}", list(&worn))))
    } else if !unclear.is_empty() {
        let why = format!("in a state that this plugin does not know: {}", list(&unclear));
        (Status::Unknown, Some(why))
    } else {
        (Status::Ok, None)
    };
    Ok(judged(name, "pve-disks", verdict).with_description(count(disks.len(), "disk")))
}

fn updates(look: &mut Look, name: String, answer: Answer) -> Read {
    let updates: Vec<Update> = answer.list(&mut look.notes)?;
    let packages: Vec<String> =
        updates.iter().filter_map(|update| update.package.get()).map(|Text(package)| package.clone()).collect();
    let verdict = if updates.is_empty() {
        (Status::Ok, None)
    } else {
        (Status::Warning, Some(format!("{} to be installed: {}", count(updates.len(), "update"), list(&packages))))
    };
    Ok(judged(name, "pve-updates", verdict))
}
