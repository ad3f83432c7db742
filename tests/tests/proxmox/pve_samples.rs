//! Samples of a cluster, with the names that dashboards for prometheus-pve-exporter use.

use super::*;
use std::collections::BTreeSet;
use tests::proxmox::NOW;

/// The metrics of the exporter for a cluster and its nodes (3.10.0, `src/pve_exporter/collector`).
const NAMES: [&str; 38] = [
    "pve_cluster_info",
    "pve_cpu_usage_limit",
    "pve_cpu_usage_ratio",
    "pve_disk_read_bytes",
    "pve_disk_read_bytes_total",
    "pve_disk_size_bytes",
    "pve_disk_usage_bytes",
    "pve_disk_write_bytes",
    "pve_disk_written_bytes_total",
    "pve_guest_info",
    "pve_ha_state",
    "pve_lock_state",
    "pve_memory_size_bytes",
    "pve_memory_usage_bytes",
    "pve_network_receive_bytes",
    "pve_network_receive_bytes_total",
    "pve_network_transmit_bytes",
    "pve_network_transmit_bytes_total",
    "pve_node_info",
    "pve_not_backed_up_info",
    "pve_not_backed_up_total",
    "pve_onboot_status",
    "pve_qdevice_info",
    "pve_qdevice_up",
    "pve_replication_duration_seconds",
    "pve_replication_failed_syncs",
    "pve_replication_info",
    "pve_replication_last_sync_timestamp_seconds",
    "pve_replication_last_try_timestamp_seconds",
    "pve_replication_next_sync_timestamp_seconds",
    "pve_storage_info",
    "pve_storage_shared",
    "pve_subscription_info",
    "pve_subscription_next_due_timestamp_seconds",
    "pve_subscription_status",
    "pve_up",
    "pve_uptime_seconds",
    "pve_version_info",
];

fn names(report: &Report) -> BTreeSet<&str> {
    report.samples.iter().map(|sample| sample.name.as_str()).collect()
}

/// The value of a series, which is written as Prometheus writes it; `None` if it is missing.
fn value(report: &Report, series: &str) -> Option<f64> {
    let written = |sample: &model::Sample| {
        let labels: Vec<String> = sample.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{}{{{}}}", sample.name, labels.join(","))
    };
    report.samples.iter().find(|sample| written(sample) == series).map(|sample| sample.value)
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_has_every_metric_of_the_exporter() {
    let bench = Bench::new("pve").await.with_settings(r#"{"samples": true, "samples_onboot": true}"#);
    let report = bench.report("guest-stopped+guest-locked+qdevice+subscribed+uncovered").await;
    assert_eq!(names(&report), BTreeSet::from(NAMES));
    for (series, expected) in [
        (r#"pve_up{id="qemu/100"}"#, 0.0),
        (r#"pve_up{id="qemu/101"}"#, 1.0),
        (r#"pve_up{id="cluster/lab"}"#, 1.0),
        (r#"pve_up{id="node/pve3"}"#, 1.0),
        (r#"pve_memory_size_bytes{id="node/pve1"}"#, 64e9),
        (r#"pve_disk_read_bytes{id="lxc/105"}"#, 12_345_678.0),
        (r#"pve_disk_read_bytes_total{id="lxc/105"}"#, 12_345_678.0),
        (r#"pve_node_info{id="node/pve2",level="",name="pve2",nodeid="2"}"#, 1.0),
        (r#"pve_replication_failed_syncs{id="100-0"}"#, 0.0),
        (r#"pve_onboot_status{id="qemu/100",node="pve1",type="qemu"}"#, 1.0),
        (r#"pve_onboot_status{id="qemu/103",node="pve1",type="qemu"}"#, 0.0),
        (r#"pve_subscription_info{id="node/pve2",level="c"}"#, 1.0),
        (r#"pve_subscription_status{id="node/pve2",status="active"}"#, 1.0),
        (r#"pve_subscription_status{id="node/pve2",status="notfound"}"#, 0.0),
        // 2027-03-01.
        (r#"pve_subscription_next_due_timestamp_seconds{id="node/pve2"}"#, 1_803_859_200.0),
        (r#"pve_qdevice_up{id="cluster/lab"}"#, 1.0),
        (r#"pve_lock_state{id="qemu/100",state="backup"}"#, 1.0),
        (r#"pve_lock_state{id="qemu/101",state="backup"}"#, 0.0),
        (r#"pve_ha_state{id="qemu/101",state="started"}"#, 1.0),
        (r#"pve_ha_state{id="lxc/105",state="started"}"#, 0.0),
    ] {
        assert_eq!(value(&report, series), Some(expected), "{series} of {:#?}", report.samples);
    }
    // They are for graphs and have no status.
    assert!(report.dependencies.iter().all(|found| !found.name.starts_with("subscription")));
    assert_eq!(lines(&report).get("guest/100").map(String::as_str), Some("ok (skipped)"));
    let lost = bench.report("qdevice-lost+node-offline").await;
    assert_eq!(value(&lost, r#"pve_qdevice_up{id="cluster/lab"}"#), Some(0.0));
    assert_eq!(value(&lost, r#"pve_ha_state{id="node/pve3",state="online"}"#), Some(0.0));
}

/// Samples of checks that do not run at every poll.
#[tokio::test(flavor = "multi_thread")]
async fn pve_repeats_samples_until_the_next_check() {
    let bench = Bench::new("pve").await.with_settings(r#"{"samples": true}"#);
    let poll = async |bench: &Bench, seconds: i64| {
        let done = bench.poll_at("pve/qdevice+subscribed", Some("same"), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{:?}", done.outcome) };
        report
    };
    let first = poll(&bench, 0).await;
    for seconds in [10, 3000] {
        assert_eq!(names(&poll(&bench, seconds).await), names(&first), "after {seconds} s");
    }
    assert!(!names(&first).contains("pve_onboot_status"), "that costs a request for each guest");
    // Changed settings make everything due, before the hour ends.
    let bench = bench.with_settings(r#"{"subscription": true, "samples_onboot": true}"#);
    let other = poll(&bench, 3010).await;
    assert_eq!(names(&other), BTreeSet::from(["pve_onboot_status"]));
    assert_eq!(lines(&other).get("subscription/pve1").map(String::as_str), Some("ok"));
}

/// A guest has 17 samples, and 20 for states if there is room for them. A report has 100,000 at most.
#[tokio::test(flavor = "multi_thread")]
async fn pve_limits_the_samples_of_a_report() {
    let bench = Bench::new("pve").await.with_settings(r#"{"samples": true}"#);
    let report = bench.report("guests-6000").await;
    assert_eq!(report.samples.len(), 100_000);
    assert!(
        report.warnings.iter().any(|warning| warning.contains("samples, and at most 100000 are accepted")),
        "{:?}",
        report.warnings
    );
    let report = bench.report("guests-1999").await;
    assert!((73_900..75_000).contains(&report.samples.len()), "{}", report.samples.len());
    let report = bench.report("guests-5000").await;
    assert!(
        (85_000..100_000).contains(&report.samples.len()) && report.warnings.is_empty(),
        "{}",
        report.samples.len()
    );
}

/// A configuration that cannot be read does not mean that the guest is not started with its node.
#[tokio::test(flavor = "multi_thread")]
async fn pve_has_no_sample_for_unreadable_configurations() {
    let bench = Bench::new("pve").await.with_settings(r#"{"samples_onboot": true}"#);
    let report = bench.report("node-unreachable").await;
    let of_pve3 =
        report.samples.iter().filter(|sample| sample.labels.contains(&("node".to_owned(), "pve3".to_owned())));
    assert_eq!((of_pve3.count(), names(&report).len()), (0, 1), "{:?}", report.samples);
    assert!(bench.report("lists").await.samples.is_empty());
}
