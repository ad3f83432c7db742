use super::*;
use model::{Cause, Dependency as Reported, FailureCategory};

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub(super) fn report(dependencies: Vec<Reported>) -> Outcome {
    Outcome::Success(Report { dependencies, ..Report::default() })
}

pub(super) fn dependency(name: &str, status: Status) -> Reported {
    Reported::new(name, status)
}

pub(super) fn failure(category: FailureCategory, code: &str, message: &str) -> Outcome {
    Outcome::Failure(Failure {
        category,
        code: code.to_owned(),
        cause: Cause::Other,
        message: message.to_owned(),
        retry_after: None,
    })
}

/// Merges outcomes one after the other. Returns a summary of the changes of each.
pub(super) fn merge_all(known: &mut KnownState, outcomes: Vec<Outcome>) -> Vec<String> {
    let mut seen = Vec::new();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let changes = known.merge(outcome, at(10 * index as i64), &Aliases::new());
        let mut parts: Vec<String> = Vec::new();
        for t in &changes.transitions {
            parts.push(format!("{}:{}>{}", t.dependency, t.previous.as_str(), t.current.as_str()));
        }
        for e in &changes.errors {
            parts.push(format!("{}!{}", e.dependency, e.message.as_deref().unwrap_or("recovered")));
        }
        if let Some(entry) = &changes.poll_error {
            parts.push(match entry {
                PollErrorEntry::Failed { code, .. } => format!("poll {code}"),
                PollErrorEntry::Recovered => "poll recovered".to_owned(),
            });
        }
        parts.push(format!("{}u{}d", changes.urgent.len(), changes.details.len()));
        seen.push(parts.join(" "));
    }
    seen
}

#[test]
fn only_a_changed_status_is_a_transition() {
    use Status::{Critical, Ok, Unknown, Warning};
    let statuses = [Ok, Ok, Warning, Critical, Critical, Unknown, Ok];
    let mut known = KnownState::default();
    let seen = merge_all(&mut known, statuses.map(|status| report(vec![dependency("a", status)])).to_vec());
    assert_eq!(
        seen,
        [
            "1u0d",
            "0u0d",
            "a:ok>warning 1u0d",
            "a:warning>critical a!Unhealthy 1u0d",
            "0u0d",
            "a:critical>unknown 1u0d",
            "a:unknown>ok a!recovered 1u0d"
        ]
    );
    assert_eq!(known.dependencies[0].record.last_status_change, Some(at(60)));
}

#[test]
fn a_new_error_is_recorded_and_a_new_message_is_not() {
    let critical = |error: Option<&str>, message: Option<&str>| {
        let error = error.map(Json::checked);
        report(vec![Reported { error, error_message: message.map(str::to_owned), ..dependency("a", Status::Critical) }])
    };
    let seen = merge_all(
        &mut KnownState::default(),
        vec![
            critical(None, Some("no route")),
            critical(None, Some("no route at all")),
            critical(Some("1"), None),
            critical(Some("1"), Some("other words")),
            critical(Some("2"), Some("worse")),
        ],
    );
    assert_eq!(seen, ["a!no route 1u0d", "0u1d", "a!Unhealthy 1u0d", "0u1d", "a!worse 1u0d"]);
}

#[test]
fn a_dismissed_missing_dependency_is_forgotten_and_counts_as_new_when_reported_again() {
    let mut known = KnownState::default();
    let names = |names: &[&str]| report(names.iter().map(|name| dependency(name, Status::Ok)).collect());
    merge_all(&mut known, vec![names(&["a", "b", "c"]), names(&["a"])]);
    assert_eq!(known.dismiss(Some("a")).forgotten, Vec::<String>::new(), "it is not missing");
    assert_eq!(known.dismiss(Some("b")).forgotten, ["b"]);
    assert_eq!(known.dismiss(None).forgotten, ["c"]);
    assert!(known.get("b").is_none() && known.get("c").is_none() && known.get("a").is_some());
    merge_all(&mut known, vec![names(&["a", "b"])]);
    assert_eq!(known.get("b").unwrap().record.missing_since, None);
    assert_eq!(known.get("b").unwrap().record.slot, 3, "a new slot");
}

#[test]
fn a_dependency_that_is_no_longer_reported_is_missing_unless_kept() {
    let mut known = KnownState::default();
    let names = |names: &[&str], kept: &[&str]| {
        let dependencies = names.iter().map(|name| dependency(name, Status::Ok)).collect();
        Outcome::Success(Report {
            dependencies,
            kept: kept.iter().map(ToString::to_string).collect(),
            ..Report::default()
        })
    };
    merge_all(&mut known, vec![names(&["a", "disk/1", "disk/2", "b"], &[]), names(&["a"], &["disk/"])]);
    let missing = |known: &KnownState| -> Vec<String> {
        let gone = known.dependencies.iter().filter(|d| d.record.missing_since.is_some());
        gone.map(|d| d.record.reported.name.clone()).collect()
    };
    assert_eq!(missing(&known), ["b"]);
    assert_eq!(merge_all(&mut known, vec![names(&["a", "b"], &["disk/1"])]), ["2u0d"], "b is back, disk/2 is missing");
    assert_eq!(missing(&known), ["disk/2"]);
    let many: Vec<String> = (0..MISSING + 10).map(|n| format!("n{n}")).collect();
    merge_all(&mut known, vec![names(&many.iter().map(String::as_str).collect::<Vec<_>>(), &[])]);
    let changes = known.merge(names(&[], &[]), at(100), &Aliases::new());
    assert_eq!(missing(&known).len(), MISSING);
    assert!(changes.forgotten.len() >= 10 && known.get("n1009").is_some() != known.get("n0").is_some());
}

#[test]
fn what_is_gone_is_forgotten_unless_it_is_reported() {
    let mut known = KnownState::default();
    let names = |names: &[&str], gone: &[&str]| {
        let dependencies = names.iter().map(|name| dependency(name, Status::Critical)).collect();
        let gone = gone.iter().map(ToString::to_string).collect();
        Outcome::Success(Report { dependencies, gone, ..Report::default() })
    };
    merge_all(&mut known, vec![names(&["a", "guest/1", "guest/2", "b", "c"], &[])]);
    let changes = known.merge(names(&["a", "guest/2"], &["guest/", "c", "nothing"]), at(20), &Aliases::new());
    let mut forgotten = changes.forgotten.clone();
    forgotten.sort_unstable();
    assert_eq!(forgotten, ["c", "guest/1"]);
    assert!(changes.is_urgent() && known.get("guest/1").is_none() && known.get("guest/2").is_some());
    assert_eq!(known.get("b").unwrap().record.missing_since, Some(at(20)), "only missing");
    let changes = known.merge(names(&["a", "guest/2"], &["b"]), at(30), &Aliases::new());
    assert_eq!(changes.forgotten, ["b"], "what is missing can be gone, too");
}

#[test]
fn a_failed_poll_makes_the_target_stale_and_keeps_its_dependencies() {
    let mut known = KnownState::default();
    let transient = |code: &str, message: &str| failure(FailureCategory::Transient, code, message);
    let seen = merge_all(
        &mut known,
        vec![
            report(vec![dependency("a", Status::Critical)]),
            transient("timeout", "after 1 s"),
            transient("timeout", "after 2 s"),
            transient("closed", "x"),
            failure(FailureCategory::Plugin, "cpu_limit", "x"),
        ],
    );
    assert_eq!(seen, ["a!Unhealthy 1u0d", "poll timeout 0u0d", "0u0d", "poll closed 0u0d", "poll cpu_limit 0u0d"]);
    assert_eq!((known.stale_since, known.dependencies[0].record.reported.status), (Some(at(10)), Status::Critical));
    assert_eq!(merge_all(&mut known, vec![report(vec![dependency("a", Status::Critical)])]), ["poll recovered 0u0d"]);
    assert_eq!((known.stale_since, &known.failure), (None, &None));
}

#[test]
fn an_unchanged_report_causes_no_changes() {
    let mut known = KnownState::default();
    let same = |latency: f64, checked: i64| {
        let reported =
            Reported { latency_ms: Some(latency), checked_at: Some(at(checked)), ..dependency("a", Status::Ok) };
        report(vec![reported])
    };
    merge_all(&mut known, vec![same(1.0, 1)]);
    for (second, latency) in [(20, 2.0), (30, 3.0)] {
        let changes = known.merge(same(latency, second), at(second), &Aliases::new());
        assert_eq!(changes, Changes::default());
    }
    assert_eq!(known.dependencies[0].volatile.latency_ms, Some(3.0));
    let changes = known.merge(same(9.0, 400), at(400), &Aliases::new());
    let [(0, window)] = &changes.points[..] else { panic!("{changes:?}") };
    assert_eq!((window.point.count, window.point.max), (3, 3.0));
    assert_eq!(window.sketch.buckets().iter().map(|(_, count)| count).sum::<u32>(), 3);
    assert!(!changes.is_urgent());
}

#[test]
fn an_alias_sets_the_canonical_name() {
    let aliases = Aliases::from([("PostgreSQL main".to_owned(), "postgres".to_owned())]);
    let mut known = KnownState::default();
    known.merge(report(vec![dependency("PostgreSQL main", Status::Ok)]), at(0), &aliases);
    assert_eq!(known.dependencies[0].record.canonical.as_deref(), Some("postgres"));
    let changes = known.merge(report(vec![dependency("PostgreSQL main", Status::Ok)]), at(1), &Aliases::new());
    assert_eq!((changes.urgent.len(), changes.urgent[0].canonical.clone()), (1, None));
}
