//! Versions that answer in other shapes and words.

use super::*;

/// Proxmox VE 6.2 cannot list guests in no job, and reports less, in other words. The plugin finds the same faults.
#[tokio::test(flavor = "multi_thread")]
async fn pve_6_2_is_evaluated_like_9_1() {
    let bench = Bench::new("pve").await.with_settings(r#"{"guests": {"expected": ["100"]}, "samples": true}"#);
    let healthy = bench.report("healthy").await;
    for wish in [
        "healthy",
        "strings",
        "qdevice-lost",
        "no-audit",
        "no-quorum",
        "guest-stopped",
        "stopped-on-purpose",
        "storage-lost",
        "ha-error",
        "ha-dead",
        "node-offline",
        "node-unreachable",
        "replication-failing",
        "uncovered",
        "backup-off",
        "backup-failed",
        "backup-never",
        "certificate-ended+ca-ends",
        "zfs-degraded",
        "no-ha",
        "standalone",
    ] {
        let (now, then) = (bench.report(wish).await, bench.report(&format!("old+{wish}")).await);
        assert_eq!(difference(&healthy, &then), difference(&healthy, &now), "{wish}");
    }
    // A node did not report its own maintenance mode.
    check(&bench, &healthy, ("old+maintenance", &["ha/lrm/pve3 warning: *maintenance mode"])).await;
    // Without readable numbers, nothing is ok or critical there either.
    for wish in ["nulls", "minus", "lists", "without-numbers"] {
        let found = lines(&bench.report(&format!("old+{wish}")).await);
        assert!(found.values().all(|line| !line.starts_with("critical")), "{wish}: {found:?}");
        let sized = || found.iter().filter(|(name, _)| name.starts_with("storage/"));
        let coverage = &found["backup/coverage"];
        assert!(coverage.starts_with("unknown: "), "{wish}: {coverage}");
        if wish == "lists" {
            assert!(
                coverage.starts_with("unknown: which guests a backup job covers cannot be read: its enabled is"),
                "{coverage}"
            );
        }
        assert!(sized().count() > 0 && sized().all(|(_, line)| line.starts_with("unknown")), "{wish}: {found:?}");
    }
    let report = bench.report("old+subscription-expired").await;
    let subscription = |status: &str| {
        let of = [("id".to_owned(), "node/pve1".to_owned()), ("status".to_owned(), status.to_owned())];
        report.samples.iter().find(|sample| sample.labels == of).map(|sample| sample.value)
    };
    assert_eq!((subscription("expired"), subscription("active")), (Some(1.0), Some(0.0)));
}

/// Versions before 9.1.5 report why they do not accept a token, and each reason has its own remedy.
#[tokio::test(flavor = "multi_thread")]
async fn pve_before_9_1_5_reports_why_a_token_is_refused() {
    let mut bench = Bench::new("pve").await;
    for (token, says) in [
        (
            "guest@pve!polliwog=11111111-2222-3333-4444-555555555555",
            "there is no such user: check the part before the !",
        ),
        ("monitor@pve!other=11111111-2222-3333-4444-555555555555", "the user is right and has no token of that name"),
        (
            "monitor@pve!polliwog=99999999-2222-3333-4444-555555555555",
            "its secret is wrong; if the secret is lost, create the token again",
        ),
    ] {
        bench = bench.with_secret(("token", token));
        fails(&bench, "old", FailureCategory::Misconfigured, "unauthorized", says).await;
    }
}

/// Backup Server 3.2 lists only sync jobs that pull, and knows no removable disks.
#[tokio::test(flavor = "multi_thread")]
async fn pbs_3_2_is_evaluated_like_4_2() {
    let bench = Bench::new("pbs").await;
    let healthy = bench.report("healthy").await;
    for wish in [
        "healthy",
        "strings",
        "no-audit",
        "datastore-error",
        "datastore-usage-broken",
        "maintenance",
        "datastore-full",
        "full-soon",
        "gc-failed",
        "verify-failed",
        "sync-failed",
        "prune-off",
        "job-late",
        "group-old",
        "snapshot-damaged",
        "tasks-failed",
    ] {
        let mut now = difference(&healthy, &bench.report(wish).await);
        now.retain(|line| !line.starts_with("sync/s-push"));
        let mut then = difference(&healthy, &bench.report(&format!("old+{wish}")).await);
        then.retain(|line| line != "sync/s-push is not there");
        assert_eq!(then, now, "{wish}");
    }
}
