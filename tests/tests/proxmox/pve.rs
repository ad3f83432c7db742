//! Proxmox VE.

use super::{check, fails, odd_bodies};
use model::{FailureCategory, Outcome, Report};
use tests::proxmox::{Bench, NOW, lines, status};

#[tokio::test(flavor = "multi_thread")]
async fn pve_reports_each_fault_and_nothing_else() {
    let bench = Bench::new("pve").await;
    let healthy = bench.report("healthy").await;
    let bad: Vec<String> = lines(&healthy)
        .into_iter()
        .filter(|(_, line)| !line.starts_with("ok"))
        .map(|(name, line)| format!("{name} {line}"))
        .collect();
    assert!(bad.is_empty() && healthy.warnings.is_empty() && healthy.kept.is_empty(), "{bad:?} {healthy:?}");
    assert_eq!(healthy.dependencies.len(), 41, "{:?}", lines(&healthy));
    let parents: Vec<&str> = healthy
        .dependencies
        .iter()
        .filter(|of| of.name == "guest/101")
        .flat_map(|of| &of.runs_on)
        .map(String::as_str)
        .collect();
    assert_eq!(parents, ["node/pve2"]);
    let unseen: &[&str] = &[
        "guest/* is not there",
        "storage/* is not there",
        "replication/* is not there",
        "replication ok (skipped)",
        "backup/guest/100 is not there",
    ];
    let no_audit: &[&str] = &[
        "cluster/quorum unknown: *lack Sys.Audit on /: run on the server \"pveum acl modify / -user*-token*",
        "ha unknown: *lack Sys.Audit on /*",
        "ha/* is not there",
        "backup/coverage unknown: *lack Sys.Audit on /*",
    ];
    let cases: &[(&str, &[&str])] = &[
        (
            "standalone",
            &[
                "cluster/quorum ok (skipped)",
                "ha ok (skipped)",
                "ha/* is not there",
                "*pve2 is not there",
                "*pve3 is not there",
                "replication/* is not there",
                "replication ok (skipped)",
            ],
        ),
        (
            "node-offline",
            &[
                "node/pve3 critical: pve3 is offline*",
                "guest/102 unknown: *its node pve3 is offline",
                "guest/105 unknown: *its node pve3 is offline",
                "storage/*@pve3 unknown: *its node pve3 is offline",
                "ha/lrm/pve3 unknown: *its node pve3 is offline",
                "backup/node/pve3 is not there",
                "backup/node/pve3 is kept",
                "backup/guest/ is kept",
                "certificate/pve3 is not there",
                "certificate/pve3 is kept",
                "zfs/pve3 is not there",
                "zfs/pve3 is kept",
            ],
        ),
        (
            "node-unreachable",
            &[
                "node/pve3 warning: *cannot reach the node*595, \"No route to host\"*",
                "backup/node/pve3 is not there",
                "backup/node/pve3 is kept",
                "backup/guest/ is kept",
                "warning: the last backups of pve3 are not known: *595*",
                "certificate/pve3 is not there",
                "certificate/pve3 is kept",
                "zfs/pve3 is not there",
                "zfs/pve3 is kept",
            ],
        ),
        (
            "node-slow",
            &[
                "node/pve3 warning: *596*",
                "backup/node/pve3 is not there",
                "backup/*is kept",
                "warning: the last backups of pve3*",
                "certificate/pve3 is not there",
                "certificate/pve3 is kept",
                "zfs/pve3 is not there",
                "zfs/pve3 is kept",
            ],
        ),
        ("no-quorum", &["cluster/quorum critical: the cluster has no quorum*", "ha critical: HA has no quorum*"]),
        (
            "maintenance",
            &["node/pve3 warning: pve3 is in HA maintenance mode", "ha/lrm/pve3 warning: *maintenance mode"],
        ),
        ("mute", &["node/pve* warning: *pvesm status*pvestatd*", "guest/* unknown: *pvesm status*, and pvestatd"]),
        (
            "no-rights",
            &[
                no_audit,
                unseen,
                &["api warning: the token lacks Sys.Audit, VM.Audit, Datastore.Audit, or has it on / alone*"],
            ]
            .concat(),
        ),
        ("no-audit", &[no_audit, &["api warning: the token lacks Sys.Audit, or*"][..]].concat()),
        (
            "guest-stopped",
            &["guest/100 warning: expected to run, but is stopped; since when is not known at the first \
                             check"],
        ),
        ("guest-stopped+stopped-on-purpose", &["guest/100 warning: *on purpose by root@pam at 2026-11-20 11:55 UTC"]),
        ("guest-locked", &["guest/100 ok (skipped)"]),
        ("guest-io-error", &["guest/100 critical: io-error: *qm resume*"]),
        (
            "storage-full",
            &[
                "storage/local-zfs@pve* critical: more than 95 % is used*",
                "storage/nfs-backup critical: more than 95 %*",
            ],
        ),
        ("storage-gone", &["storage/nfs-backup warning: pve3 cannot reach it, others can*"]),
        ("storage-lost", &["storage/nfs-backup critical: pve1, pve2, pve3 cannot reach it*"]),
        ("ha-error", &["ha/service/vm:101 critical: error: HA has given up*"]),
        ("ha-recovery", &["ha/service/vm:101 warning: recovery: HA is looking for a node that can run it"]),
        ("qdevice", &["cluster/qdevice ok"]),
        ("qdevice-lost", &["cluster/qdevice warning: its state is \"Connect failed\"*corosync-qdevice-tool -s*"]),
        ("ha-dead", &["ha critical: the HA master has not reported*"]),
        ("ha-disarmed", &["ha warning: HA is disarmed*arm-ha*", "ha/lrm/pve* warning: *is disarmed"]),
        ("node-removed", &[]),
        ("container-full", &["guest/* warning: it runs, and more than 90 % of its root file system is used*"]),
        ("no-ha", &["ha ok (skipped)", "ha/* is not there"]),
        (
            "replication-failing",
            &["replication/100-0 critical: it fails: command 'zfs send' failed*last succeeded at 2026-11-20 11:50 UTC"],
        ),
        ("replication-late", &["replication/100-0 critical: it has been due for more than 240 minutes*"]),
        (
            "replication-ahead",
            &["replication/100-0 unknown: its last success is of 2026-11-23 *, which is in the future*"],
        ),
        ("replication-never", &["replication/100-0 warning: it has not run yet"]),
        (
            "backup-failed",
            &[
                "backup/guest/100 critical: *'vma create' failed*",
                "backup/node/pve* critical: *failed: job errors: see its log for the guests*",
            ],
        ),
        ("backup-warnings", &["backup/node/pve* warning: *ended with 2 warnings: see its log for the guests*"]),
        ("backup-running", &[]),
        (
            "backup-by-hand",
            &["backup/guest/100 unknown: the backup of 2026-10-21 13:00 UTC failed: *only the log of the run of \
                 several guests of 2026-11-20 00:00 UTC shows whether it contains the guest"],
        ),
        ("backup-old", &["backup/* critical: the last backup is of 2026-10-21 *, more than 360 hours ago"]),
        (
            "backup-never",
            &[
                "backup/node/pve* warning: a job covers guests on this node, and no backup ran*",
                "backup/guest/100 is not there",
            ],
        ),
        (
            "backup-off",
            &["backup/coverage warning: 1 guest is in no backup job that runs: 101 (db-1) (its job is disabled)*"],
        ),
        ("backups-off", &["backup/coverage warning: no backup job is enabled*"]),
        (
            "node-hangs",
            &[
                "node/pve3 warning: /nodes/pve3/tasks: no whole answer within*check the load of that node*",
                "*pve3 is not there",
                "*pve3 is kept",
                "backup/guest/ is kept",
                "warning: the last backups of pve3 are not known: *",
            ],
        ),
        ("uncovered", &["backup/coverage warning: 2 guests are in no backup job that runs: 101 (db-1), 102 (dns-1)*"]),
        (
            "broken",
            &[
                "cluster/quorum unknown: /cluster/status failed on the server (500, \"cluster not ready - no \
                 quorum?\")*",
                "ha unknown: *",
                "resources unknown: /cluster/resources failed on the server*",
                "* is not there",
                "* is kept",
                "warning: it is not known whether there is Ceph: *",
                "warning: it is not known who stopped which guest*",
            ],
        ),
        ("zfs-degraded", &["zfs/pve* critical: pool rpool is degraded*zpool status rpool*"]),
        ("ceph", &["ceph ok"]),
        ("ceph-elsewhere", &["ceph ok"]),
        (
            "ceph-warn",
            &[
                "ceph warning: HEALTH_WARN: OSD_DOWN, POOL_NO_REDUNDANCY",
                "ceph/OSD_DOWN warning: 1 osds down",
                "ceph/POOL_NO_REDUNDANCY ok (skipped)",
            ],
        ),
        (
            "ceph-err",
            &["ceph critical: HEALTH_ERR: *", "ceph/OSD_DOWN warning: *", "ceph/OSD_FULL critical: 2 full osd(s)"],
        ),
        (
            "certificate-ends",
            &["certificate/pve* critical: pve-ssl.pem expires at 2026-11-22 12:00 UTC: run \"pvecm updatecerts*"],
        ),
        (
            "certificate-ended+ca-ends",
            &["certificate/pve* critical: pve-ssl.pem has expired, at 2026-11-18 12:00 UTC: run \"pvecm \
                 updatecerts*; pve-root-ca.pem expires at 2026-11-22 12:00 UTC: it signs the certificates of all \
                 nodes*"],
        ),
        // These bodies mean the same as those of a healthy estate.
        ("strings", &[]),
        ("unwrapped", &[]),
    ];
    for case in cases {
        check(&bench, &healthy, *case).await;
    }
    for (wish, category, code, says) in [
        ("truncated", FailureCategory::Transient, "truncated", "ends in the middle"),
        ("plain-text", FailureCategory::Transient, "not_json", "begins \"it works!\""),
        ("login-page", FailureCategory::Transient, "web_page", "answered with a web page"),
        ("redirect", FailureCategory::Misconfigured, "redirect", "https://sso.example/login"),
    ] {
        fails(&bench, wish, category, code, says).await;
    }
    let stranger = bench.with_secret(("token", "monitor@pve!polliwog=99999999-2222-3333-4444-555555555555"));
    fails(
        &stranger,
        "healthy",
        FailureCategory::Misconfigured,
        "unauthorized",
        "Authentication failed!\"): check on the server with \"pveum user token list",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_settings_select_what_is_checked() {
    let bench = Bench::new("pve").await.with_settings(
        r#"{"guests": {"expected": ["100"], "expected_by_ha": false, "exclude": ["tag:archive", "dns-*"]},
            "storages": {"warning_percent": 40, "critical_percent": 0, "exclude": ["local@pve2"]}, "subscription": true,
            "backups": {"coverage": false}, "nodes": {"exclude": ["pve3"]}, "usage": {"memory_warning_percent": 40},
            "upkeep": {"disks": true, "updates": true, "zfs": false}}"#,
    );
    let report = bench.report("guest-stopped+disk-worn+updates").await;
    assert_eq!(status(&report, "disks/pve1"), "warning: worn: /dev/nvme0n1 (Simulated SSD) has 7 % left");
    assert_eq!(status(&report, "updates/pve1"), "warning: 2 updates to be installed: pve-manager, openssl");
    assert!(!lines(&report).contains_key("zfs/pve1"));
    let failing = bench.report("disk-failing").await;
    assert_eq!(status(&failing, "disks/pve2"), "critical: failing: /dev/sda (Simulated disk) FAILED!; replace it");
    let impending = bench.report("disk-impending+disk-overworn").await;
    assert!(
        status(&impending, "disks/pve2").starts_with("critical: failing: /dev/sda (Simulated disk) HARDWARE IMPENDING")
    );
    let worn = bench.report("disk-overworn").await;
    assert!(status(&worn, "disks/pve2").contains("reports that 104 % of its life are used"), "{:?}", lines(&worn));
    assert!(
        status(&worn, "updates/pve2").contains("run on the server \"pveum role add PolliwogMore -privs Sys.Modify\""),
        "{:?}",
        lines(&worn)
    );
    assert!(status(&report, "guest/100").starts_with("warning: expected to run"), "{:?}", lines(&report));
    assert!(!lines(&report).contains_key("guest/103") && !lines(&report).contains_key("guest/102"));
    assert!(status(&report, "storage/local@pve1").starts_with("warning: more than 40 % is used"));
    assert!(!lines(&report).contains_key("storage/local@pve2") && !lines(&report).contains_key("node/pve3"));
    let of_pve3 = ["ha/lrm/pve3", "storage/local@pve3", "backup/node/pve3", "certificate/pve3", "disks/pve3"];
    assert!(of_pve3.iter().all(|name| !lines(&report).contains_key(*name)), "{:?}", lines(&report));
    let guest = report.dependencies.iter().find(|found| found.name == "guest/105");
    let guest = guest.expect("its guests are not its own");
    assert!(guest.runs_on.is_empty(), "what is excluded is not named: {guest:?}");
    assert!(!report.warnings.iter().any(|warning| warning.contains("parent")), "{:?}", report.warnings);
    assert!(!lines(&report).contains_key("backup/coverage"));
    assert_eq!(status(&report, "node/pve1"), "warning: memory: more than 40 % is used");
    assert!(status(&report, "subscription/pve1").starts_with("warning: there is no subscription (notfound"));

    // Guests that are expected to run and do not exist.
    let bench =
        bench.with_settings(r#"{"guests": {"expected": ["tag:PROD", "999", "web-l*", "tag:proud", "gone", "9000"]}}"#);
    let report = bench.report("healthy").await;
    assert!(status(&report, "guest/999").starts_with("critical: expected to run, but there is no such guest"));
    let hidden = bench.report("no-rights").await;
    assert!(status(&hidden, "guest/999").starts_with("unknown: expected to run, but not visible"), "{hidden:?}");
    for odd in ["uncovered+nulls", "uncovered+huge"] {
        let unread = bench.report(odd).await;
        assert!(status(&unread, "backup/coverage").starts_with("unknown: guests in no backup job are listed without"));
    }
    let hidden = bench.report("backup-old+no-rights").await;
    assert!(status(&hidden, "backup/node/pve1").starts_with("unknown: the last backup is of 2026-10-21"), "{hidden:?}");
    let said = |name: &str| format!("guests.expected names \"{name}\", and no guest has that name, tag or pool");
    let warnings = &report.warnings;
    let api = status(&report, "api");
    assert!(status(&report, "guest/gone").starts_with("critical: expected to run, but there is no such guest"));
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("guests.expected names 9000, which is a template"),
        "{warnings:?}"
    );
    // A misspelt name must not make the target ok.
    assert!(api.starts_with("warning") && api.contains(&said("tag:proud")) && api.contains(&said("web-l*")), "{api}");
    let bench = bench.with_settings(r#"{"storages": {"include": ["x"]}, "nodes": {"include": ["pve-3"]}}"#);
    let api = status(&bench.report("healthy").await, "api");
    assert!(api.contains("no node is checked: see nodes.include"), "{api}");
    assert!(api.contains("no storage is checked: see"), "{api}");

    // With `expected_by_onboot`, 20 configurations are read in a poll.
    let bench = bench.with_settings(r#"{"guests": {"expected_by_onboot": true, "expected_by_ha": false}}"#);
    let report = bench.report("guest-stopped").await;
    assert!(status(&report, "guest/100").starts_with("warning: expected to run"), "{:?}", lines(&report));
    assert_eq!(status(&report, "guest/103"), "ok (skipped)", "its configuration has no onboot");
    let first = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    let later = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    assert_eq!((first, later), (20 + 20, 5 + 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_guests_are_selected_by_name() {
    let bench = Bench::new("pve").await;
    let bench = bench.with_settings(r#"{"guests": {"expected": ["*"]}}"#);
    let report = bench.report("guest-stopped").await;
    assert!(!status(&report, "api").contains("guests.expected"), "* matches all guests: {:?}", lines(&report));
    assert!(status(&report, "guest/100").starts_with("warning: expected to run"), "{:?}", lines(&report));
    let shown = |report: &Report, id: &str| lines(report).contains_key(&format!("guest/{id}"));
    let bench = bench.with_settings(r#"{"guests": {"exclude": ["tag:archive"]}}"#);
    let report = bench.report("healthy").await;
    assert_eq!(["100", "102", "103"].map(|id| shown(&report, id)), [true, true, false], "{:?}", lines(&report));
    let bench = bench.with_settings(r#"{"guests": {"include": ["dns-*"]}}"#);
    let report = bench.report("healthy").await;
    assert_eq!(["100", "102", "103"].map(|id| shown(&report, id)), [false, true, false], "{:?}", lines(&report));
    let bench = bench.with_settings(r#"{"backups": {"exclude": ["db-*"]}}"#);
    let coverage = status(&bench.report("uncovered").await, "backup/coverage");
    assert!(coverage.starts_with("warning: 1 guest is in no backup job that runs: 102 (dns-1)"), "{coverage}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_unreadable_values_are_neither_ok_nor_critical() {
    let bench = Bench::new("pve").await.with_settings(r#"{"upkeep": {"disks": true, "updates": true}}"#);
    for wish in ["nulls", "minus", "huge", "lists", "alien"] {
        let lines = lines(&bench.report(wish).await);
        let wrong = |name: &str, line: &str| {
            ["disks/", "zfs/", "updates/"].iter().any(|of| name.starts_with(of)) && line.starts_with("critical")
        };
        assert!(!lines.iter().any(|(name, line)| wrong(name, line)), "{wish}: {lines:?}");
    }
    odd_bodies("pve", "storage/", "maxmem of node/pve1 is").await;
    odd_bodies("pve", "cluster/quorum", "quorate of the cluster is").await;
}

/// Requests do not grow with the number of guests, and stay within the default limits. Checks that do not run at every
/// poll add requests of their own.
#[tokio::test(flavor = "multi_thread")]
async fn pve_requests_do_not_grow_with_guests() {
    let bench = Bench::new("pve").await;
    println!("nodes, guests: requests of the first poll, of those after it, and each minute, five minutes, hour");
    for nodes in [1, 3, 16] {
        let mut counts = Vec::new();
        for guests in [10, 500, 5_000] {
            let (wish, target) = (format!("pve/nodes-{nodes}+guests-{guests}"), format!("n{nodes}-g{guests}"));
            let mut requests = Vec::new();
            for later in [0, 10, 60, 300, 3_600] {
                let done = bench.poll_at(&wish, Some(&target), NOW + later).await;
                let Outcome::Success(report) = &done.outcome else { panic!("{wish}: {:?}", done.outcome) };
                assert!(report.dependencies.len() > guests, "{wish}");
                requests.push(done.usage.requests);
            }
            // Each poll runs the more frequent checks as well.
            let [first, later, minute, five, hour] = requests[..] else { panic!("five polls") };
            let row = [first, later, minute - later, five - minute, hour - five];
            println!("{nodes:>2}, {guests:>5}: {row:?}");
            counts.push(row);
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{nodes} nodes: {counts:?}");
        assert_eq!(counts[0][1], 5, "{nodes} nodes");
    }
}
