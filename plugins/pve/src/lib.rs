//! Kind `pve`: a Proxmox VE cluster, or a standalone node.
//!
//! One request to the cluster replaces one for each guest. Paths below `/cluster` are requested at every poll, paths of
//! a node where only the node has the information, and paths of a guest only if a setting asks for it. The number of
//! requests depends on the number of nodes and not on the number of guests.
//!
//! | request | how often |
//! |---|---|
//! | `/version`, `/cluster/status`, `/cluster/resources`, `/cluster/ha/status/current`, `/cluster/tasks` | each poll |
//! | `/nodes/N/storage` | each poll, for nodes with a storage that the cluster's list does not know |
//! | `/cluster/replication`, and `/nodes/N/replication` of nodes with the source of a job | each minute |
//! | `/cluster/config/qdevice` of a cluster | every five minutes |
//! | `/cluster/backup-info/not-backed-up` (`/cluster/backupinfo/not_backed_up` before 7.0), `/cluster/backup`, `/nodes/N/tasks` of each node | every five minutes |
//! | `/nodes/N/certificates/info`, `/nodes/N/disks/zfs` of each node; optional: `/nodes/N/disks/list`, `/nodes/N/apt/update`, `/nodes/N/subscription` (also for samples) | each hour |
//! | `/cluster/ceph/status`, or `/nodes/N/ceph/status` if the node that was asked has no Ceph | each minute; each hour if there is no Ceph |
//! | `/access/permissions` | if a list is empty or a node reports nothing, which may be a missing privilege |
//! | `/nodes/N/qemu/ID/config`, `/nodes/N/lxc/ID/config` | if a setting needs `onboot`: at most 20 guests in a poll, and each guest every ten minutes at most |
//! | `/nodes/N/tasks` of a guest | at the first check, for at most ten guests that are expected to run and do not: who stopped them? |
//!
//! Dependencies: `api`, `cluster/quorum`, `cluster/qdevice`, `resources` (the list of resources as a whole), `node/N`,
//! `guest/ID`, `storage/S` if shared, else `storage/S@N`, `ha`, `ha/lrm/N`, `ha/service/SID`, `replication/ID`,
//! `backup/coverage`, `backup/node/N`, `backup/guest/ID`, `ceph`, `ceph/CHECK`, `certificate/N`, `zfs/N`, `disks/N`,
//! `updates/N`, `subscription/N`.
//!
//! An offline node is critical itself. Whatever runs on it is unknown.

#![deny(unsafe_code)]

mod backups;
mod ceph;
mod cluster;
mod cluster_view;
mod context;
mod guests;
mod ha;
mod memory;
mod nodes;
mod onboot;
mod qdevice;
mod replication;
mod resources;
mod rights;
mod samples;
mod settings;
mod setup;
mod stopped;
mod storages;
mod tasks;
mod upkeep;

use cluster::Cluster;
use context::{Memory, PollContext};
use polliwog_sdk::prelude::*;
use polliwog_sdk::{Guide, Member, SecretSpec, Setup};
use proxmox::{Answer, Api, Error, Part, Product, connect, run};
use resources::{Resource, Resources};
use settings::Settings;
use std::cell::Cell;
use std::time::Duration;

/// The plugin.
pub struct Pve;

impl Poller for Pve {
    type Settings = Settings;

    const INFO: Info = Info {
        kind: "pve",
        title: "Proxmox VE",
        version: env!("CARGO_PKG_VERSION"),
        summary: "A Proxmox VE cluster: quorum, nodes, guests, storages, HA, replication, backups",
        default_interval: Duration::from_secs(10),
        default_timeout: Duration::from_secs(30),
        ..Info::SERVICE
    };

    fn secrets() -> Vec<SecretSpec> {
        let token = "An API token with the role PVEAuditor on /, whole: USER@REALM!NAME=SECRET";
        let pattern = "[^ :/=\u{feff}]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z][A-Za-z0-9._-]*=[A-Za-z0-9-]{8,}";
        let hint = "write the whole token, as in monitor@pve!polliwog=12345678-1234-1234-1234-123456789abc: user, realm, \
                    name of the token, and its secret after the = (not :, as for Backup Server), without PVEAPIToken= \
                    before it";
        vec![SecretSpec::required("token", token).with_pattern(pattern, hint).with_example(setup::TOKEN_EXAMPLE)]
    }

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        settings.problems()
    }

    fn poll(target: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        let connect = |_: &Settings, memory: &mut Memory| connect(target, Product::Ve, memory, &FIRST, authorize);
        run(target, settings, connect, |context, answers| {
            poll(context, answers);
            samples::bound(context);
        })
    }
}

impl Setup for Pve {
    fn guide() -> Guide {
        setup::guide()
    }

    fn members(target: &Endpoint, _: Settings) -> Result<Vec<Member>, CallError> {
        Ok(setup::members(target, authorize)?)
    }
}

polliwog_sdk::register!(Pve with setup);

/// Adds the token to each request.
#[expect(clippy::unnecessary_wraps, reason = "other products log in")]
fn authorize(api: Api, _: &mut Memory) -> Result<Api, Error> {
    Ok(api.with_header("authorization", format!("PVEAPIToken={}", http::secret("token"))))
}

/// How many guests that were stopped at their first check, and that the cluster's tasks do not mention, are looked up
/// in one poll.
const LOOKUPS: u8 = 10;
const QUORUM: Part<'_> = ("cluster/quorum", &["cluster/qdevice"]);
/// Without the list of resources none of these can be checked.
const RESOURCES: Part<'_> = (
    "resources",
    &[
        "node/",
        "guest/",
        "storage/",
        "replication",
        "replication/",
        "backup/",
        "certificate/",
        "zfs/",
        "disks/",
        "updates/",
        "subscription/",
    ],
);
const HA: Part<'_> = ("ha", &["ha/"]);

/// The paths that are requested at every poll, in addition to `/version`.
const FIRST: [&str; 4] = ["/cluster/status", "/cluster/resources", "/cluster/ha/status/current", "/cluster/tasks"];

/// `answers` are the answers to the paths of [`FIRST`].
fn poll(context: &mut PollContext, answers: Vec<Answer>) {
    let Ok([status, resources, ha, tasks]) = <[Answer; FIRST.len()]>::try_from(answers) else { return };
    let cluster = status.list(&mut context.diagnostics);
    let cluster = cluster.map(|entries| Cluster::new(entries, &mut context.diagnostics));
    let cluster = context.part(QUORUM, cluster);
    let quorum = cluster.as_ref().map(|cluster| cluster.quorum(&mut context.diagnostics));
    context.report.dependencies.extend(quorum);
    let cluster = cluster.unwrap_or_default();
    let resources = read_resources(context, &cluster, &resources);
    let mut resources = context.part(RESOURCES, resources);
    if let Some(resources) = &mut resources {
        context.diagnostics.append(std::mem::take(&mut resources.diagnostics));
        guests::restore_names(context, resources);
    }
    context.report.dependencies.extend(resources.as_ref().map(Resources::dependency));
    qdevice::report(context, &cluster);
    let nodes = nodes::merge(&cluster, resources.as_ref(), &context.settings.nodes, &mut context.diagnostics);
    let ha = ha.list(&mut context.diagnostics);
    let services = context.part(HA, ha).map(|entries| ha::report(context, &entries, &nodes)).unwrap_or_default();
    let tasks = tasks.list(&mut context.diagnostics).unwrap_or_else(|error| {
        // Without the tasks, a stop on purpose looks like any other.
        context.diagnostics.add(|| format!("it is not known who stopped which guest: {}", error.message));
        Vec::new()
    });
    ceph::report(context, &nodes);
    let Some(resources) = resources else { return };
    let hidden = rights::report(context, &resources, &nodes);
    let unresponsive = nodes::unresponsive(context, &nodes);
    let lookups = Cell::new(LOOKUPS);
    let cluster_view = cluster_view::ClusterView {
        nodes: &nodes,
        services: &services,
        tasks: &tasks,
        unresponsive: &unresponsive,
        lookups,
    };
    guests::report(context, &resources, &cluster_view);
    storages::report(context, &resources.storages, &nodes);
    replication::report(context, &resources, &nodes);
    let named = cluster.name().or(nodes.keys().next().map(String::as_str)).unwrap_or_default();
    backups::report(context, &resources.guests, &nodes, named);
    upkeep::report(context, &nodes);
    // Nodes come last: the requests before show whether each can be reached.
    nodes::report(context, &nodes, &unresponsive, &hidden);
}

/// Reads the list of resources, and adds its samples to the report if they are wanted.
fn read_resources<'a>(
    context: &mut PollContext,
    cluster: &Cluster,
    answer: &'a Answer,
) -> Result<Resources<'a>, Error> {
    if !context.settings.samples {
        // An entry of the list is larger than what remains of it, and there may be thousands.
        return answer.collect::<Resource<'_>, Resources<'_>>(&mut context.diagnostics);
    }
    let list: Vec<Resource<'_>> = answer.collect(&mut context.diagnostics)?;
    samples::report(context, cluster, &list);
    let mut resources = Resources::default();
    resources.extend(list);
    Ok(resources)
}
