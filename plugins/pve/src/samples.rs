//! Samples, with the names that prometheus-pve-exporter uses, so that dashboards for it work.
//!
//! They are an option because there are many: 37 for each guest. The host adds `instance` and `instance_type`.
//! Differences to the exporter: in very large clusters, HA states and locks are reported only for guests that have one.
//! A guest whose configuration has no `onboot` is not started with its node. The subscription of every node is
//! requested and every guest for its configuration.

use crate::cluster::Cluster;
use crate::context::PollContext;
use crate::resources::{Guest, Resource};
use polliwog_sdk::Sample;
use polliwog_sdk::lenient::{BorrowedText, Field, Flag, Lazy, Number, Text};
use proxmox::{Answer, seconds};
use serde::Deserialize;

/// The largest number of samples that the host accepts in a report.
const MOST: usize = 100_000;
/// Up to this number of guests, each has 20 samples that are 0 if it has no HA state and no lock. Larger clusters have
/// no room for them.
const WITH_ZEROS: usize = 2_000;
const GUEST_STATES: [&str; 11] = [
    "stopped",
    "request_stop",
    "request_start",
    "request_start_balance",
    "started",
    "fence",
    "recovery",
    "migrate",
    "relocate",
    "freeze",
    "error",
];
const NODE_STATES: [&str; 5] = ["online", "maintenance", "unknown", "fence", "gone"];
const LOCKS: [&str; 9] =
    ["backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspended", "suspending"];

const SUBSCRIPTIONS: [&str; 6] = ["new", "notfound", "active", "invalid", "expired", "suspended"];

/// Adds the samples to the report. Fields that cannot be read are skipped; diagnostics report them elsewhere.
pub(crate) fn report(context: &mut PollContext, cluster: &Cluster, resources: &[Resource<'_>]) {
    let guests = resources.iter().filter(|resource| is_guest(resource)).count();
    let (zeros, for_each) = if guests <= WITH_ZEROS { (Zeros::Included, 37) } else { (Zeros::Omitted, 17) };
    let version = version(context);
    let samples = &mut context.report.samples;
    // A list that grows by copying itself would take twice the memory, and a large cluster needs most of it.
    samples.reserve(MOST.min(resources.len() * for_each));
    samples.extend(cluster_samples(cluster));
    samples.push(version);
    resources.iter().for_each(|resource| add(resource, samples, zeros));
}

/// Drops the samples beyond the limit, so that the host accepts the others.
pub(crate) fn bound(context: &mut PollContext) {
    let all = context.report.samples.len();
    if all > MOST {
        context.report.samples.truncate(MOST);
        context
            .diagnostics
            .add(|| format!("there are {all} samples, and at most {MOST} are accepted: the others are dropped"));
    }
}

fn cluster_samples(cluster: &Cluster) -> Vec<Sample> {
    let up = |id: String, is_up: bool| Sample::gauge("pve_up", f64::from(u8::from(is_up))).with_label("id", id);
    let nodes = cluster.online.iter().filter_map(|(name, online)| Some(up(format!("node/{name}"), (*online)?)));
    let itself = cluster.name().zip(cluster.quorate()).map(|(name, quorate)| up(format!("cluster/{name}"), quorate));
    let info = |name: &str, id: String| Sample::gauge(name, 1.0).with_label("id", id);
    let node_info = cluster.labels.iter().map(|[name, number, level]| {
        let sample = info("pve_node_info", format!("node/{name}"));
        sample.with_label("level", level).with_label("name", name).with_label("nodeid", number)
    });
    let cluster_info =
        cluster.name().zip(cluster.quorate()).zip(cluster.size()).map(|((name, quorate), (nodes, version))| {
            let sample = info("pve_cluster_info", format!("cluster/{name}")).with_label("nodes", nodes.to_string());
            sample.with_label("quorate", u8::from(quorate).to_string()).with_label("version", version.to_string())
        });
    nodes.chain(itself).chain(node_info).chain(cluster_info).collect()
}

/// `/nodes/N/subscription`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Subscription {
    level: Field<Text>,
    status: Field<Text>,
    nextduedate: Field<Text>,
}

/// Adds the samples of a node's subscription, `subscription/pve1`. Errors are reported elsewhere.
pub(crate) fn subscription(context: &mut PollContext, name: &str, answer: Answer) {
    let Some((_, node)) = name.split_once('/').filter(|_| context.settings.samples) else { return };
    let Ok(found) = answer.read::<Subscription>() else { return };
    let id = format!("node/{node}");
    let word = |field: &Field<Text>| field.get().map_or("unknown".to_owned(), |Text(text)| text.clone());
    let status = word(&found.status).to_lowercase();
    let one = |state: &&str| one_of("pve_subscription_status", &id, ("status", state), *state == status);
    let samples = &mut context.report.samples;
    samples.push(
        Sample::gauge("pve_subscription_info", 1.0).with_label("id", &id).with_label("level", word(&found.level)),
    );
    samples.extend(SUBSCRIPTIONS.iter().map(one));
    // A day without a time zone. The exporter uses its own.
    let due = found.nextduedate.get().and_then(|Text(day)| seconds(&format!("{day}T00:00:00Z")));
    let due = due.map(|due| Sample::gauge("pve_subscription_next_due_timestamp_seconds", due).with_label("id", &id));
    samples.extend(due);
}

/// Adds the samples of the QDevice: whether it is connected, and its labels.
pub(crate) fn qdevice(context: &mut PollContext, cluster: &str, connected: bool, labels: [(&str, &Field<Text>); 5]) {
    let gauge = |name: &str, value: f64| Sample::gauge(name, value).with_label("id", format!("cluster/{cluster}"));
    let info = labels.into_iter().fold(gauge("pve_qdevice_info", 1.0), |info, (label, field)| {
        info.with_label(label, field.get().map(|Text(text)| text.clone()).unwrap_or_default())
    });
    context.report.samples.extend([gauge("pve_qdevice_up", f64::from(u8::from(connected))), info]);
}

/// Adds whether these guests are started with their node.
pub(crate) fn onboot<'a>(context: &mut PollContext, guests: impl Iterator<Item = (&'a Guest<'a>, bool)>) {
    for (guest, onboot) in guests {
        let kind = guest.kind();
        let sample = Sample::gauge("pve_onboot_status", f64::from(u8::from(onboot)))
            .with_label("id", format!("{kind}/{}", guest.id))
            .with_label("node", &*guest.node)
            .with_label("type", kind);
        context.report.samples.push(sample);
    }
}

/// `pve_version_info`.
fn version(context: &PollContext) -> Sample {
    let sample = Sample::gauge("pve_version_info", 1.0);
    context.api.version().iter().fold(sample, |sample, (label, text)| sample.with_label(*label, text))
}

/// Whether a guest without an HA state or lock has samples for them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    Included,
    Omitted,
}

fn is_guest(resource: &Resource<'_>) -> bool {
    resource.kind.get().is_some_and(|BorrowedText(kind)| matches!(&**kind, "qemu" | "lxc"))
}

fn add(resource: &Resource<'_>, samples: &mut Vec<Sample>, zeros: Zeros) {
    let (Some(BorrowedText(kind)), Some(BorrowedText(id))) = (resource.kind.get(), resource.id.get()) else { return };
    let (kind, id) = (&**kind, &**id);
    let guest = is_guest(resource);
    if !guest && !matches!(kind, "node" | "storage") {
        return;
    }
    let number =
        |field: Lazy<'_, Number>| field.read().get().map(|Number(number)| *number).filter(|number| *number >= 0.0);
    let gauge = |(name, field)| Some(Sample::gauge(name, number(field)?).with_label("id", id));
    let counter = |(name, field)| Some(Sample::counter(name, number(field)?).with_label("id", id));
    samples.extend(gauges(resource).into_iter().filter_map(gauge));
    samples.extend(counters(resource).into_iter().filter_map(counter));
    if let Some(Flag(shared)) = resource.shared.get() {
        samples.push(Sample::gauge("pve_storage_shared", f64::from(u8::from(*shared))).with_label("id", id));
    }
    if let Some(BorrowedText(status)) = resource.status.get().filter(|_| kind != "node") {
        let up = *status == if guest { "running" } else { "available" };
        samples.push(Sample::gauge("pve_up", f64::from(u8::from(up))).with_label("id", id));
    }
    if guest && (zeros == Zeros::Included || resource.hastate != Field::Absent) {
        states(samples, ("pve_ha_state", id), &resource.hastate, &GUEST_STATES);
    }
    if guest && (zeros == Zeros::Included || resource.lock != Field::Absent) {
        states(samples, ("pve_lock_state", id), &resource.lock, &LOCKS);
    }
    if kind == "node" {
        states(samples, ("pve_ha_state", id), &resource.hastate, &NODE_STATES);
    }
    samples.extend(info(resource, kind, id));
}

fn gauges<'a>(resource: &Resource<'a>) -> [(&'static str, Lazy<'a, Number>); 11] {
    [
        ("pve_disk_size_bytes", resource.maxdisk),
        ("pve_disk_usage_bytes", resource.disk),
        ("pve_memory_size_bytes", resource.maxmem),
        ("pve_memory_usage_bytes", resource.mem),
        ("pve_network_transmit_bytes", resource.netout),
        ("pve_network_receive_bytes", resource.netin),
        ("pve_disk_write_bytes", resource.diskwrite),
        ("pve_disk_read_bytes", resource.diskread),
        ("pve_cpu_usage_ratio", resource.cpu),
        ("pve_cpu_usage_limit", resource.maxcpu),
        ("pve_uptime_seconds", resource.uptime),
    ]
}

fn counters<'a>(resource: &Resource<'a>) -> [(&'static str, Lazy<'a, Number>); 4] {
    [
        ("pve_network_transmit_bytes_total", resource.netout),
        ("pve_network_receive_bytes_total", resource.netin),
        ("pve_disk_written_bytes_total", resource.diskwrite),
        ("pve_disk_read_bytes_total", resource.diskread),
    ]
}

fn info(resource: &Resource<'_>, kind: &str, id: &str) -> Option<Sample> {
    let word = |field: &Field<BorrowedText<'_>>| field.get().map(|text| text.0.to_string()).unwrap_or_default();
    let one = |name: &str| Sample::gauge(name, 1.0).with_label("id", id).with_label("node", word(&resource.node));
    match kind {
        "storage" => {
            // The order changes at every poll, and another order would be another series.
            let content = word(&resource.content);
            let mut content: Vec<&str> = content.split(',').collect();
            content.sort_unstable();
            let sample = one("pve_storage_info").with_label("storage", word(&resource.storage));
            Some(sample.with_label("plugintype", word(&resource.plugintype)).with_label("content", content.join(",")))
        }
        "qemu" | "lxc" => {
            let template = resource.template.get().map_or("", |Flag(template)| if *template { "1" } else { "0" });
            let sample = one("pve_guest_info").with_label("name", word(&resource.name)).with_label("type", kind);
            Some(sample.with_label("template", template).with_label("tags", word(&resource.tags)))
        }
        _ => None,
    }
}

/// Adds a sample for each state: 1 for the current one, 0 for the others.
fn states(samples: &mut Vec<Sample>, (name, id): (&str, &str), state: &Field<BorrowedText<'_>>, all: &[&str]) {
    let found = state.get().map(|BorrowedText(found)| &**found);
    samples.extend(all.iter().map(|state| one_of(name, id, ("state", state), found == Some(*state))));
}

/// A sample for one value of a label: 1 if it is the current one.
fn one_of(name: &str, id: &str, (label, value): (&str, &str), is: bool) -> Sample {
    Sample::gauge(name, f64::from(u8::from(is))).with_label("id", id).with_label(label, value)
}
