use super::*;
use crate::known::KnownState;
use crate::known::tests::{at, dependency, failure, merge_all, report};
use model::FailureCategory;

const UNAVAILABLE: &str = "the server answered 503";

/// A report from an answer with status 503, or with 200.
fn answered(is_error: bool, parts: &[(&str, Status)]) -> Outcome {
    let Outcome::Failure(failure) = failure(FailureCategory::Transient, "server_error", UNAVAILABLE) else {
        unreachable!()
    };
    let dependencies = parts.iter().map(|(name, status)| dependency(name, *status)).collect();
    let error_unless_known = is_error.then(|| Box::new(failure));
    Outcome::Success(Report { dependencies, error_unless_known, ..Report::default() })
}

/// Keeps an outcome. Returns the reported parts with their statuses; the code of a failure.
fn kept(known: &mut KnownState, outcome: Outcome) -> String {
    match known.keep(outcome, None, at(0), &crate::Aliases::new()).0 {
        Outcome::Success(report) => {
            let part = |found: &Dependency| format!("{}={}", found.name, found.status.as_str());
            report.dependencies.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        Outcome::Failure(failure) => failure.code,
        Outcome::Skipped => unreachable!(),
    }
}

use Status::{Critical, Ok, Unknown, Warning};

#[test]
fn a_report_that_knows_nothing_of_the_target_is_the_error_that_it_has() {
    let new = KnownState::default();
    let mut known = KnownState::default();
    merge_all(&mut known, vec![report(vec![dependency("db", Ok), dependency("gone", Ok)])]);
    merge_all(&mut known, vec![report(vec![dependency("db", Ok)])]);
    for (state, parts, is_error, expected) in [
        (&new, &[("db", Critical)][..], true, "db=critical"),
        (&new, &[("message", Unknown), ("db", Critical)], true, "message=unknown db=critical"),
        (&new, &[("message", Unknown)], true, "server_error"),
        (&new, &[("message", Unknown)], false, "message=unknown"),
        (&new, &[], true, "server_error"),
        (&known, &[("db", Critical)], true, "db=critical"),
        (&known, &[("gone", Critical)], true, "gone=critical"),
        (&known, &[("message", Critical)], true, "server_error"),
        (&known, &[("message", Critical)], false, "message=critical"),
        (&known, &[], true, "server_error"),
    ] {
        assert_eq!(kept(&mut state.clone(), answered(is_error, parts)), expected, "{parts:?}");
    }
}

#[test]
fn an_error_whose_parts_are_not_critical_is_critical() {
    for status in [Ok, Warning, Unknown] {
        let mut known = KnownState::default();
        kept(&mut known, answered(false, &[("db", Ok)]));
        let word = status.as_str();
        assert_eq!(kept(&mut known, answered(true, &[("db", status)])), format!("db={word} http=critical"));
        let record = &known.get("http").unwrap().record.reported;
        let why = format!("no part of the report is critical, but {UNAVAILABLE}");
        assert_eq!(record.error_message.as_deref(), Some(why.as_str()));
        // The part that fails later explains it, and the end is seen.
        assert_eq!(kept(&mut known, answered(true, &[("db", Critical)])), "db=critical http=critical");
        assert_eq!(known.get("http").unwrap().record.reported.runs_on, ["db"]);
        assert_eq!(kept(&mut known, answered(false, &[("db", Critical)])), "db=critical http=ok");
        assert_eq!(kept(&mut known, answered(false, &[("db", Ok)])), "db=ok http=ok");
        // A report of nothing that is known does not become one because of `http`.
        assert_eq!(kept(&mut known, answered(true, &[("message", Critical)])), "server_error");
    }
    // The first answer counts as well, and a part that was skipped is not well.
    assert_eq!(kept(&mut KnownState::default(), answered(true, &[("db", Ok)])), "db=ok http=critical");
    let mut skipped = answered(true, &[("db", Critical)]);
    if let Outcome::Success(report) = &mut skipped {
        report.dependencies[0].skipped = true;
    }
    assert_eq!(kept(&mut KnownState::default(), skipped), "db=critical http=critical");
}

#[test]
fn a_part_with_the_name_of_the_answer_stays_a_part() {
    let mut known = KnownState::default();
    assert_eq!(kept(&mut known, answered(false, &[("http", Ok)])), "http=ok");
    assert_eq!(kept(&mut known, answered(true, &[("http", Ok)])), "http=critical");
    assert_eq!(kept(&mut known, answered(true, &[("http", Critical)])), "http=critical");
    assert_eq!(kept(&mut known, answered(false, &[("db", Ok)])), "db=ok", "it is missing, and not ok");
}
