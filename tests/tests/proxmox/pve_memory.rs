//! State that a poll of a cluster stores for the next poll.

use model::{Outcome, Report};
use tests::proxmox::{Bench, NOW, lines, status};

/// Names and states are remembered for polls at which the cluster cannot report them.
#[tokio::test(flavor = "multi_thread")]
async fn pve_remembers_what_a_dead_node_cannot_report() {
    let bench = Bench::new("pve").await;
    let poll = async |wish: &str, seconds: i64| {
        let done = bench.poll_at(&format!("pve/{wish}"), Some("same"), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{wish}: {:?}", done.outcome) };
        report
    };
    let title = |report: &Report, name: &str| {
        report.dependencies.iter().find(|dependency| dependency.name == name).and_then(|found| found.title.clone())
    };
    assert_eq!(title(&poll("healthy", 0).await, "guest/102").as_deref(), Some("dns-1"));
    let report = poll("node-offline", 10).await;
    assert_eq!(title(&report, "guest/102").as_deref(), Some("dns-1"), "its node forgot the name, not Polliwog");

    // A guest that is expected to run has its grace period. A stop on purpose is a warning for as long as it lasts.
    let status = |report: &Report| lines(report)["guest/100"].clone();
    assert!(status(&poll("guest-stopped", 20).await).starts_with("warning: expected to run, but is stopped since"));
    assert!(status(&poll("guest-stopped", 139).await).starts_with("warning"));
    assert!(status(&poll("guest-stopped", 140).await).starts_with("critical: expected to run, but is stopped since"));
    assert_eq!(status(&poll("healthy", 150).await), "ok");
    assert!(status(&poll("guest-stopped+stopped-on-purpose", 160).await).contains("on purpose by root@pam"));
    // It is started for its backup, which locks it, and is stopped again.
    assert_eq!(status(&poll("guest-prelaunch", 170).await), "ok (skipped)");
    assert_eq!(status(&poll("guest-locked", 180).await), "ok (skipped)");
    assert!(
        status(&poll("guest-stopped", 9_999).await).contains("on purpose by root@pam"),
        "its task is listed no more"
    );

    // A stop before the guest last ran explains nothing. At the first check, the tasks of its node are requested.
    assert_eq!(status(&poll("healthy", 10_000).await), "ok");
    assert!(
        status(&poll("guest-stopped+stopped-long-ago", 10_010).await)
            .starts_with("warning: expected to run, but is stopped")
    );
    let first = bench.report("guest-stopped+stopped-long-ago").await;
    assert!(status(&first).contains("on purpose by root@pam at 2026-11-13 12:00 UTC"), "{}", status(&first));

    // A node that stops reporting keeps its state for a moment and is unknown after that. A template is still not a
    // guest.
    let silent = poll("mute", 10_020).await;
    assert!(!lines(&silent).contains_key("node/pve1") && silent.kept.contains(&"node/pve1".to_owned()), "{silent:?}");
    assert!(silent.kept.contains(&"guest/101".to_owned()), "{silent:?}");
    let silent = poll("mute", 10_080).await;
    assert!(lines(&silent)["node/pve1"].starts_with("warning: pve1 does not report its state"), "{silent:?}");
    assert!(lines(&silent)["guest/101"].starts_with("unknown: pve2 does not report its state"), "{silent:?}");
    assert_eq!(title(&silent, "guest/101").as_deref(), Some("db-1"));
    assert!(!lines(&silent).contains_key("guest/9000"), "{silent:?}");

    // A service that finds no node becomes critical.
    let status = |report: &Report| lines(report)["ha/service/vm:101"].clone();
    assert!(status(&poll("ha-recovery", 9_000).await).starts_with("warning: recovery"));
    assert!(status(&poll("ha-recovery", 9_300).await).starts_with("critical: recovery: HA has found no node"));
    assert_eq!(status(&poll("healthy", 9_310).await), "ok");
    assert!(status(&poll("ha-recovery", 9_320).await).starts_with("warning"), "its time starts again");

    // A part that cannot be read keeps its state for two minutes, and is unknown after that.
    let kept = poll("broken", 20_000).await.kept;
    assert!(kept.contains(&"guest/".to_owned()) && kept.contains(&"cluster/quorum".to_owned()), "{kept:?}");
    let late = poll("broken", 20_120).await;
    assert!(
        lines(&late)["cluster/quorum"].starts_with("unknown: /cluster/status failed on the server"),
        "{:?}",
        lines(&late)
    );
    assert!(lines(&poll("healthy", 20_310).await)["cluster/quorum"] == "ok");
    assert!(poll("broken", 20_320).await.kept.contains(&"cluster/quorum".to_owned()), "its time starts again");
}

/// Dependencies that cannot be checked are unknown and not removed. A check that no longer complains is ok.
#[tokio::test(flavor = "multi_thread")]
async fn pve_reports_hidden_dependencies_as_unknown() {
    let bench = Bench::new("pve").await;
    let poll = async |wish: &str, seconds: i64| {
        let done = bench.poll_at(&format!("pve/{wish}"), Some("same"), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{wish}: {:?}", done.outcome) };
        report
    };

    let healthy = poll("ceph-warn", 0).await;
    assert!(status(&healthy, "ceph/OSD_DOWN").starts_with("warning"));
    let over = poll("ceph", 3_601).await;
    assert_eq!(status(&over, "ceph/OSD_DOWN"), "ok", "{:?}", lines(&over));

    // Dependencies that are hidden from a token without privileges are not removed.
    let hidden = poll("ceph+no-rights", 5_000).await;
    assert_eq!(status(&hidden, "guest/101"), "unknown: the token lacks VM.Audit, so it is hidden: see \"api\"");
    assert!(status(&hidden, "storage/local@pve1").starts_with("unknown: the token lacks Datastore.Audit"));
    assert_eq!(lines(&poll("ceph", 5_010).await)["guest/101"], "ok");

    // All dependencies are unknown, with their titles, when the cluster cannot report its state.
    poll("broken", 10_000).await;
    let broken = poll("broken", 10_120).await;
    assert!(broken.kept.iter().all(|kept| kept != "guest/"), "{:?}", broken.kept);
    for name in over.dependencies.iter().map(|dependency| dependency.name.as_str()).filter(|name| *name != "api") {
        let line = status(&broken, name);
        let kept =
            broken.kept.iter().any(|kept| kept == name || kept.ends_with('/') && name.starts_with(kept.as_str()));
        assert!(line.starts_with("unknown") || kept, "{name}: {line:?}, {:?}", broken.kept);
    }
    let guest = broken.dependencies.iter().find(|dependency| dependency.name == "guest/100").unwrap();
    assert_eq!((guest.title.as_deref(), &guest.runs_on[..]), (Some("web-1"), &["node/pve1".to_owned()][..]));
    assert_eq!(guest.error_message.as_deref(), Some("it cannot be checked: see \"resources\""));
    let back = poll("ceph", 10_300).await;
    assert_eq!(lines(&back), lines(&over));

    // It is not known whether the backups of a dead node get too old.
    let offline = poll("ceph+node-offline", 20_000).await;
    assert_eq!(status(&offline, "zfs/pve3"), "unknown: it cannot be checked: its node pve3 is offline");
    assert_eq!(status(&offline, "backup/node/pve3"), "unknown: it cannot be checked: its node pve3 is offline");

    // A part that becomes readable again is checked immediately.
    let said = |report: &Report| status(report, "zfs/pve3");
    assert_eq!(
        said(&poll("ceph+node-offline", 20_010).await),
        "unknown: it cannot be checked: its node pve3 is \
                                                                offline"
    );
    poll("ceph", 20_020).await;
    let back = poll("ceph", 20_030).await;
    assert_eq!((said(&back).as_str(), status(&back, "backup/node/pve3").as_str()), ("ok", "ok"), "{:?}", lines(&back));
    let quiet = bench.poll_at("pve/ceph", Some("same"), NOW + 20_040).await;
    assert_eq!(quiet.usage.requests, 5, "and then at its time");
    assert_eq!(
        said(&poll("ceph+node-offline", 20_050).await),
        "unknown: it cannot be checked: its node pve3 is \
                                                                offline"
    );
    let quiet = bench.poll_at("pve/ceph+node-offline", Some("same"), NOW + 20_055).await;
    assert_eq!(quiet.usage.requests, 5, "a node that is gone makes nothing due");

    // A value beyond a threshold stays flagged until it is clearly back.
    let storage = |report: &Report| status(report, "storage/nfs-backup");
    assert_eq!(storage(&poll("storage-easing", 30_000).await), "ok");
    assert!(storage(&poll("storage-full", 30_010).await).starts_with("critical: more than 95 % is used"));
    let easing = poll("storage-easing", 30_020).await;
    assert_eq!(storage(&easing), "warning: more than 80.75 % is used, and it was past 85: make room, or give it more");
    assert_eq!(storage(&poll("healthy", 30_030).await), "ok");
    assert_eq!(storage(&poll("storage-easing", 30_040).await), "ok");
}

/// It is not known since when a guest is stopped if it was never seen running.
#[tokio::test(flavor = "multi_thread")]
async fn pve_reports_no_stop_time_for_guests_never_seen_running() {
    let poll = async |bench: &Bench, target: &str, wish: &str, seconds: i64| {
        let done = bench.poll_at(&format!("pve/no-ha+nodes-1+{wish}"), Some(target), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{:?}", done.outcome) };
        lines(&report)["guest/100"].clone()
    };
    let unseen = "since when is not known at the first check";
    // The guest is expected to run from now on.
    let mut bench = Bench::new("pve").await.with_settings(r#"{"guests": {"expected": ["101"]}}"#);
    assert_eq!(poll(&bench, "new", "guest-stopped", 0).await, "ok (skipped)");
    bench = bench.with_settings(r#"{"guests": {"expected": ["100", "101"]}}"#);
    assert!(poll(&bench, "new", "guest-stopped", 600).await.contains(unseen));
    assert!(poll(&bench, "new", "guest-stopped", 900).await.contains("since 2026-11-20 12:10 UTC or longer"));
    // Its node did not report it yet, or was offline.
    assert!(poll(&bench, "mute", "mute", 0).await.starts_with("unknown"));
    assert!(poll(&bench, "mute", "guest-stopped", 60).await.contains(unseen));
    assert_eq!(poll(&bench, "away", "healthy", 0).await, "ok");
    assert!(poll(&bench, "away", "node-offline", 60).await.starts_with("unknown"));
    assert!(poll(&bench, "away", "guest-stopped", 4_000).await.contains(unseen));
    // It ran a moment ago.
    assert_eq!(poll(&bench, "seen", "healthy", 0).await, "ok");
    assert!(poll(&bench, "seen", "guest-stopped", 60).await.ends_with("is stopped since 2026-11-20 12:01 UTC"));
}
