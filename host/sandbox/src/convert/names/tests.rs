use super::*;
use crate::convert::tests::{empty, found};
use proptest::prelude::*;

/// Repairs the names of dependencies. Returns names and statuses, and the notes.
fn repaired(dependencies: Vec<poller::Dependency>) -> (Vec<(String, &'static str)>, Vec<String>) {
    let mut report = poller::Report { dependencies, ..empty() };
    let mut repairs = Repairs::default();
    repair(&mut report, &mut repairs);
    let outline = report.dependencies.iter().map(|found| (found.name.clone(), word(found))).collect();
    (outline, repairs.into_warnings().collect())
}

fn with(name: &str, status: types::Status) -> poller::Dependency {
    poller::Dependency { status, ..found(name) }
}

#[test]
fn the_worst_of_one_name_counts_whatever_made_it_one() {
    use types::Status::{Critical, Ok, Unknown, Warning};
    let long = "a".repeat(300);
    for (first, second, shown) in [
        ("db", "db", "db"),
        ("db", "db ", "db"),
        ("db", "\u{feff}db", "db"),
        ("d\u{200b}b", "db", "db"),
        ("a b", "a\tb", "a b"),
        ("a\nb", "a\u{0}b", "a b"),
        ("größer", "größ\u{ad}er", "größer"),
        (&long, &format!(" {long}"), ""),
        ("item 1", "\u{200b}", "item 1"),
        ("\t", "item 1", "item 1"),
    ] {
        for (one, other, worse) in [
            (Ok, Critical, "critical"),
            (Warning, Critical, "critical"),
            (Unknown, Critical, "critical"),
            (Ok, Unknown, "unknown"),
            (Warning, Unknown, "unknown"),
            (Ok, Warning, "warning"),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let mut dependencies = vec![with(first, one), with(second, other)];
                if second == "\u{200b}" {
                    dependencies.swap(0, 1);
                }
                let (outline, notes) = repaired(dependencies);
                assert_eq!(outline.len(), 1, "{first:?} {second:?}");
                assert_eq!(outline[0].1, worse, "{first:?} {second:?} {one:?} {other:?}");
                assert!(shown.is_empty() || outline[0].0 == shown, "{outline:?}");
                let note = notes.iter().find(|note| note.ends_with("the worse counts")).expect("a note");
                let names = [first, second].map(|name| format!("{:?}", short(name)));
                assert!(names.iter().all(|name| note.contains(name)), "{note} should have {names:?}");
            }
        }
    }
    let skipped = poller::Dependency { flags: poller::DependencyFlags::SKIPPED, ..with("db", Critical) };
    assert_eq!(repaired(vec![with("db", Ok), skipped.clone()]).0, [("db".to_owned(), "ok")]);
    assert_eq!(repaired(vec![skipped, with("db", Warning)]).0, [("db".to_owned(), "warning")]);
}

#[test]
fn every_dependency_gets_a_name() {
    let long = "x".repeat(257);
    let dependencies = ["a", "", " ", "GET\thttps://x", &long, &format!("{long}y"), "\u{202e}"];
    let (outline, notes) = repaired(dependencies.map(|name| with(name, types::Status::Critical)).to_vec());
    let names: Vec<&str> = outline.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["a", "item 2", "item 3", "GET https://x"]);
    assert_eq!(names[6], "item 7");
    assert!(names[4] != names[5] && names[4].len() <= NAME && names[4].starts_with("xxx"), "{names:?}");
    assert_eq!(notes.len(), 6, "{notes:?}");
    assert!(
        notes.iter().any(|note| note == r#"the name "\u{202e}" is not plain: it is shown as "item 7""#),
        "{notes:?}"
    );
}

#[test]
fn references_follow_the_names() {
    let long = "n".repeat(400);
    let mut guest = found("guest");
    guest.runs_on = vec![format!("{long}\u{200b}")];
    let dependencies = vec![with(&long, types::Status::Ok), guest];
    let mut report = poller::Report { dependencies, kept: vec!["a\tb/".to_owned()], ..empty() };
    repair(&mut report, &mut Repairs::default());
    assert_eq!(report.dependencies[1].runs_on, [report.dependencies[0].name.as_str()]);
    assert_eq!(report.kept, ["a b/"]);
}

proptest! {
    /// Whatever the names are: all are plain and unique, none is worse or better than the worst with that name, and a
    /// repaired report stays as it is.
    #[test]
    fn the_worst_status_of_a_report_survives(
        names in prop::collection::vec("[a-b \u{200b}\u{7}ü]{0,3}|x{250,262}", 0..12),
        statuses in prop::collection::vec(0..4_usize, 12),
    ) {
        const ALL: [types::Status; 4] =
            [types::Status::Ok, types::Status::Warning, types::Status::Unknown, types::Status::Critical];
        let dependencies: Vec<_> = names.iter().zip(&statuses).map(|(name, at)| with(name, ALL[*at])).collect();
        let worst = dependencies.iter().map(badness).max();
        let mut report = poller::Report { dependencies, ..empty() };
        repair(&mut report, &mut Repairs::default());
        prop_assert_eq!(report.dependencies.iter().map(badness).max(), worst);
        let unique: HashSet<&str> = report.dependencies.iter().map(|found| found.name.as_str()).collect();
        prop_assert_eq!(unique.len(), report.dependencies.len());
        let good = |name: &str| {
            !name.is_empty() && name.len() <= NAME && name.trim() == name
                && !name.contains(|c: char| c.is_control() || model::is_invisible(c))
        };
        prop_assert!(unique.iter().all(|name| good(name)), "{:?}", unique);
        let mut again = report.clone();
        let mut repairs = Repairs::default();
        repair(&mut again, &mut repairs);
        prop_assert_eq!(repairs.into_warnings().count(), 0);
    }
}
