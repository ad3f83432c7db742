//! Which dependency of a report runs on which, without cycles.

use super::repairs::Repairs;
use foldhash::fast::RandomState;
use model::{Dependency, clean};
use std::collections::{HashMap, HashSet};

/// Most dependencies that one runs on.
const MOST: usize = 64;

/// Removes the names that are not in the report, repeated names, and those that form a cycle.
pub(super) fn check(dependencies: &mut [Dependency], repairs: &mut Repairs) {
    if dependencies.iter().all(|dependency| dependency.runs_on.is_empty()) {
        return;
    }
    for Dependency { name, runs_on, .. } in dependencies.iter_mut().filter(|found| found.runs_on.len() > 1) {
        let mut seen = HashSet::with_capacity(runs_on.len());
        let first: Vec<bool> = runs_on.iter().map(|name| seen.insert(name.as_str())).collect();
        let mut first = first.into_iter();
        runs_on.retain(|_| first.next() == Some(true));
        if runs_on.len() > MOST {
            let count = runs_on.len();
            repairs.note(format!("{:?} runs on {count} dependencies: the first {MOST} count", clean(name, 60)));
            runs_on.truncate(MOST);
        }
    }
    let place: HashMap<&str, usize, RandomState> =
        dependencies.iter().enumerate().map(|(index, dependency)| (dependency.name.as_str(), index)).collect();
    let edges: Vec<Vec<Option<usize>>> = (dependencies.iter())
        .map(|dependency| dependency.runs_on.iter().map(|name| place.get(name.as_str()).copied()).collect())
        .collect();
    let component = components(&edges);
    for (from, Dependency { name, runs_on, .. }) in dependencies.iter_mut().enumerate() {
        let mut to = edges[from].iter();
        runs_on.retain(|other| {
            let why = match to.next().copied().flatten() {
                None => "is not in the report",
                Some(to) if component[from] == component[to] => "runs on it, too",
                Some(_) => return true,
            };
            repairs.note(format!("{:?} does not run on {:?}: that {why}", clean(name, 60), clean(other, 60)));
            false
        });
    }
}

/// Returns for each node the number of its strongly connected component: two nodes are on a common cycle, or a node is
/// on one with itself, if an edge joins two nodes of one component. (Tarjan, "Depth-first search and linear graph
/// algorithms", 1972, without recursion.)
fn components(edges: &[Vec<Option<usize>>]) -> Vec<usize> {
    const NEW: usize = usize::MAX;
    let count = edges.len();
    let (mut order, mut lowest, mut component) = (vec![NEW; count], vec![0; count], vec![NEW; count]);
    let (mut next, mut open, mut path) = (0, Vec::new(), Vec::new());
    for start in 0..count {
        if order[start] != NEW {
            continue;
        }
        path.push((start, 0));
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (order[node], lowest[node]) = (next, next);
                next += 1;
                open.push(node);
            } else if let Some(to) = edges[node][edge - 1] {
                // The search returns from this edge.
                if component[to] == NEW {
                    lowest[node] = lowest[node].min(lowest[to]);
                }
            }
            let rest = edges[node].iter().enumerate().skip(edge).filter_map(|(at, to)| Some((at, (*to)?)));
            let mut into = None;
            for (at, to) in rest {
                if order[to] == NEW {
                    into = Some((at, to));
                    break;
                }
                if component[to] == NEW {
                    lowest[node] = lowest[node].min(order[to]);
                }
            }
            if let Some((at, to)) = into {
                path.push((node, at + 1));
                path.push((to, 0));
            } else if lowest[node] == order[node] {
                while let Some(member) = open.pop() {
                    component[member] = node;
                    if member == node {
                        break;
                    }
                }
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_are_one_component() {
        // A naive closure over random graphs.
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..500 {
            let count = 1 + random(8);
            let edges: Vec<Vec<Option<usize>>> = (0..count)
                .map(|_| (0..random(4)).map(|_| Some(random(count + 1)).filter(|to| *to < count)).collect())
                .collect();
            let mut reaches = vec![vec![false; count]; count];
            for (from, to) in
                edges.iter().enumerate().flat_map(|(from, to)| to.iter().flatten().map(move |to| (from, *to)))
            {
                reaches[from][to] = true;
            }
            for via in 0..count {
                for from in 0..count {
                    for to in 0..count {
                        reaches[from][to] |= reaches[from][via] && reaches[via][to];
                    }
                }
            }
            let found = components(&edges);
            for from in 0..count {
                for to in 0..count {
                    let together = from == to || (reaches[from][to] && reaches[to][from]);
                    assert_eq!(found[from] == found[to], together, "{from} {to} {edges:?}");
                }
            }
        }
    }
}
