//! The plugins for Proxmox products against the simulated estate: how the report of each fault differs from that of a
//! healthy estate.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod patched;
mod pbs;
mod pmg;
mod pve;
mod pve_memory;
mod pve_samples;
mod versions;

use model::{FailureCategory, Outcome, Report};
use tests::proxmox::{Bench, difference, lines, status};

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

/// Polls `wish`, and compares the differences from a healthy estate with the expected lines. Each must occur at least
/// once.
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

/// Polls `wish`, which must fail with this category, code and message.
async fn fails(bench: &Bench, wish: &str, category: FailureCategory, code: &str, says: &str) {
    match bench.poll(wish, None).await.outcome {
        Outcome::Failure(failure) => {
            assert_eq!((failure.category, failure.code.as_str()), (category, code), "{wish}: {failure:?}");
            assert!(failure.message.contains(says), "{wish}: {}", failure.message);
        }
        other => panic!("{wish}: {other:?}"),
    }
}

/// Dependencies that the settings exclude do not alert as missing.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_settings_exclude_is_gone() {
    for (product, settings, excluded) in [
        ("pve", r#"{"guests": {"exclude": ["100", "tag:prod"]}}"#, "guest/100"),
        ("pve", r#"{"guests": {"include": ["102"]}}"#, "guest/101"),
        ("pve", r#"{"nodes": {"exclude": ["pve2"]}}"#, "node/pve2"),
        ("pve", r#"{"storages": {"include": ["local*"]}}"#, "storage/nfs-backup"),
        ("pve", r#"{"storages": {"exclude": ["local@pve1"]}}"#, "storage/local@pve1"),
        ("pve", r#"{"ha": {"exclude": ["vm:100"]}}"#, "ha/service/vm:100"),
        ("pve", r#"{"replication": {"exclude": ["*"]}}"#, "replication/100-0"),
        ("pve", r#"{"upkeep": {"zfs": false}}"#, "zfs/pve1"),
        ("pve", r#"{"backups": {"exclude": ["100"]}}"#, "backup/guest/100"),
        ("pve", r#"{"backups": {"coverage": false, "runs": false}}"#, "backup/coverage"),
        ("pbs", r#"{"datastores": {"exclude": ["archive"]}}"#, "datastore/archive"),
        ("pbs", r#"{"jobs": {"exclude": ["verify/*"]}}"#, "verify/"),
        ("pbs", r#"{"groups": {"include": ["vm/*"], "exclude": ["vm/100"]}}"#, "group/archive/vm/100"),
        ("pbs", r#"{"verification": false, "tasks": {"warn": false}}"#, "verification/archive"),
        ("pmg", r#"{"username": "monitor@pmg", "services": {"exclude": ["*"]}}"#, "service/"),
    ] {
        let bench = Bench::new(product).await;
        let before = bench.report("healthy").await;
        let after = bench.with_settings(settings).report("healthy").await;
        let has = |names: &[String], name: &str| {
            names.iter().any(|one| name == one || one.ends_with('/') && name.starts_with(one.as_str()))
        };
        let is_reported = |name: &str| after.dependencies.iter().any(|found| found.name == name);
        let vanished: Vec<&String> =
            before.dependencies.iter().map(|found| &found.name).filter(|name| !is_reported(name)).collect();
        assert!(vanished.iter().any(|name| name.starts_with(excluded)), "{settings}: {vanished:?}");
        for name in vanished {
            assert!(has(&after.gone, name), "{settings}: {name} is missing; gone: {:?}", after.gone);
        }
        assert!(
            before
                .gone
                .iter()
                .all(|gone| !before.dependencies.iter().any(|found| has(std::slice::from_ref(gone), &found.name)))
        );
    }
}

/// A list that has one name twice hides no failure, in any order, and the report says so.
#[tokio::test(flavor = "multi_thread")]
async fn of_one_name_twice_the_worst_counts() {
    for (product, failed) in [
        ("pve", ["node/pve1", "guest/101", "storage/nfs-backup", "ha/service/vm:100"].as_slice()),
        ("pbs", ["datastore/archive"].as_slice()),
        ("pmg", ["service/clamav-daemon", "service/pmg-smtp-filter"].as_slice()),
    ] {
        let bench = Bench::new(product).await;
        let (last, first) = (bench.report("twins").await, bench.report("twins-first").await);
        for name in failed {
            let (last, first) = (status(&last, name), status(&first, name));
            assert!(last == first && !last.is_empty() && !last.starts_with("ok"), "{name}: {last} and {first}");
        }
        let notes = |report: &Report| report.warnings.iter().filter(|note| note.contains("more than once")).count();
        assert!(notes(&last) >= failed.len() && notes(&last) == notes(&first), "{:?}", last.warnings);
        assert_eq!(lines(&last), lines(&first), "{product}");
    }
}

/// Bodies with other values than numbers, states or types: they are not a fault. Nothing is critical because of them,
/// and a warning names the field that could not be read. `full` are dependencies that have no usage without numbers,
/// and must not be ok.
async fn odd_bodies(product: &'static str, full: &str, named: &str) {
    let bench = Bench::new(product).await;
    for wish in ["nulls", "minus", "huge", "lists", "without-numbers", "alien"] {
        let report = bench.report(wish).await;
        let lines = lines(&report);
        let critical: Vec<_> = lines.iter().filter(|(_, line)| line.starts_with("critical")).collect();
        // The result of a task or job is free text: an unknown text is a failure.
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
