//! The plugins for Proxmox products against the simulated estate: what each fault changes in the report of a healthy one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use model::{FailureCategory, Outcome, Report};
use tests::proxmox::{Bench, NOW, difference, lines};

/// The program that compiles plugins.
const COMPILE: &str = env!("CARGO_BIN_EXE_compile");

/// Whether a line is as expected, where `*` stands for any text.
fn fits(expected: &str, line: &str) -> bool {
    let (start, rest) = expected.split_once('*').unwrap_or((expected, ""));
    match line.strip_prefix(start) {
        None => false,
        Some(tail) if !expected.contains('*') => tail.is_empty(),
        Some(tail) => {
            rest.is_empty() || (0..=tail.len()).any(|at| tail.is_char_boundary(at) && fits(rest, &tail[at..]))
        }
    }
}

/// Polls `wish`, and holds what differs from a healthy estate against the lines expected, each at least once.
async fn check(bench: &Bench, healthy: &Report, (wish, expected): (&str, &[&str])) {
    let found = difference(healthy, &bench.report(wish).await);
    let all = || format!("{wish}:\n{}", found.join("\n"));
    for line in &found {
        assert!(expected.iter().any(|expected| fits(expected, line)), "not expected: {line}\nof {}", all());
    }
    for expected in expected {
        assert!(found.iter().any(|line| fits(expected, line)), "missing: {expected}\nof {}", all());
    }
}

/// Polls `wish`, which must fail, permanently or not, with a code and a sentence.
async fn fails(bench: &Bench, wish: &str, category: FailureCategory, code: &str, says: &str) {
    match bench.poll(wish, None).await.outcome {
        Outcome::Failure(failure) => {
            assert_eq!((failure.category, failure.code.as_str()), (category, code), "{wish}: {failure:?}");
            assert!(failure.message.contains(says), "{wish}: {}", failure.message);
        }
        other => panic!("{wish}: {other:?}"),
    }
}

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
    assert_eq!(healthy.dependencies.len(), 39, "{:?}", lines(&healthy));
    let parents: Vec<&str> =
        healthy.dependencies.iter().filter(|of| of.name == "guest/101").filter_map(|of| of.parent.as_deref()).collect();
    assert_eq!(parents, ["node/pve2"]);
    let unseen: &[&str] = &[
        "guest/* is not there",
        "storage/* is not there",
        "replication/* is not there",
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
                "warning: certificate/pve3: *595*",
                "zfs/pve3 is not there",
                "zfs/pve3 is kept",
                "warning: zfs/pve3: *595*",
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
                "warning: certificate/pve3: *596*",
                "zfs/pve3 is not there",
                "zfs/pve3 is kept",
                "warning: zfs/pve3: *596*",
            ],
        ),
        ("no-quorum", &["cluster/quorum critical: the cluster has no quorum*", "ha critical: HA has no quorum*"]),
        (
            "maintenance",
            &["node/pve3 warning: pve3 is in HA maintenance mode", "ha/lrm/pve3 warning: *maintenance mode"],
        ),
        ("mute", &["node/pve* warning: *systemctl restart pvestatd*", "guest/* unknown: *check pvestatd on that node"]),
        (
            "no-rights",
            &[no_audit, unseen, &["api warning: the token lacks Sys.Audit, VM.Audit, Datastore.Audit,*"]].concat(),
        ),
        ("no-audit", no_audit),
        ("guest-stopped", &["guest/100 warning: it must run, and is stopped since 2026-11-20 12:00 UTC"]),
        ("guest-stopped+stopped-on-purpose", &["guest/100 warning: *on purpose by root@pam at 2026-11-20 11:30 UTC"]),
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
        ("ha-dead", &["ha critical: the HA master has not been heard of*"]),
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
        ("uncovered", &["backup/coverage warning: 2 guests are in no backup job: 101 (db-1), 102 (dns-1)*"]),
        (
            "broken",
            &[
                "api warning: not all of it could be read at this look: cluster/quorum, resources, ha, ceph*",
                "* is not there",
                "* is kept",
                "warning: ceph: *",
                "warning: cluster/quorum: /cluster/status failed there (500, \"cluster not ready - no quorum?\")*",
                "warning: ha: *",
                "warning: resources: *",
                "warning: who stopped which guest*",
            ],
        ),
        ("zfs-degraded", &["zfs/pve* critical: pool rpool is degraded*zpool status rpool*"]),
        ("ceph", &["ceph ok"]),
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
            &["certificate/pve* critical: node.pem expires at 2026-11-22 12:00 UTC: run \"pvecm updatecerts*"],
        ),
        ("certificate-ended", &["certificate/pve* critical: node.pem has expired, at 2026-11-18 12:00 UTC*"]),
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
        "invalid PVE ticket\"): check there with \"pveum user token list",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_settings_say_what_counts() {
    let status = |report: &Report, name: &str| lines(report).get(name).cloned().unwrap_or_default();
    let bench = Bench::new("pve", COMPILE).await.with_settings(
        r#"{"guests": {"expected": ["100"], "expected_by_ha": false, "exclude": ["tag:archive", "dns-*"]}, "samples": true,
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
    assert!(status(&report, "guest/100").starts_with("warning: it must run"), "{:?}", lines(&report));
    assert!(!lines(&report).contains_key("guest/103") && !lines(&report).contains_key("guest/102"));
    assert!(status(&report, "storage/local@pve1").starts_with("warning: more than 40 % is used"));
    assert!(!lines(&report).contains_key("storage/local@pve2") && !lines(&report).contains_key("node/pve3"));
    assert!(!lines(&report).contains_key("backup/coverage"));
    assert_eq!(status(&report, "node/pve1"), "warning: memory: more than 40 % is used");
    assert!(status(&report, "subscription/pve1").starts_with("warning: there is none (notfound"));
    let sample = |name: &str, id: &str| {
        let labelled =
            |sample: &&model::Sample| sample.labels.iter().any(|(label, value)| label == "id" && value == id);
        report.samples.iter().filter(|sample| sample.name == name).find(labelled).map(|sample| sample.value)
    };
    assert_eq!((sample("pve_up", "qemu/100"), sample("pve_up", "qemu/101")), (Some(0.0), Some(1.0)));
    assert_eq!((sample("pve_up", "cluster/lab"), sample("pve_up", "node/pve3")), (Some(1.0), Some(1.0)));
    assert_eq!(sample("pve_memory_size_bytes", "node/pve1"), Some(64e9));
    assert_eq!(sample("pve_disk_read_bytes_total", "lxc/105"), Some(12_345_678.0));

    // Started with its node: 20 configurations are read in a poll, and only where that is asked for.
    let bench = bench.with_settings(r#"{"guests": {"expected_by_onboot": true, "expected_by_ha": false}}"#);
    let report = bench.report("guest-stopped").await;
    assert!(status(&report, "guest/100").starts_with("warning: it must run"), "{:?}", lines(&report));
    assert_eq!(status(&report, "guest/103"), "ok (skipped)", "its configuration has no onboot");
    let first = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    let later = bench.poll("guests-50", Some("onboot")).await.usage.requests;
    assert_eq!((first, later), (19 + 20, 5 + 20));
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
    assert!(
        status(&poll("guest-stopped", 9_999).await).contains("on purpose by root@pam"),
        "its task is listed no more"
    );

    // What cannot be read stands for five minutes, and is unknown after that.
    let kept = poll("broken", 10_000).await.kept;
    assert!(kept.contains(&"guest/".to_owned()) && kept.contains(&"cluster/quorum".to_owned()), "{kept:?}");
    let late = poll("broken", 10_300).await;
    assert!(lines(&late)["cluster/quorum"].starts_with("unknown: /cluster/status failed there"), "{:?}", lines(&late));
    assert!(lines(&poll("healthy", 10_310).await)["cluster/quorum"] == "ok");
    assert!(poll("broken", 10_320).await.kept.contains(&"cluster/quorum".to_owned()), "its time begins anew");
}

/// Whatever stands where a number, state or type should be: no fault, nothing that is critical for it, and a warning that
/// names what could not be read. `full` is what has no fullness without numbers, and must not be ok.
async fn odd_bodies(product: &'static str, full: &str, named: &str) {
    let bench = Bench::new(product, COMPILE).await;
    for wish in ["nulls", "minus", "huge", "lists", "without-numbers", "alien"] {
        let report = bench.report(wish).await;
        let lines = lines(&report);
        let critical: Vec<_> = lines.iter().filter(|(_, line)| line.starts_with("critical")).collect();
        // How a task or job ended is free text: what is not known of it is a failure's.
        let text = |name: &str| ["backup/", "gc/", "verify/", "sync/", "prune/"].iter().any(|of| name.starts_with(of));
        assert!(critical.iter().all(|(name, _)| wish == "alien" && text(name)), "{product} {wish}: {critical:?}");
        if wish == "alien" {
            continue;
        }
        let sized: Vec<_> = lines.iter().filter(|(name, _)| name.starts_with(full)).collect();
        assert!(!sized.is_empty(), "{product} {wish}: {lines:?}");
        assert!(sized.iter().all(|(_, line)| line.starts_with("unknown")), "{product} {wish}: {sized:?}");
        if ["minus", "huge", "lists"].contains(&wish) {
            let found = report.warnings.iter().any(|warning| warning.contains(named));
            assert!(found, "{product} {wish}: {:?}", report.warnings);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pve_odd_bodies_are_neither_ok_nor_critical() {
    odd_bodies("pve", "storage/", "maxmem of node/pve1 is").await;
    odd_bodies("pve", "cluster/quorum", "quorate of the cluster is").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pbs_odd_bodies_are_neither_ok_nor_critical() {
    odd_bodies("pbs", "datastore/", "used of datastore fast is").await;
    odd_bodies("pbs", "group/", "last-backup of group/fast/vm/100 is").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pmg_odd_bodies_are_neither_ok_nor_critical() {
    odd_bodies("pmg", "node/", "total memory of pmg1 is").await;
}

/// Requests do not grow with the number of guests, and stay within the default limits.
#[tokio::test(flavor = "multi_thread")]
async fn pve_requests_do_not_grow_with_guests() {
    let bench = Bench::new("pve", COMPILE).await;
    for nodes in [1, 3, 16] {
        let mut counts = Vec::new();
        for guests in [10, 500, 5_000] {
            let (wish, target) = (format!("nodes-{nodes}+guests-{guests}"), format!("n{nodes}-g{guests}"));
            let first = bench.poll(&wish, Some(&target)).await;
            assert!(
                matches!(&first.outcome, Outcome::Success(report) if report.dependencies.len() > guests),
                "{wish}: {:?}",
                first.outcome
            );
            let again = bench.poll(&wish, Some(&target)).await;
            let (requests, later) = (first.usage.requests, again.usage.requests);
            println!("{nodes:>2} nodes, {guests:>5} guests: {requests:>3} requests at first, {later} at most polls");
            counts.push((requests, later));
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{nodes} nodes: {counts:?}");
        assert_eq!(counts[0].1, 5, "{nodes} nodes");
    }
}

/// The same for backup groups: a datastore's namespace is one request, however many groups it holds.
#[tokio::test(flavor = "multi_thread")]
async fn pbs_requests_do_not_grow_with_groups() {
    let bench = Bench::new("pbs", COMPILE).await;
    let mut counts = Vec::new();
    for groups in [10, 500, 5_000] {
        let (wish, target) = (format!("groups-{groups}"), format!("g{groups}"));
        let first = bench.poll(&wish, Some(&target)).await;
        assert!(matches!(&first.outcome, Outcome::Success(report) if report.dependencies.len() > groups), "{wish}");
        let later = bench.poll(&wish, Some(&target)).await.usage.requests;
        println!(
            "3 namespaces, {groups:>5} groups: {:>3} requests at first, {later} at most polls",
            first.usage.requests
        );
        counts.push((first.usage.requests, later));
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pbs_says_what_is_wrong_and_nothing_else() {
    let bench = Bench::new("pbs", COMPILE).await;
    let healthy = bench.report("healthy").await;
    let notable: Vec<String> = lines(&healthy)
        .into_iter()
        .filter(|(_, line)| line != "ok")
        .map(|(name, line)| format!("{name} {line}"))
        .collect();
    assert_eq!(notable, ["gc/archive ok (skipped)"]);
    assert!(healthy.warnings.is_empty() && healthy.kept.is_empty(), "{healthy:?}");
    let groups: Vec<&str> =
        healthy.dependencies.iter().map(|of| of.name.as_str()).filter(|name| name.starts_with("group/")).collect();
    assert_eq!(groups.len(), 9, "{groups:?}");
    assert!(groups.contains(&"group/fast/lab/two/vm/100") && groups.contains(&"group/archive/host/102"), "{groups:?}");

    let broken: &[&str] = &["datastore/archive critical: *os error*", "group/archive/* is not there"];
    let cases: &[(&str, &[&str])] = &[
        (
            "no-rights",
            &[
                "api warning: the token lacks Datastore.Audit*acl update / Audit --auth-id*",
                "tasks unknown: the token lacks Sys.Audit, so others' tasks are hidden from it*",
                "node unknown: the credentials are right and lack the rights for /nodes/localhost/status*",
                "datastore/* is not there",
                "group/* is not there",
                "gc/* is not there",
                "verify/* is not there",
                "sync/* is not there",
                "prune/* is not there",
                "verification/* is not there",
            ],
        ),
        (
            "no-audit",
            &[
                "node unknown: *lack the rights for /nodes/localhost/status*",
                "tasks unknown: the token lacks Sys.Audit*",
            ],
        ),
        ("datastore-error", &[broken, &["group*archive* is kept", "verification/archive is*"]].concat()),
        (
            "datastore-usage-broken",
            &[
                "datastore/archive critical: the server cannot use it: *Input/output error*",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        (
            "maintenance",
            &[
                "datastore/archive warning: it is in maintenance mode offline: disk swap tonight",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        (
            "unmounted",
            &[
                "datastore/archive warning: its removable disk is not mounted",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        ("datastore-full", &["datastore/fast critical: more than 95 % is used*"]),
        ("full-soon", &["datastore/fast critical: it will be full in fewer than 7 days (2026-11-25), as it grows now"]),
        ("s3", &[]),
        (
            "snapshot-damaged",
            &["verification/fast critical: 2 snapshots are damaged: vm/100 of 2026-11-19 00:00 UTC, vm/100 of *"],
        ),
        ("gc-failed", &["gc/fast critical: its last run of 2026-11-20 00:00 UTC failed: chunk store is full"]),
        ("gc-bad", &["gc/fast warning: 3 damaged chunks are still there*"]),
        ("verify-failed", &["verify/v-3f2a critical: *verification failed*"]),
        ("sync-failed", &["sync/s-pull critical: *sync failed with some errors.*"]),
        ("sync-warnings", &["sync/s-push warning: its last run of 2026-11-20 00:00 UTC ended with 1 warning"]),
        ("prune-off", &["prune/p-91bc ok (skipped)"]),
        (
            "job-late",
            &["verify/v-3f2a warning: it was due at 2026-11-20 07:00 UTC and has not run for more than 2 hours since"],
        ),
        ("job-running", &[]),
        ("job-never", &["verify/v-3f2a warning: it has not run yet"]),
        ("old", &["sync/s-push is not there"]),
        (
            "group-old",
            &["group/*/vm/100 critical: its newest backup is of 2026-10-21 12:00 UTC, more than 168 hours ago"],
        ),
        (
            "group-hidden",
            &[
                "group/* is not there",
                "groups/fast unknown: *lack the rights*",
                "groups/archive unknown: *lack the rights*",
            ],
        ),
        ("tasks-failed", &["tasks warning: 2 tasks failed in the last day: backup of fast:vm/100 (2 times)"]),
        (
            "certificate-ends",
            &["certificate critical: node.pem expires at 2026-11-22 12:00 UTC: run \"proxmox-backup-manager*"],
        ),
        ("strings", &[]),
        ("unwrapped", &[]),
    ];
    for case in cases {
        check(&bench, &healthy, *case).await;
    }
    // A walk that hangs is left alone for an hour, and the other datastore is not held up by it.
    let first = bench.poll("walk-hangs", Some("hangs")).await;
    let again = bench.poll("walk-hangs", Some("hangs")).await;
    assert_eq!(again.usage.requests, 4, "nothing of either datastore is listed again so soon");
    for outcome in [first.outcome, again.outcome] {
        let Outcome::Success(report) = outcome else { panic!("{outcome:?}") };
        let found = difference(&healthy, &report);
        assert!(found.iter().any(|line| line == "group/archive/ is kept"), "{found:?}");
        assert!(found.iter().any(|line| line == "groups/archive is kept"), "{found:?}");
        assert!(found.iter().any(|line| fits("warning: *archive*no whole answer within*", line)), "{found:?}");
    }

    let stranger = bench.with_secret(("token", "monitor@pbs!polliwog:99999999-2222-3333-4444-555555555555"));
    fails(
        &stranger,
        "healthy",
        FailureCategory::Permanent,
        "unauthorized",
        "\"authentication failed - invalid ticket\"",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pmg_says_what_is_wrong_and_nothing_else() {
    let bench = Bench::new("pmg", COMPILE).await;
    let healthy = bench.report("healthy").await;
    let all: Vec<String> = lines(&healthy).into_iter().map(|(name, line)| format!("{name} {line}")).collect();
    let expected = [
        "api ok",
        "certificate/pmg1 ok",
        "certificate/pmg2 ok",
        "certificate/pmg3 ok",
        "clamav ok",
        "cluster ok",
        "node/pmg1 ok",
        "node/pmg2 ok",
        "node/pmg3 ok",
        "queue/active ok",
        "queue/deferred ok",
        "queue/hold ok",
        "queue/incoming ok",
        "service/clamav-daemon ok",
        "service/pmg-smtp-filter ok",
        "service/postfix ok",
        "spamassassin ok",
    ];
    assert_eq!(all, expected);
    let cases: &[(&str, &[&str])] = &[
        ("standalone", &["cluster ok (skipped)", "*/pmg2 is not there", "*/pmg3 is not there"]),
        (
            "no-rights",
            &[
                "cluster unknown: *lack the rights for /config/cluster/status: give the user the role Auditor*",
                "node/* is not there",
                "queue/* unknown: there is no node that could be asked",
                "service/* is not there",
                "service/ is kept",
                "certificate/* is not there",
                "certificate/ is kept",
                "clamav is not there",
                "clamav is kept",
                "spamassassin is not there",
                "spamassassin is kept",
                "warning: the * not known: the credentials are right*",
            ],
        ),
        (
            "node-dead",
            &[
                "node/pmg3 critical: pmg3 cannot be reached*No route to host)",
                "cluster warning: not in step with the others: pmg3*",
                "certificate/pmg3 is not there",
                "certificate/pmg3 is kept",
                "subscription/pmg3 is kept",
            ],
        ),
        ("cluster-hangs", &["cluster unknown: how its nodes see one another is not known: *no whole answer within*"]),
        ("out-of-step", &["cluster warning: not in step with the others: pmg3; look there with \"pmgcm status\"*"]),
        ("deferred", &["queue/deferred warning: pmg1 has 100 messages or more in it*"]),
        ("held", &["queue/hold warning: pmg1 has 1 messages or more in it*"]),
        (
            "service-down",
            &[
                "service/pmg-smtp-filter critical: it does not run on pmg1: look there with \"systemctl status pmg-smtp-filter\"",
            ],
        ),
        ("memory-full", &["node/* warning: memory: more than 95 % is used"]),
        (
            "clamav-old",
            &["clamav critical: the daily signatures of pmg1 are of 2026-11-10 12:00 UTC, more than 168 hours old*"],
        ),
        ("rules-old", &["spamassassin warning: there are newer rules: updates.spamassassin.org on pmg1*"]),
        ("certificate-ended", &["certificate/pmg* critical: node.pem has expired*"]),
        ("strings", &[]),
    ];
    for case in cases {
        check(&bench, &healthy, *case).await;
    }
    fails(&bench, "tfa", FailureCategory::Permanent, "second_factor", "wants a second factor").await;
    fails(&bench, "ticket-lost", FailureCategory::Transient, "ticket_refused", "invalid PMG ticket").await;
    fails(&bench, "login-page", FailureCategory::Transient, "web_page", "web page").await;

    // One log-in serves many polls.
    let first = bench.poll("healthy", Some("again")).await.usage.requests;
    let again = bench.poll("healthy", Some("again")).await.usage.requests;
    assert_eq!(
        (first, again),
        (31, 18),
        "ticket, version, cluster, nodes, 4 queues of 3 nodes, 3 numbers; services, filters and certificates of 3 nodes"
    );

    // One that is no longer taken is replaced: refused once, and a log-in.
    let renewed = bench.poll("key-renewed", Some("again")).await;
    assert!(matches!(renewed.outcome, Outcome::Success(_)), "{:?}", renewed.outcome);
    assert_eq!(renewed.usage.requests, 18 + 2);
    assert_eq!(bench.poll("key-renewed", Some("again")).await.usage.requests, 18);

    let stranger = bench.with_secret(("password", "not the password"));
    fails(&stranger, "healthy", FailureCategory::Permanent, "unauthorized", "check the setting \"username\"").await;
}
