//! Kind `pve`: a Proxmox VE cluster, or a node that stands alone.
//!
//! One request of the whole cluster is worth one of each guest: what `/cluster/...` says is asked at every poll, what only
//! a node itself can say where it matters, and nothing of a guest unless that is asked for. So the number of requests depends
//! on the number of nodes, and not on that of guests.
//!
//! | asked | how often |
//! |---|---|
//! | `/version`, `/cluster/status`, `/cluster/resources`, `/cluster/ha/status/current`, `/cluster/tasks` | each poll |
//! | `/nodes/N/storage` | each poll, of nodes that have a storage which nobody hears of |
//! | `/cluster/replication`, and `/nodes/N/replication` of nodes with a job's source | each minute |
//! | `/cluster/config/qdevice` of a cluster | each five minutes |
//! | `/cluster/backup-info/not-backed-up` (`/cluster/backupinfo/not_backed_up` before 7.0), `/cluster/backup`, `/nodes/N/tasks` of each node | each five minutes |
//! | `/nodes/N/certificates/info`, `/nodes/N/disks/zfs` of each node; where that is wanted `/nodes/N/disks/list`, `/nodes/N/apt/update`, `/nodes/N/subscription` (for samples too) | each hour |
//! | `/cluster/ceph/status`, or `/nodes/N/ceph/status` where the node that was asked has no Ceph | each minute, where there is Ceph; else each hour |
//! | `/access/permissions` | where nothing is seen, or a node is not heard: is there nothing, or are there no rights? |
//! | `/nodes/N/qemu/ID/config`, `/nodes/N/lxc/ID/config` | where `onboot` is asked for: of 20 guests at each poll at most, and of none more often than each ten minutes |
//! | `/nodes/N/tasks` of a guest | at a first look, of ten guests at most that must run and do not: who stopped them? |
//!
//! Dependencies: `api`, `cluster/quorum`, `cluster/qdevice`, `resources` (whether it is known what there is), `node/N`, `guest/ID`, `storage/S` where shared and `storage/S@N` else, `ha`,
//! `ha/lrm/N`, `ha/service/SID`, `replication/ID`, `backup/coverage`, `backup/node/N`, `backup/guest/ID`, `ceph`, `ceph/CHECK`,
//! `certificate/N`, `zfs/N`, `disks/N`, `updates/N`, `subscription/N`.
//!
//! An offline node is critical by itself; what runs on it is unknown, because nobody can see it.

#![deny(unsafe_code)]

mod backups;
mod ceph;
mod cluster;
mod cluster_view;
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
mod stopped;
mod storages;
mod tasks;
mod upkeep;

use cluster::Cluster;
use polliwog_sdk::SecretSpec;
use polliwog_sdk::prelude::*;
use proxmox::{Answer, Api, Part, Product, connect};
use resources::{Resource, Resources};
use settings::Settings;
use std::cell::Cell;

/// The plugin.
pub struct Pve;

impl Poller for Pve {
    type Settings = Settings;
    const INFO: Info = Info {
        kind: "pve",
        title: "Proxmox VE",
        version: env!("CARGO_PKG_VERSION"),
        summary: "A Proxmox VE cluster: quorum, nodes, guests, storages, HA, replication, backups",
        default_interval_ms: 10_000,
        default_timeout_ms: 30_000,
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec {
            name: "token".to_owned(),
            description: "An API token with the role PVEAuditor on /, whole: USER@REALM!NAME=SECRET".to_owned(),
            required: true,
            pattern: Some("[^ :/=\u{feff}]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z][A-Za-z0-9._-]*=[A-Za-z0-9-]{8,}".to_owned()),
            hint: Some(
                "write the whole token, as in monitor@pve!polliwog=12345678-1234-1234-1234-123456789abc: user, realm, \
                 name of the token, and its secret behind the = (not :, which Backup Server has), without PVEAPIToken= before it"
                    .to_owned(),
            ),
        }]
    }

    fn check(settings: &Settings) -> Vec<String> {
        settings.problems()
    }

    fn poll(target: &Target, settings: Settings) -> Result<Report, PollError> {
        let authorize = |api: Api, _: &mut Memory| Ok(api.with_header("authorization", "PVEAPIToken=${secret.token}"));
        let mut memory = Memory::load(target);
        match connect(target, Product::Ve, &mut memory, &FIRST, authorize) {
            Ok(connected) => {
                let (mut context, answers) = PollContext::new(connected, memory, settings);
                poll(&mut context, answers);
                samples::bound(&mut context);
                Ok(context.finish())
            }
            Err(error) => {
                memory.save();
                Err(error.into())
            }
        }
    }
}

polliwog_sdk::register!(Pve);

/// One poll under way.
type PollContext = proxmox::PollContext<Settings, memory::Memory>;

type Memory = proxmox::Memory<memory::Memory>;

/// Guests that stood still when this plugin began to look, and of which the cluster's tasks say nothing: so many are asked about.
const LOOKUPS: u8 = 10;
const QUORUM: Part<'_> = ("cluster/quorum", &["cluster/qdevice"]);
/// Without the list of what there is nothing of it can be looked at.
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

/// What is asked at every poll, beside `/version`.
const FIRST: [&str; 4] = ["/cluster/status", "/cluster/resources", "/cluster/ha/status/current", "/cluster/tasks"];

/// `answers`: to the paths of [`FIRST`].
fn poll(context: &mut PollContext, answers: Vec<Answer>) {
    let Ok([status, resources, ha, tasks]) = <[Answer; FIRST.len()]>::try_from(answers) else { return };
    let cluster = status.list(&mut context.diagnostics).map(Cluster::new);
    let cluster = context.part(QUORUM, cluster);
    let quorum = cluster.as_ref().map(|cluster| cluster.quorum(&mut context.diagnostics));
    context.report.dependencies.extend(quorum);
    let cluster = cluster.unwrap_or_default();
    let resources = resources.list::<Resource>(&mut context.diagnostics);
    if let (true, Ok(resources)) = (context.settings.samples, &resources) {
        samples::report(context, &cluster, resources);
    }
    let resources = resources.map(|resources| Resources::new(resources, &mut context.diagnostics));
    let mut resources = context.part(RESOURCES, resources);
    if let Some(resources) = &mut resources {
        guests::restore_names(context, resources);
    }
    context.report.dependencies.extend(resources.as_ref().map(Resources::dependency));
    qdevice::report(context, &cluster);
    let nodes = nodes::merge(&cluster, resources.as_ref(), &context.settings.nodes);
    let ha = ha.list(&mut context.diagnostics);
    let services = context.part(HA, ha).map(|entries| ha::report(context, &entries, &nodes)).unwrap_or_default();
    let tasks = tasks.list(&mut context.diagnostics).unwrap_or_else(|error| {
        // Without it a stop on purpose looks like any other; nothing else is lost.
        context.diagnostics.add(|| format!("who stopped which guest is not known: {}", error.message));
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
    // Last: whether a node could be reached is known by now.
    nodes::report(context, &nodes, &unresponsive, &hidden);
}
