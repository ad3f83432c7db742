//! Problems: targets and dependencies that are not ok, worst first.

use super::parts::{age, reason, state};
use crate::condition::Condition;
use crate::pauses::WithPauses as _;
use crate::status::TargetStatus;
use maud::{Markup, html};
use model::{DependencyState, Status, TargetState, Timestamp};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of listed problems.
const PROBLEMS: usize = 30;

/// A target and its status.
pub(super) type Chosen<'a> = (TargetStatus, &'a Arc<TargetState>);

/// Something that is wrong: a target, or one of its dependencies.
pub(super) struct Problem<'a> {
    /// Less is worse.
    rank: u8,
    since: Option<Timestamp>,
    target: &'a TargetState,
    status: TargetStatus,
    dependency: Option<(&'a DependencyState, Condition)>,
    /// The number of unknown dependencies that run on it.
    on_it: usize,
}

/// All problems, worst first, then newest first.
pub(super) fn found<'a>(chosen: &[Chosen<'a>]) -> Vec<Problem<'a>> {
    let mut found = Vec::new();
    for (status, target) in chosen.iter().with_pauses() {
        let (status, target) = (*status, &***target);
        if matches!(status, TargetStatus::Unreachable | TargetStatus::NoPlugin) {
            let since = target.observed.stale_since.or(target.schedule.first_failure);
            found.push(Problem { rank: 0, since, target, status, dependency: None, on_it: 0 });
            // Its dependencies are stale for the same reason.
            continue;
        }
        if status == TargetStatus::Disabled {
            continue;
        }
        let first = found.len();
        for dependency in target.observed.dependencies.iter() {
            let condition = Condition::of(target, dependency);
            if matches!(condition, Condition::Ok | Condition::Skipped) {
                continue;
            }
            let rank = condition.urgency();
            let since = Some(condition.since(target, dependency));
            let dependency = Some((dependency, condition));
            found.push(Problem { rank, since, target, status, dependency, on_it: 0 });
        }
        fold_children(&mut found, first);
        if found.len() == first && !matches!(status, TargetStatus::Ok | TargetStatus::Pending) {
            let rank = Condition::Unknown.urgency();
            found.push(Problem { rank, since: None, target, status, dependency: None, on_it: 0 });
        }
    }
    found.sort_by_key(|problem| (problem.rank, Reverse(problem.since)));
    found
}

/// Counts unknown dependencies at one that they run on instead of listing them, if that is critical or missing: they
/// are unknown because of it. The problems of one target begin at `first`.
fn fold_children(found: &mut Vec<Problem<'_>>, first: usize) {
    let own = found.split_off(first);
    let name =
        |problem: &Problem<'_>| problem.dependency.map(|(dependency, _)| dependency.record.reported.name.clone());
    let causes = own.iter().filter(|problem| problem.rank <= Condition::Missing.urgency());
    let mut on_it: HashMap<String, usize> = causes.filter_map(|problem| Some((name(problem)?, 0))).collect();
    let kept = own.into_iter().filter(|problem| {
        let of = problem.dependency.filter(|_| problem.rank == Condition::Unknown.urgency());
        let mut causes = of.into_iter().flat_map(|(dependency, _)| &dependency.record.reported.runs_on);
        match causes.find(|name| on_it.contains_key(*name)).and_then(|name| on_it.get_mut(name)) {
            Some(count) => {
                *count += 1;
                false
            }
            None => true,
        }
    });
    let kept: Vec<Problem<'_>> = kept.collect();
    found.extend(kept.into_iter().map(|problem| {
        let count = name(&problem).and_then(|name| on_it.get(&name).copied()).unwrap_or_default();
        Problem { on_it: count, ..problem }
    }));
}

/// The table of what is wrong. `is_part`: the chosen targets are a part of all.
pub(super) fn table(chosen: &[Chosen<'_>], is_part: bool) -> Markup {
    let all = found(chosen);
    html! {
        section #wrong.target {
            h2 {
                @let of = if is_part { " with the chosen targets" } else { "" };
                @if all.is_empty() { "Nothing is wrong" (of) } @else { "What is wrong" (of) ": " (all.len()) }
            }
            @if !all.is_empty() {
                div.scroll {
                    table.wrong {
                        thead { tr { th scope="col" { "Status" } th scope="col" { "For" } th scope="col" { "What" } th scope="col" { "Why" } } }
                        tbody { @for problem in all.iter().take(PROBLEMS) { (row(problem, true)) } }
                    }
                }
            }
            @if all.len() > PROBLEMS { p.note { "and " (all.len() - PROBLEMS) " more, which are not worse: filter the targets by status" } }
        }
    }
}

/// A problem as a row: its status, its age, whose it is, and why. Optionally with a link to its target.
pub(super) fn row(problem: &Problem<'_>, with_link: bool) -> Markup {
    let Problem { target, status, dependency, .. } = problem;
    let info = &target.info;
    html! {
        tr {
            td {
                @match dependency {
                    Some((dependency, condition)) => {
                        span class={ "tag " (condition.class()) } { (condition.sign()) " " (condition.word(dependency.record.reported.status)) }
                    }
                    None => { span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) } }
                }
            }
            td.number { @if let Some(since) = problem.since { (age(since)) } }
            th scope="row" {
                @if let Some((dependency, _)) = dependency {
                    @let reported = &dependency.record.reported;
                    (reported.title.as_deref().unwrap_or(&reported.name)) " " small { "of " }
                }
                @if with_link { a href={ "/targets/" (info.id) } { (info.name) } } @else { (info.name) }
                @if problem.on_it > 0 { " " small { "and " (problem.on_it) " unknown on it" } }
            }
            td {
                @match dependency {
                    Some((dependency, Condition::Missing)) => {
                        "it is no longer reported, and was " (dependency.record.reported.status.as_str())
                    }
                    Some((dependency, condition)) => {
                        @let reported = &dependency.record.reported;
                        @if let Some(message) = &reported.error_message { (message) }
                        @else {
                            @match condition {
                                Condition::Stale => "the target is not polled successfully, so its present status is not known",
                                _ => "the target gives no reason",
                            }
                            @if let Some(description) = &reported.description { " " small { (description) } }
                        }
                        @if let Some(impact) = reported.impact.as_ref().filter(|_| reported.status != Status::Ok) {
                            " " small { "impact: " (impact) }
                        }
                    }
                    None => {
                        @match reason(target, *status) { Some(why) => (why), None => (state(target)) }
                        @let stale = target.observed.dependencies.len();
                        @if stale > 0 && *status != TargetStatus::Unknown { " " small { "stale dependencies: " (stale) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::status::tests::{dependency, target, with};

    fn named(name: &str, status: Status, runs_on: Option<&str>) -> DependencyState {
        let mut found = dependency(name, status);
        Arc::make_mut(&mut found.record).reported.runs_on = runs_on.into_iter().map(ToOwned::to_owned).collect();
        found
    }

    #[test]
    fn a_target_that_is_not_ok_is_listed_although_no_dependency_is() {
        let skipped = |name: &str| {
            let mut found = dependency(name, Status::Ok);
            Arc::make_mut(&mut found.record).reported.skipped = true;
            found
        };
        for (dependencies, warnings, expected) in [
            (vec![], vec!["member \"db\" is skipped".to_owned()], "its report has no dependency: member"),
            (vec![skipped("db"), skipped("web")], vec![], "its report skips every check"),
        ] {
            let mut state = with(target("shop"), |observed| {
                (observed.dependencies, observed.warnings) = (Arc::new(dependencies.clone()), warnings.clone());
            });
            state.schedule.last_success = Some(Timestamp::from_millis(1));
            let state = Arc::new(state);
            let status = TargetStatus::of(&state);
            assert_eq!(status, TargetStatus::Unknown);
            let row = row(&found(&[(status, &state)])[0], true).into_string();
            assert!(row.contains(expected), "{row}");
        }
        let some = with(target("shop"), |observed| {
            observed.dependencies = Arc::new(vec![skipped("db"), dependency("web", Status::Ok)]);
        });
        assert_eq!(some.observed.nothing_checked(), None);
    }

    #[test]
    fn problems_are_listed_worst_first_and_unknown_ones_are_counted_at_what_they_run_on() {
        let mut polled = with(target("a"), |observed| {
            observed.dependencies = Arc::new(vec![
                named("vm", Status::Unknown, Some("node")),
                named("disk", Status::Unknown, Some("node")),
                named("other", Status::Unknown, Some("fine")),
                named("queue", Status::Warning, Some("node")),
                named("node", Status::Critical, None),
                named("fine", Status::Ok, None),
            ]);
        });
        polled.schedule.last_success = Some(Timestamp::from_millis(1));
        let lost = TargetState { unreachable: true, ..with(target("b"), |_| {}) };
        let disabled = TargetState { enabled: false, ..polled.clone() };
        let all: Vec<Arc<TargetState>> = [polled, lost, disabled].into_iter().map(Arc::new).collect();
        let chosen: Vec<Chosen<'_>> = all.iter().map(|target| (TargetStatus::of(target), target)).collect();
        let name = |problem: &Problem<'_>| problem.dependency.map(|(d, _)| d.record.reported.name.clone());
        let listed: Vec<_> = found(&chosen).iter().map(|problem| (name(problem), problem.on_it)).collect();
        let of = |name: &str, on_it| (Some(name.to_owned()), on_it);
        assert_eq!(listed, [(None, 0), of("node", 2), of("queue", 0), of("other", 0)]);
    }
}
