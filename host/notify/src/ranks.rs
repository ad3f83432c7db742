//! The order among alerts by which one explains another. Cycles are cut at a defined place, so that each chain of
//! explanations ends at a root.

use crate::input::Reading;
use model::TargetId;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most ancestors of a dependency that are considered.
const MAX_ANCESTORS: usize = 64;
/// Most names that are examined for the ancestors of a dependency.
const MAX_EXAMINED: usize = 256;

/// Returns the names of the dependencies that `dependency` runs on, directly or through others, the nearest first. Of
/// several that run on each other, one with a lesser name explains those with greater names.
pub(crate) fn ancestors(reading: &dyn Reading, dependency: &str) -> Vec<String> {
    let (mut found, is_cyclic) = reachable(reading, dependency);
    if is_cyclic {
        found.retain(|name| *name < dependency || !reachable(reading, name).0.contains(&dependency));
    }
    found.into_iter().map(ToOwned::to_owned).collect()
}

/// Returns the names that a dependency runs on, the nearest first, and whether one of them runs on it.
fn reachable<'a>(reading: &'a dyn Reading, dependency: &'a str) -> (Vec<&'a str>, bool) {
    let (mut found, mut seen, mut is_cyclic) = (vec![dependency], HashSet::from([dependency]), false);
    let (mut at, mut examined) = (0, 0);
    while let Some(from) = found.get(at).copied() {
        at += 1;
        for name in reading.runs_on(from) {
            examined += 1;
            if examined > MAX_EXAMINED || found.len() > MAX_ANCESTORS {
                return (found.split_off(1), is_cyclic);
            }
            is_cyclic |= name == dependency;
            found.extend(Some(name.as_str()).filter(|name| seen.insert(name)));
        }
    }
    (found.split_off(1), is_cyclic)
}

/// A target, or one dependency of it, that another target needs.
pub(crate) type Need = (TargetId, Option<String>);

/// Which target needs which, without cycles.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    needs: BTreeMap<TargetId, Vec<Need>>,
    needed_by: BTreeMap<TargetId, BTreeSet<TargetId>>,
}

impl Needs {
    /// Adds the edges in the order of ids, except those that would close a cycle. Returns these as well.
    pub(crate) fn new(edges: BTreeMap<TargetId, Vec<Need>>) -> (Self, Vec<(TargetId, TargetId)>) {
        let (mut all, mut cut) = (Self::default(), Vec::new());
        for (target, needs) in edges {
            for need in needs {
                if need.0 == target || all.needs_indirectly(&need.0, &target) {
                    cut.push((target.clone(), need.0));
                    continue;
                }
                all.needed_by.entry(need.0.clone()).or_default().insert(target.clone());
                all.needs.entry(target.clone()).or_default().push(need);
            }
        }
        (all, cut)
    }

    /// The needs of a target.
    pub(crate) fn of(&self, target: &TargetId) -> &[Need] {
        self.needs.get(target).map_or(&[], Vec::as_slice)
    }

    /// The targets that need `target` directly.
    pub(crate) fn needing(&self, target: &TargetId) -> impl Iterator<Item = &TargetId> {
        self.needed_by.get(target).into_iter().flatten()
    }

    fn needs_indirectly(&self, target: &TargetId, sought: &TargetId) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![target]);
        while let Some(next) = open.pop() {
            for (need, _) in self.of(next) {
                if need == sought {
                    return true;
                }
                if seen.insert(need) {
                    open.push(need);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Finding, Health};

    /// The dependencies that each runs on.
    struct RunsOn(BTreeMap<&'static str, Vec<String>>);

    impl Reading for RunsOn {
        fn findings(&self) -> Vec<Finding<'_>> {
            Vec::new()
        }
        fn health(&self, _: &str) -> Health {
            Health::Unknown
        }
        fn runs_on(&self, dependency: &str) -> &[String] {
            self.0.get(dependency).map_or(&[], Vec::as_slice)
        }
        fn is_down(&self) -> bool {
            false
        }
        fn empty(&self) -> Option<String> {
            None
        }
    }

    fn runs_on(all: &[(&'static str, &str)]) -> RunsOn {
        let names = |names: &str| names.split_whitespace().map(str::to_owned).collect();
        RunsOn(all.iter().map(|(name, others)| (*name, names(others))).collect())
    }

    #[test]
    fn ancestors_are_all_that_it_runs_on_the_nearest_first() {
        let all = runs_on(&[
            ("vm", "node pool"),
            ("node", "rack"),
            ("pool", "disk1 disk2"),
            ("disk1", "rack"),
            ("rack", "site"),
        ]);
        let check = |name: &str, expected: &[&str]| assert_eq!(ancestors(&all, name), expected, "{name}");
        check("vm", &["node", "pool", "rack", "disk1", "disk2", "site"]);
        check("pool", &["disk1", "disk2", "rack", "site"]);
        check("site", &[]);
        let many: Vec<String> = (0..1_000).map(|n| format!("d{n}")).collect();
        let wide = RunsOn([("wide", many)].into());
        assert_eq!(ancestors(&wide, "wide").len(), MAX_ANCESTORS);
    }

    #[test]
    fn of_those_that_run_on_each_other_the_least_explains_the_others() {
        let all = runs_on(&[("b", "c"), ("c", "a"), ("a", "b"), ("x", "c"), ("s", "s")]);
        let check = |name: &str, expected: &[&str]| assert_eq!(ancestors(&all, name), expected, "{name}");
        check("a", &[]);
        check("b", &["a"]);
        check("c", &["a", "b"]);
        check("x", &["c", "a", "b"]);
        check("s", &[]);
    }

    #[test]
    fn needs_that_close_a_cycle_are_cut_in_the_order_of_ids() {
        let id = |text: &str| TargetId::new(text).unwrap();
        let edge = |from: &str, to: &[&str]| (id(from), to.iter().map(|to| (id(to), None)).collect::<Vec<_>>());
        let edges = [edge("a", &["b", "a"]), edge("b", &["c"]), edge("c", &["a", "d"])];
        let (needs, cut) = Needs::new(edges.into_iter().collect());
        assert_eq!(cut, [(id("a"), id("a")), (id("c"), id("a"))]);
        assert_eq!(needs.of(&id("c")), [(id("d"), None)]);
        assert_eq!(needs.needing(&id("b")).collect::<Vec<_>>(), [&id("a")]);
    }
}
