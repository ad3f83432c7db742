//! Virtual Environment.

use super::{COMPILE, check, fails, odd_bodies};
use model::{FailureCategory, Outcome, Report};
use tests::proxmox::{Bench, NOW, lines};

#[tokio::test(flavor = "multi_thread")]
async fn pve_says_what_is_wrong_and_nothing_else() {
    let bench = Bench::new("pve", COMPILE).await;
    let healthy = bench.report("healthy").await;
    let bad: Vec<String> = lines(&healthy)
        .into_iter()
        .filter(|(_, line)| !line.starts_with("ok"))
        .map(|(name, line)| format!("{name} {line}"))
        .collect();
    assert!(bad.is_empty() && healthy.warnings.is_empty() && healthy.kept.is_empty(), "{bad:?} {healthy:?}");
    assert_eq!(healthy.dependencies.len(), 41, "{:?}", lines(&healthy));
    let parents: Vec<&str> =
        healthy.dependencies.iter().filter(|of| of.name == "guest/101").filter_map(|of| of.parent.as_deref()).collect();
    assert_eq!(parents, ["node/pve2"]);
    let unseen: &[&str] = &[
        "guest/* is not there",
        "storage/* is not there",
        "replication/* is not there",
        "replication ok (skipped)",
        "backup/guest/100 is not there",
    ];
    let no_audit: &[&str] = &[
        "cluster/quorum unknown: *lack Sys.Audit on /: run there \"pveum acl modify / -user*-token*",
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
        ("mute", &["node/pve* warning: *pvesm status*pvestatd*", "guest/* unknown: *pvesm status*, and at pvestatd"]),
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
        ("guest-stopped", &["guest/100 warning: it must run, and is stopped; since when is not known at a first look"]),
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
        ("ha-recovery", &["ha/service/vm:101 warning: recovery: HA looks for a node that can run it"]),
        ("qdevice", &["cluster/qdevice ok"]),
        ("qdevice-lost", &["cluster/qdevice warning: its state is \"Connect failed\"*corosync-qdevice-tool -s*"]),
        ("ha-dead", &["ha critical: the HA master has not been heard of*"]),
        ("ha-disarmed", &["ha warning: HA is disarmed*arm-ha*", "ha/lrm/pve* warning: *is disarmed"]),
        ("node-removed", &[]),
        ("container-full", &["guest/* warning: it runs, and more than 90 % of its root file system is used*"]),
        ("no-ha", &["ha ok (skipped)", "ha/* is not there"]),
        (
            "replication-failing",
            &["replication/100-0 critical: it fails: command 'zfs send' failed*last ran well at 2026-11-20 11:50 UTC"],
        ),
        ("replication-late", &["replication/100-0 critical: it is due for more than 240 minutes*"]),
        ("replication-never", &["replication/100-0 warning: it has not run yet"]),
        (
            "backup-failed",
            &[
                "backup/guest/100 critical: *'vma create' failed*",
                "backup/node/pve* critical: *failed: job errors: its log says which*",
            ],
        ),
        ("backup-warnings", &["backup/node/pve* warning: *ended with 2 warnings: its log says which*"]),
        ("backup-running", &[]),
        (
            "backup-by-hand",
            &[
                "backup/guest/100 unknown: the backup of 2026-10-21 13:00 UTC failed: *whether the run of several guests of 2026-11-20 00:00 UTC has it, only its log says",
            ],
        ),
        ("backup-old", &["backup/* critical: the last backup is of 2026-10-21 *, more than 360 hours ago"]),
        (
            "backup-never",
            &[
                "backup/node/pve* warning: a job covers guests on it, and none has run here*",
                "backup/guest/100 is not there",
            ],
        ),
        (
            "backup-off",
            &["backup/coverage warning: 1 guest is in no backup job that runs: 101 (db-1) (its job is switched off)*"],
        ),
        ("backups-off", &["backup/coverage warning: no backup job is switched on*"]),
        (
            "node-hangs",
            &[
                "node/pve3 warning: /nodes/pve3/tasks: no whole answer within*look at the load of that node*",
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
                "cluster/quorum unknown: /cluster/status failed there (500, \"cluster not ready - no quorum?\")*",
                "ha unknown: *",
                "resources unknown: /cluster/resources failed there*",
                "* is not there",
                "* is kept",
                "warning: whether there is Ceph is not known: *",
                "warning: who stopped which guest*",
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
            &[
                "certificate/pve* critical: pve-ssl.pem has expired, at 2026-11-18 12:00 UTC: run \"pvecm updatecerts*; \
               pve-root-ca.pem expires at 2026-11-22 12:00 UTC: it signs those of all nodes*",
            ],
        ),
        // Nothing is read in another way than a healthy estate.
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
        ("redirect", FailureCategory::Permanent, "redirect", "https://sso.example/login"),
    ] {
        fails(&bench, wish, category, code, says).await;
    }
    let stranger = bench.with_secret(("token", "monitor@pve!polliwog=99999999-2222-3333-4444-555555555555"));
    fails(
        &stranger,
        "healthy",
        FailureCategory::Permanent,
        "unauthorized",
        "Authentication failed!\"): check there with \"pveum user token list",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_settings_say_what_counts() {
    let status = |report: &Report, name: &str| lines(report).get(name).cloned().unwrap_or_default();
    let bench = Bench::new("pve", COMPILE).await.with_settings(
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
    assert!(status(&worn, "disks/pve2").contains("says that 104 % of its life are used"), "{:?}", lines(&worn));
    assert!(
        status(&worn, "updates/pve2").contains("run there \"pveum role add PolliwogMore -privs Sys.Modify\""),
        "{:?}",
        lines(&worn)
    );
    assert!(status(&report, "guest/100").starts_with("warning: it must run"), "{:?}", lines(&report));
    assert!(!lines(&report).contains_key("guest/103") && !lines(&report).contains_key("guest/102"));
    assert!(status(&report, "storage/local@pve1").starts_with("warning: more than 40 % is used"));
    assert!(!lines(&report).contains_key("storage/local@pve2") && !lines(&report).contains_key("node/pve3"));
    let of_pve3 = ["ha/lrm/pve3", "storage/local@pve3", "backup/node/pve3", "certificate/pve3", "disks/pve3"];
    assert!(of_pve3.iter().all(|name| !lines(&report).contains_key(*name)), "{:?}", lines(&report));
    assert!(lines(&report).contains_key("guest/105"), "its guests are not its own");
    assert!(!lines(&report).contains_key("backup/coverage"));
    assert_eq!(status(&report, "node/pve1"), "warning: memory: more than 40 % is used");
    assert!(status(&report, "subscription/pve1").starts_with("warning: there is none (notfound"));

    // What must run and is nowhere to be seen.
    let bench =
        bench.with_settings(r#"{"guests": {"expected": ["tag:PROD", "999", "web-l*", "tag:proud", "gone", "9000"]}}"#);
    let report = bench.report("healthy").await;
    assert!(status(&report, "guest/999").starts_with("critical: it must run, and there is no such guest"));
    let hidden = bench.report("no-rights").await;
    assert!(status(&hidden, "guest/999").starts_with("unknown: it must run, and is not to be seen"), "{hidden:?}");
    for odd in ["uncovered+nulls", "uncovered+huge"] {
        let unread = bench.report(odd).await;
        assert!(status(&unread, "backup/coverage").starts_with("unknown: guests in no backup job are listed without"));
    }
    let hidden = bench.report("backup-old+no-rights").await;
    assert!(status(&hidden, "backup/node/pve1").starts_with("unknown: the last backup is of 2026-10-21"), "{hidden:?}");
    let said = |name: &str| format!("guests.expected names \"{name}\", and no guest has that name, tag or pool");
    let warnings = &report.warnings;
    let api = status(&report, "api");
    assert!(status(&report, "guest/gone").starts_with("critical: it must run, and there is no such guest"));
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("guests.expected names 9000, which is a template"),
        "{warnings:?}"
    );
    // What is misspelt must not make a monitor that is green.
    assert!(api.starts_with("warning") && api.contains(&said("tag:proud")) && api.contains(&said("web-l*")), "{api}");
    let bench = bench.with_settings(r#"{"storages": {"include": ["x"]}, "nodes": {"include": ["pve-3"]}}"#);
    let api = status(&bench.report("healthy").await, "api");
    assert!(api.contains("no node is looked at: see nodes.include"), "{api}");
    assert!(api.contains("no storage is looked at: see"), "{api}");

    // Started with its node: 20 configurations are read in a poll, and only where that is asked for.
    let bench = bench.with_settings(r#"{"guests": {"expected_by_onboot": true, "expected_by_ha": false}}"#);
    let report = bench.report("guest-stopped").await;
    assert!(status(&report, "guest/100").starts_with("warning: it must run"), "{:?}", lines(&report));
    assert_eq!(status(&report, "guest/103"), "ok (skipped)", "its configuration has no onboot");
    let first = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    let later = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    assert_eq!((first, later), (20 + 20, 5 + 20));
}

/// What a cluster says at one poll is remembered where it cannot say it at the next.
#[tokio::test(flavor = "multi_thread")]
async fn pve_remembers_what_a_dead_node_cannot_say() {
    let bench = Bench::new("pve", COMPILE).await;
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

    // A guest that must run has its grace, and a stop on purpose is none for as long as it lasts.
    let status = |report: &Report| lines(report)["guest/100"].clone();
    assert!(status(&poll("guest-stopped", 20).await).starts_with("warning: it must run, and is stopped since"));
    assert!(status(&poll("guest-stopped", 139).await).starts_with("warning"));
    assert!(status(&poll("guest-stopped", 140).await).starts_with("critical: it must run, and is stopped since"));
    assert_eq!(status(&poll("healthy", 150).await), "ok");
    assert!(status(&poll("guest-stopped+stopped-on-purpose", 160).await).contains("on purpose by root@pam"));
    // It is started for its backup, which holds it, and is stopped again.
    assert_eq!(status(&poll("guest-prelaunch", 170).await), "ok (skipped)");
    assert_eq!(status(&poll("guest-locked", 180).await), "ok (skipped)");
    assert!(
        status(&poll("guest-stopped", 9_999).await).contains("on purpose by root@pam"),
        "its task is listed no more"
    );

    // A stop that is older than the last time it ran explains nothing; at a first look its node is asked about it.
    assert_eq!(status(&poll("healthy", 10_000).await), "ok");
    assert!(
        status(&poll("guest-stopped+stopped-long-ago", 10_010).await)
            .starts_with("warning: it must run, and is stopped")
    );
    let first = bench.report("guest-stopped+stopped-long-ago").await;
    assert!(status(&first).contains("on purpose by root@pam at 2026-11-13 12:00 UTC"), "{}", status(&first));

    // A node that falls silent for a moment is what it was; then it is not known, and a template is still none.
    let silent = poll("mute", 10_020).await;
    assert!(!lines(&silent).contains_key("node/pve1") && silent.kept.contains(&"node/pve1".to_owned()), "{silent:?}");
    assert!(silent.kept.contains(&"guest/101".to_owned()), "{silent:?}");
    let silent = poll("mute", 10_080).await;
    assert!(lines(&silent)["node/pve1"].starts_with("warning: pve1 does not say how it is"), "{silent:?}");
    assert!(lines(&silent)["guest/101"].starts_with("unknown: pve2 does not say how it is"), "{silent:?}");
    assert_eq!(title(&silent, "guest/101").as_deref(), Some("db-1"));
    assert!(!lines(&silent).contains_key("guest/9000"), "{silent:?}");

    // A service that finds no node is a failure in the end.
    let status = |report: &Report| lines(report)["ha/service/vm:101"].clone();
    assert!(status(&poll("ha-recovery", 9_000).await).starts_with("warning: recovery"));
    assert!(status(&poll("ha-recovery", 9_300).await).starts_with("critical: recovery: HA has found no node"));
    assert_eq!(status(&poll("healthy", 9_310).await), "ok");
    assert!(status(&poll("ha-recovery", 9_320).await).starts_with("warning"), "its time begins anew");

    // What cannot be read stands for two minutes, and is unknown after that.
    let kept = poll("broken", 20_000).await.kept;
    assert!(kept.contains(&"guest/".to_owned()) && kept.contains(&"cluster/quorum".to_owned()), "{kept:?}");
    let late = poll("broken", 20_120).await;
    assert!(lines(&late)["cluster/quorum"].starts_with("unknown: /cluster/status failed there"), "{:?}", lines(&late));
    assert!(lines(&poll("healthy", 20_310).await)["cluster/quorum"] == "ok");
    assert!(poll("broken", 20_320).await.kept.contains(&"cluster/quorum".to_owned()), "its time begins anew");
}

/// What nobody can look at any more is unknown, and not gone; what is over is well.
#[tokio::test(flavor = "multi_thread")]
async fn pve_forgets_nothing_that_nobody_removed() {
    let bench = Bench::new("pve", COMPILE).await;
    let poll = async |wish: &str, seconds: i64| {
        let done = bench.poll_at(&format!("pve/{wish}"), Some("same"), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{wish}: {:?}", done.outcome) };
        report
    };
    let status = |report: &Report, name: &str| lines(report).get(name).cloned().unwrap_or_default();

    let healthy = poll("ceph-warn", 0).await;
    assert!(status(&healthy, "ceph/OSD_DOWN").starts_with("warning"));
    let over = poll("ceph", 3_601).await;
    assert_eq!(status(&over, "ceph/OSD_DOWN"), "ok", "{:?}", lines(&over));

    // What is hidden from a token that lost its rights is not gone.
    let hidden = poll("ceph+no-rights", 5_000).await;
    assert_eq!(
        status(&hidden, "guest/101"),
        "unknown: the token lacks VM.Audit, so that it is hidden: \"api\" says more"
    );
    assert!(status(&hidden, "storage/local@pve1").starts_with("unknown: the token lacks Datastore.Audit"));
    assert_eq!(lines(&poll("ceph", 5_010).await)["guest/101"], "ok");

    // All that was known, with what it is called, where the whole cluster cannot say how it is.
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
    assert_eq!((guest.title.as_deref(), guest.parent.as_deref()), (Some("web-1"), Some("node/pve1")));
    assert_eq!(guest.error_message.as_deref(), Some("it cannot be looked at: \"resources\" says why"));
    let back = poll("ceph", 10_300).await;
    assert_eq!(lines(&back), lines(&over));

    // The last backups of a dead node grow old, and nobody can see whether they do.
    let offline = poll("ceph+node-offline", 20_000).await;
    assert_eq!(status(&offline, "zfs/pve3"), "unknown: nobody can see it: its node pve3 is offline");
    assert_eq!(status(&offline, "backup/node/pve3"), "unknown: nobody can see it: its node pve3 is offline");

    // What is back is looked at again at once, though it is not its time.
    let said = |report: &Report| status(report, "zfs/pve3");
    assert_eq!(said(&poll("ceph+node-offline", 20_010).await), "unknown: nobody can see it: its node pve3 is offline");
    poll("ceph", 20_020).await;
    let back = poll("ceph", 20_030).await;
    assert_eq!((said(&back).as_str(), status(&back, "backup/node/pve3").as_str()), ("ok", "ok"), "{:?}", lines(&back));
    let quiet = bench.poll_at("pve/ceph", Some("same"), NOW + 20_040).await;
    assert_eq!(quiet.usage.requests, 5, "and then at its time");
    assert_eq!(said(&poll("ceph+node-offline", 20_050).await), "unknown: nobody can see it: its node pve3 is offline");
    let quiet = bench.poll_at("pve/ceph+node-offline", Some("same"), NOW + 20_055).await;
    assert_eq!(quiet.usage.requests, 5, "a node that is gone makes nothing due");

    // A limit that was passed is over when it is clearly not any more.
    let storage = |report: &Report| status(report, "storage/nfs-backup");
    assert_eq!(storage(&poll("storage-easing", 30_000).await), "ok");
    assert!(storage(&poll("storage-full", 30_010).await).starts_with("critical: more than 95 % is used"));
    let easing = poll("storage-easing", 30_020).await;
    assert_eq!(storage(&easing), "warning: more than 80.75 % is used, and it was past 85: make room, or give it more");
    assert_eq!(storage(&poll("healthy", 30_030).await), "ok");
    assert_eq!(storage(&poll("storage-easing", 30_040).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_odd_bodies_are_neither_ok_nor_critical() {
    let bench = Bench::new("pve", COMPILE).await.with_settings(r#"{"upkeep": {"disks": true, "updates": true}}"#);
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

/// Requests do not grow with the number of guests, and stay within the default limits. What is asked less often than at every
/// poll is asked for in addition.
#[tokio::test(flavor = "multi_thread")]
async fn pve_requests_do_not_grow_with_guests() {
    let bench = Bench::new("pve", COMPILE).await;
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
            // Each time what is asked more often is asked as well.
            let [first, later, minute, five, hour] = requests[..] else { panic!("five polls") };
            let row = [first, later, minute - later, five - minute, hour - five];
            println!("{nodes:>2}, {guests:>5}: {row:?}");
            counts.push(row);
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{nodes} nodes: {counts:?}");
        assert_eq!(counts[0][1], 5, "{nodes} nodes");
    }
}

/// Of a guest that nobody looked at nobody knows whether it ran.
#[tokio::test(flavor = "multi_thread")]
async fn pve_does_not_say_since_when_where_nobody_looked() {
    let poll = async |bench: &Bench, target: &str, wish: &str, seconds: i64| {
        let done = bench.poll_at(&format!("pve/no-ha+nodes-1+{wish}"), Some(target), NOW + seconds).await;
        let Outcome::Success(report) = done.outcome else { panic!("{:?}", done.outcome) };
        lines(&report)["guest/100"].clone()
    };
    let unseen = "since when is not known at a first look";
    // It must run from now on.
    let mut bench = Bench::new("pve", COMPILE).await.with_settings(r#"{"guests": {"expected": ["101"]}}"#);
    assert_eq!(poll(&bench, "new", "guest-stopped", 0).await, "ok (skipped)");
    bench = bench.with_settings(r#"{"guests": {"expected": ["100", "101"]}}"#);
    assert!(poll(&bench, "new", "guest-stopped", 600).await.contains(unseen));
    assert!(poll(&bench, "new", "guest-stopped", 900).await.contains("since 2026-11-20 12:10 UTC or longer"));
    // Its node did not speak of it yet, or was away.
    assert!(poll(&bench, "mute", "mute", 0).await.starts_with("unknown"));
    assert!(poll(&bench, "mute", "guest-stopped", 60).await.contains(unseen));
    assert_eq!(poll(&bench, "away", "healthy", 0).await, "ok");
    assert!(poll(&bench, "away", "node-offline", 60).await.starts_with("unknown"));
    assert!(poll(&bench, "away", "guest-stopped", 4_000).await.contains(unseen));
    // It ran a moment ago.
    assert_eq!(poll(&bench, "seen", "healthy", 0).await, "ok");
    assert!(poll(&bench, "seen", "guest-stopped", 60).await.ends_with("is stopped since 2026-11-20 12:01 UTC"));
}
