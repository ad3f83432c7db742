//! The order among alerts by which one explains another. Cycles are cut at a defined place, so that each chain of
//! explanations ends at a root.

use crate::input::Reading;
use model::TargetId;
use std::collections::{BTreeMap, BTreeSet};

/// Most ancestors of a dependency that are considered.
const MAX_ANCESTORS: usize = 16;

/// Returns the names of the dependencies that `dependency` runs on, the nearest first.
///
/// In a cycle of parents, the dependency with the least name has no parent.
pub(crate) fn ancestors(reading: &dyn Reading, dependency: &str) -> Vec<String> {
    let mut chain = vec![dependency];
    while chain.len() <= MAX_ANCESTORS {
        let Some(parent) = chain.last().and_then(|last| reading.parent(last)) else { break };
        if let Some(entry) = chain.iter().position(|name| *name == parent) {
            let least = (entry..chain.len()).min_by_key(|at| chain[*at]).unwrap_or(entry);
            chain.truncate(least + 1);
            break;
        }
        chain.push(parent);
    }
    chain.into_iter().skip(1).map(ToOwned::to_owned).collect()
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

    struct Parents(&'static [(&'static str, &'static str)]);

    impl Reading for Parents {
        fn findings(&self) -> Vec<Finding<'_>> {
            Vec::new()
        }
        fn health(&self, _: &str) -> Health {
            Health::Unknown
        }
        fn parent(&self, dependency: &str) -> Option<&str> {
            self.0.iter().find(|(child, _)| *child == dependency).map(|(_, parent)| *parent)
        }
        fn is_down(&self) -> bool {
            false
        }
    }

    #[test]
    fn cycles_of_parents_are_cut_at_the_least_name() {
        let parents =
            Parents(&[("vm", "node"), ("node", "rack"), ("b", "c"), ("c", "a"), ("a", "b"), ("x", "c"), ("s", "s")]);
        let check = |name: &str, expected: &[&str]| assert_eq!(ancestors(&parents, name), expected, "{name}");
        check("vm", &["node", "rack"]);
        check("rack", &[]);
        check("a", &[]);
        check("b", &["c", "a"]);
        check("c", &["a"]);
        check("x", &["c", "a"]);
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
