//! Backup Server.

use super::{check, fails, fits, odd_bodies};
use model::{FailureCategory, Outcome};
use tests::proxmox::{Bench, NOW, difference, lines};

#[tokio::test(flavor = "multi_thread")]
async fn pbs_unreadable_values_are_neither_ok_nor_critical() {
    odd_bodies("pbs", "datastore/", "used of datastore fast is").await;
    odd_bodies("pbs", "group/", "last-backup of group/fast/vm/100 is").await;
}

/// A namespace of a datastore is one request, however many groups it has.
#[tokio::test(flavor = "multi_thread")]
async fn pbs_requests_do_not_grow_with_groups() {
    let bench = Bench::new("pbs").await;
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
async fn pbs_reports_each_fault_and_nothing_else() {
    let bench = Bench::new("pbs").await;
    let healthy = bench.report("healthy").await;
    let notable: Vec<String> = lines(&healthy)
        .into_iter()
        .filter(|(_, line)| line != "ok")
        .map(|(name, line)| format!("{name} {line}"))
        .collect();
    assert_eq!(notable, ["certificate ok (skipped)", "gc/archive ok (skipped)"]);
    assert!(healthy.warnings.is_empty() && healthy.kept.is_empty(), "{healthy:?}");
    let groups: Vec<&str> =
        healthy.dependencies.iter().map(|of| of.name.as_str()).filter(|name| name.starts_with("group/")).collect();
    assert_eq!(groups.len(), 9, "{groups:?}");
    assert!(groups.contains(&"group/fast/lab/two/vm/100") && groups.contains(&"group/archive/host/102"), "{groups:?}");

    let broken: &[&str] =
        &["datastore/archive critical: *os error*", "groups/archive is not there", "group/archive/* is not there"];
    let cases: &[(&str, &[&str])] = &[
        (
            "no-rights",
            &[
                "warning: the token lacks Remote.Audit, so sync jobs with a remote are hidden from it*",
                "api warning: the token lacks Datastore.Audit*acl update / Audit --auth-id*",
                "tasks unknown: the token lacks Sys.Audit, so others' tasks are hidden from it*",
                "node unknown: the credentials are right and lack the rights for /nodes/localhost/status*",
                "datastore/* is not there",
                "group/* is not there",
                "groups/* is not there",
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
        (
            "datastore-error",
            &[broken, &["gc/archive is*", "group*archive* is kept", "verification/archive is*"]].concat(),
        ),
        (
            "datastore-usage-broken",
            &[
                "datastore/archive critical: the server cannot use it: *Input/output error*",
                "gc/archive is*",
                "groups/archive is not there",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        (
            "maintenance",
            &[
                "datastore/archive warning: it is in maintenance mode offline: disk swap tonight",
                "sync/s-pull ok (skipped)",
                "gc/archive is*",
                "groups/archive is not there",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        (
            "unmounted",
            &[
                "datastore/archive warning: its removable disk is not mounted; if it is swapped regularly*may_rest",
                "sync/s-pull ok (skipped)",
                "gc/archive is*",
                "groups/archive is not there",
                "group/archive/* is not there",
                "group*archive* is kept",
                "verification/archive is*",
            ],
        ),
        ("datastore-full", &["datastore/fast critical: more than 95 % is used*"]),
        (
            "full-soon",
            &["datastore/fast critical: it will be full in fewer than 7 days (2026-11-25), at the current \
                         rate"],
        ),
        ("s3", &[]),
        (
            "snapshot-damaged",
            &[
                "verification/fast critical: 2 snapshots are damaged: lab/two/vm/100 of 2026-11-19 00:00 UTC, vm/100 of *",
            ],
        ),
        (
            "clock-ahead",
            &[
                "group/*vm/100 unknown: its newest backup is of 2026-11-23 *, which is in the future*",
                "gc/fast unknown: its last run is of 2026-11-23 *, which is in the future*",
                "verify/v-3f2a unknown: its last run is of *future*",
                "prune/p-91bc unknown: its last run is of *future*",
                "sync/s-* unknown: its last run is of *future*",
            ],
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
        ("job-never", &["verify/v-3f2a ok (skipped)"]),
        ("job-never+job-late", &["verify/v-3f2a warning: it was due at 2026-11-20 07:00 UTC and has not run *"]),
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
        (
            "tasks-failed",
            &[
                "tasks warning: 2 tasks failed in the last day: backup of fast:vm/100 (2 times; connection error: timed out)",
            ],
        ),
        ("strings", &[]),
        ("unwrapped", &[]),
    ];
    for case in cases {
        check(&bench, &healthy, *case).await;
    }
    // The last result of a job is kept while it runs again.
    let at = async |wish: &str, later: i64| {
        let done = bench.poll_at(&format!("pbs/{wish}"), Some("job"), NOW + later).await;
        let Outcome::Success(report) = done.outcome else { panic!("{wish}: {:?}", done.outcome) };
        report
    };
    assert!(lines(&at("sync-failed", 0).await)["sync/s-pull"].starts_with("critical"));
    let running = at("job-failing", 60).await;
    assert!(running.kept.contains(&"sync/s-pull".to_owned()), "{running:?}");
    assert!(!lines(&running).contains_key("sync/s-pull"), "{running:?}");
    assert_eq!(lines(&bench.report("job-failing").await)["sync/s-pull"], "ok", "nothing is known of it");

    // A disk that is swapped on purpose keeps its groups. Otherwise they are unknown, and are checked when it is back.
    let resting = bench.report("unmounted").await;
    assert!(lines(&resting)["sync/s-pull"].starts_with("ok (skipped)"), "{resting:?}");
    assert_eq!(lines(&at("healthy", 400).await)["group/archive/vm/100"], "ok");
    let gone = at("unmounted", 410).await;
    assert_eq!(lines(&gone)["group/archive/vm/100"], "unknown: it cannot be checked: see \"datastore/archive\"");
    assert_eq!(lines(&gone)["verification/archive"], "unknown: it cannot be checked: see \"datastore/archive\"");
    at("healthy", 420).await;
    let back = at("healthy", 430).await;
    let found = ["group/archive/vm/100", "verification/archive"].map(|name| lines(&back)[name].clone());
    assert_eq!(found, ["ok", "ok"]);

    // A diagnostic is reported for as long as the check is valid.
    let noted = at("minus", 1_000).await.warnings;
    let again = at("minus", 1_010).await.warnings;
    let of_group = |warnings: &[String]| warnings.iter().filter(|said| said.contains("last-backup of group/")).count();
    assert!(of_group(&noted) > 0 && of_group(&noted) == of_group(&again), "{noted:?} {again:?}");

    // A walk that hangs is not repeated for an hour, and does not delay the other datastore.
    let first = bench.poll("walk-hangs", Some("hangs")).await;
    let again = bench.poll("walk-hangs", Some("hangs")).await;
    assert_eq!(again.usage.requests, 4, "nothing of either datastore is listed again so soon");
    let found = |outcome: Outcome| match outcome {
        Outcome::Success(report) => difference(&healthy, &report),
        other => panic!("{other:?}"),
    };
    let (first, again) = (found(first.outcome), found(again.outcome));
    let has = |found: &[String], expected: &str| found.iter().any(|line| fits(expected, line));
    assert!(has(&first, "groups/archive unknown: *no whole answer within*"), "{first:?}");
    assert!(has(&again, "warning: *archive*no whole answer within*"), "{again:?}");
    assert!(has(&first, "group/archive/ is kept") && has(&again, "group/archive/ is kept"), "{first:?} {again:?}");

    // A disk that hangs affects its own datastore only, and is not asked at every poll.
    let hung = bench.poll("usage-hangs", Some("usage")).await;
    let again = bench.poll("usage-hangs", Some("usage")).await;
    // Version, node, the list, and the datastore that answers.
    assert_eq!(again.usage.requests, 4);
    for outcome in [hung.outcome, again.outcome] {
        let Outcome::Success(report) = outcome else { panic!("{outcome:?}") };
        let lines = lines(&report);
        assert!(lines["datastore/archive"].starts_with("unknown: its usage is not known"), "{lines:?}");
        assert_eq!(lines["datastore/fast"], "ok");
    }

    // A long walk through snapshots continues over several polls.
    let verified = async || {
        let Outcome::Success(report) = bench.poll("namespaces-many", Some("many")).await.outcome else { panic!() };
        let name = "verification/fast";
        report.dependencies.into_iter().find(|of| of.name == name).map(|of| (of.status.as_str(), of.description))
    };
    assert_eq!(verified().await, None);
    let of = "120 of 180 snapshots were verified".to_owned();
    assert_eq!(verified().await, Some(("ok", Some(of))));
    assert_eq!(verified().await, None, "it is not walked again within the hour");

    let stranger = bench.with_secret(("token", "monitor@pbs!polliwog:99999999-2222-3333-4444-555555555555"));
    fails(
        &stranger,
        "healthy",
        FailureCategory::Misconfigured,
        "unauthorized",
        "\"authentication failed - invalid ticket\"",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pbs_settings_select_what_is_checked() {
    let bench = Bench::new("pbs").await.with_settings(
        r#"{"datastores": {"may_rest": ["arch*"]}, "tasks": {"exclude": ["backup:fast:*"]}, "unverified_warning_percent": 20,
            "groups": {"exclude": ["ns:lab/*"], "ages": [{"for": ["host/*"], "warning_hours": 6, "critical_hours": 0}]},
            "jobs": {"age_warning_hours": 6, "exclude": ["prune/*"]}}"#,
    );
    let found = lines(&bench.report("unmounted+tasks-failed").await);
    assert_eq!(found["datastore/archive"], "ok (skipped)", "{found:?}");
    assert_eq!(found["tasks"], "ok");
    assert!(!found.contains_key("group/fast/lab/two/vm/100") && !found.contains_key("prune/p-91bc"), "{found:?}");
    assert_eq!(found["group/fast/vm/100"], "ok");
    assert!(found["group/fast/host/102"].ends_with("more than 6 hours ago"), "{found:?}");
    assert!(found["verify/v-3f2a"].ends_with("is more than 6 hours ago"), "{found:?}");
    assert!(found["verification/fast"].contains("more than 20 % of its snapshots were never verified"), "{found:?}");

    // Its groups keep the state of before it was taken away.
    let poll = async |wish: &str, later: i64| {
        let done = bench.poll_at(&format!("pbs/{wish}"), Some("same"), NOW + later).await;
        let Outcome::Success(report) = done.outcome else { panic!("{wish}: {:?}", done.outcome) };
        report
    };
    assert_eq!(lines(&poll("healthy", 0).await)["group/archive/vm/100"], "ok");
    let resting = poll("unmounted", 10).await;
    assert!(!lines(&resting).contains_key("group/archive/vm/100"), "{resting:?}");
    assert!(resting.kept.contains(&"group/archive/".to_owned()), "{resting:?}");
    let archive = resting.dependencies.iter().find(|found| found.name == "datastore/archive");
    let said = archive.and_then(|archive| archive.description.as_deref());
    assert_eq!(said, Some("its removable disk is not mounted"), "a listed datastore needs no hint to list it");
}
