//! Targets and what they depend on as a graph: its nodes, the part that is shown, and where each node is drawn. Pure.
//!
//! A target depends on the dependencies that it reports, a dependency on its parent. Dependencies of several targets
//! with one canonical name are one node. A dependency whose canonical name is the id of a target is the node of that
//! target.

use crate::condition::Condition;
use crate::status::TargetStatus;
use model::{DependencyState, TargetId, TargetState};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A graph with at most this many nodes is shown as a whole.
const FEW: usize = 40;

/// The identity of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Of {
    /// A target, by its id.
    Target(TargetId),
    /// A dependency with a canonical name.
    Shared(String),
    /// A dependency of one target, by its name.
    Dependency(TargetId, String),
}

/// The health of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// A target or dependency that does not work.
    Bad,
    /// Missing, warning, unknown or stale.
    Doubtful,
    Fine,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub of: Of,
    pub label: String,
    /// The class, the sign and the word of its status.
    pub status: (&'static str, &'static str, &'static str),
    pub health: Health,
}

/// All nodes, and which depends on which.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    /// The nodes that each node depends on.
    pub needs: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// Builds the graph of all targets.
    pub(crate) fn new(targets: &[Arc<TargetState>]) -> Self {
        let mut graph = Self::default();
        let mut places: HashMap<Of, usize> = HashMap::new();
        for target in targets {
            let status = TargetStatus::of(target);
            let health = match status {
                bad if bad.is_bad() => Health::Bad,
                TargetStatus::Warning | TargetStatus::Unknown => Health::Doubtful,
                _ => Health::Fine,
            };
            let of = Of::Target(target.info.id.clone());
            let shown = (status.as_str(), status.sign(), status.as_str());
            graph.put(&mut places, Node { of, label: target.info.name.clone(), status: shown, health });
        }
        for target in targets {
            graph.add_dependencies(&mut places, target);
        }
        graph
    }

    fn add_dependencies(&mut self, places: &mut HashMap<Of, usize>, target: &TargetState) {
        let id = &target.info.id;
        let own = Of::Target(id.clone());
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for dependency in &target.observed.dependencies {
            let reported = &dependency.record.reported;
            let condition = Condition::of(target, dependency);
            let health = match condition {
                Condition::Critical => Health::Bad,
                Condition::Ok | Condition::Skipped => Health::Fine,
                _ => Health::Doubtful,
            };
            let status = (condition.class(), condition.sign(), condition.class());
            let of = identity(places, id, dependency);
            let label = match &of {
                Of::Shared(name) => name.clone(),
                _ => reported.title.clone().unwrap_or_else(|| reported.name.clone()),
            };
            let node = Node { of, label, status, health };
            // The names of a target's dependencies are different. A large estate has far more of them than of
            // the others.
            let place = match node.of {
                Of::Dependency(..) => self.add(node),
                Of::Target(_) | Of::Shared(_) => self.put(places, node),
            };
            by_name.insert(&reported.name, place);
        }
        let parents: HashSet<&str> =
            target.observed.dependencies.iter().filter_map(|d| d.record.reported.parent.as_deref()).collect();
        let own = places[&own];
        for dependency in &target.observed.dependencies {
            let reported = &dependency.record.reported;
            let place = by_name[reported.name.as_str()];
            if let Some(parent) = reported.parent.as_deref().and_then(|parent| by_name.get(parent)) {
                self.join(place, *parent);
            }
            // Parents are reached through their children.
            if !parents.contains(reported.name.as_str()) {
                self.join(own, place);
            }
        }
    }

    /// Adds a node. If there is one already, it gets the worse of both conditions, unless it is a target.
    fn put(&mut self, places: &mut HashMap<Of, usize>, node: Node) -> usize {
        if let Some(place) = places.get(&node.of) {
            let held = &mut self.nodes[*place];
            if node.health < held.health && !matches!(held.of, Of::Target(_)) {
                (held.health, held.status) = (node.health, node.status);
            }
            return *place;
        }
        let place = self.nodes.len();
        places.insert(node.of.clone(), place);
        self.add(node)
    }

    fn add(&mut self, node: Node) -> usize {
        let place = self.nodes.len();
        self.nodes.push(node);
        self.needs.push(BTreeSet::new());
        place
    }

    fn join(&mut self, from: usize, to: usize) {
        if from != to {
            self.needs[from].insert(to);
        }
    }

    /// Returns the node of a target's id, or of a dependency's canonical or reported name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| match &node.of {
            Of::Target(id) => id.as_str() == name,
            Of::Shared(own) | Of::Dependency(_, own) => own == name,
        })
    }

    /// Returns at most `most` nodes that are within `distance` of one, in both directions, nearest first.
    pub(crate) fn around(&self, node: usize, distance: usize, most: usize) -> Vec<usize> {
        let needed_by = self.needed_by();
        let (mut seen, mut queue) = (vec![node], VecDeque::from([(node, 0)]));
        let mut known = HashSet::from([node]);
        while let Some((place, far)) = queue.pop_front() {
            if far == distance {
                continue;
            }
            for next in self.needs[place].iter().chain(&needed_by[place]) {
                if seen.len() < most && known.insert(*next) {
                    seen.push(*next);
                    queue.push_back((*next, far + 1));
                }
            }
        }
        seen
    }

    /// Returns all nodes, if there are few; else at most `most`: what is not fine with what depends on it, canonical
    /// names that several targets report, and targets.
    pub(crate) fn important(&self, most: usize) -> Vec<usize> {
        if self.nodes.len() <= FEW {
            return (0..self.nodes.len()).collect();
        }
        let needed_by = self.needed_by();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.retain(|place| {
            let node = &self.nodes[*place];
            let is_shared = matches!(node.of, Of::Shared(_)) && needed_by[*place].len() > 1;
            node.health != Health::Fine || is_shared || matches!(node.of, Of::Target(_))
        });
        order.sort_by_key(|place| (self.nodes[*place].health, std::cmp::Reverse(needed_by[*place].len())));
        let (mut chosen, mut known) = (Vec::new(), HashSet::new());
        for place in order {
            let mut wanted = vec![place];
            while let Some(place) = wanted.pop() {
                if chosen.len() < most && known.insert(place) {
                    chosen.push(place);
                    wanted.extend(&needed_by[place]);
                }
            }
        }
        chosen
    }

    fn needed_by(&self) -> Vec<Vec<usize>> {
        let mut needed_by = vec![Vec::new(); self.nodes.len()];
        for (from, needs) in self.needs.iter().enumerate() {
            needs.iter().for_each(|to| needed_by[*to].push(from));
        }
        needed_by
    }

    /// Places nodes in layers: each in a later layer than those that depend on it, except in cycles. Returns the nodes
    /// of each layer in their order from top to bottom.
    pub(crate) fn layers(&self, shown: &[usize]) -> Vec<Vec<usize>> {
        let is_shown: HashSet<usize> = shown.iter().copied().collect();
        let mut layer: HashMap<usize, usize> = HashMap::new();
        let mut roots = shown.to_vec();
        roots.sort_by_key(|place| (!matches!(self.nodes[*place].of, Of::Target(_)), self.nodes[*place].label.clone()));
        for root in roots {
            layer.entry(root).or_insert(0);
            // Depth first with the path, so that a cycle ends.
            let mut path = vec![(root, self.needs[root].iter().copied().collect::<Vec<_>>())];
            while let Some((place, rest)) = path.last_mut() {
                let Some(next) = rest.pop() else {
                    path.pop();
                    continue;
                };
                let depth = layer[place] + 1;
                let is_deeper = layer.get(&next).is_none_or(|held| *held < depth);
                if is_shown.contains(&next) && is_deeper && path.iter().all(|(on_path, _)| *on_path != next) {
                    layer.insert(next, depth);
                    path.push((next, self.needs[next].iter().copied().collect()));
                }
            }
        }
        let count = layer.values().max().map_or(0, |last| last + 1);
        let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut places: Vec<usize> = layer.keys().copied().collect();
        places.sort_by_key(|place| (self.nodes[*place].health, self.nodes[*place].label.clone(), *place));
        places.into_iter().for_each(|place| layers[layer[&place]].push(place));
        self.untangle(&mut layers);
        layers
    }

    /// Moves each node next to those that depend on it.
    fn untangle(&self, layers: &mut [Vec<usize>]) {
        let needed_by = self.needed_by();
        for at in 1..layers.len() {
            let above: HashMap<usize, usize> = layers[..at]
                .iter()
                .flat_map(|layer| layer.iter().enumerate().map(|(row, place)| (*place, row)))
                .collect();
            let middle = |place: &usize| {
                let rows: Vec<usize> = needed_by[*place].iter().filter_map(|from| above.get(from).copied()).collect();
                // In thousandths, because the order needs whole numbers.
                (rows.iter().sum::<usize>() * 1000).checked_div(rows.len()).unwrap_or(usize::MAX)
            };
            layers[at].sort_by_key(|place| middle(place));
        }
    }
}

/// Returns what a dependency is: a target, a shared dependency, or one of its target only.
fn identity(places: &HashMap<Of, usize>, target: &TargetId, dependency: &DependencyState) -> Of {
    let record = &dependency.record;
    let Some(canonical) = &record.canonical else {
        return Of::Dependency(target.clone(), record.reported.name.clone());
    };
    let same = TargetId::new(canonical).ok().map(Of::Target).filter(|of| places.contains_key(of));
    same.unwrap_or_else(|| Of::Shared(canonical.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use model::{Status, Timestamp};
    use proptest::prelude::*;

    fn reporting(name: &str, dependencies: &[(&str, Status, Option<&str>, Option<&str>)]) -> Arc<TargetState> {
        let mut found = with(target(name), |observed| {
            observed.dependencies = (dependencies.iter())
                .map(|(name, status, canonical, parent)| {
                    let mut found = dependency(name, *status);
                    let record = Arc::make_mut(&mut found.record);
                    record.canonical = canonical.map(ToOwned::to_owned);
                    record.reported.parent = parent.map(ToOwned::to_owned);
                    found
                })
                .collect();
        });
        found.schedule.last_success = Some(Timestamp::from_millis(1));
        Arc::new(found)
    }

    fn labels(graph: &Graph, places: &[usize]) -> Vec<String> {
        places.iter().map(|place| graph.nodes[*place].label.clone()).collect()
    }

    #[test]
    fn canonical_names_join_targets_and_children_come_before_their_parents() {
        let shop = [("db", Status::Critical, Some("postgres"), None), ("orders", Status::Ok, Some("billing"), None)];
        let billing = [
            ("main-db", Status::Ok, Some("postgres"), None),
            ("vm", Status::Ok, None, Some("node")),
            ("node", Status::Ok, None, None),
        ];
        let graph = Graph::new(&[reporting("shop", &shop), reporting("billing", &billing)]);
        let layers = graph.layers(&graph.important(100));
        let layers: Vec<_> = layers.iter().map(|layer| labels(&graph, layer)).collect();
        assert_eq!(layers, [vec!["shop"], vec!["billing"], vec!["postgres", "vm"], vec!["node"]]);
        let postgres = &graph.nodes[graph.find("postgres").unwrap()];
        assert_eq!((postgres.health, postgres.status.0), (Health::Bad, "critical"), "the worse of both");
        let around = graph.around(graph.find("postgres").unwrap(), 1, 100);
        assert_eq!(labels(&graph, &around), ["postgres", "shop", "billing"]);
        assert_eq!(graph.around(graph.find("postgres").unwrap(), 9, 2).len(), 2);
        assert!(graph.find("other").is_none());
    }

    #[test]
    fn a_large_graph_shows_what_is_not_fine_and_what_depends_on_it() {
        let fine: Vec<(String, Status)> = (0..50).map(|n| (format!("fine-{n}"), Status::Ok)).collect();
        let mut all: Vec<_> = fine.iter().map(|(name, status)| (name.as_str(), *status, None, None)).collect();
        all.push(("broken", Status::Critical, None, None));
        let graph = Graph::new(&[reporting("a", &all), reporting("b", &all[..50])]);
        assert_eq!(labels(&graph, &graph.important(100)), ["broken", "a", "b"]);
        assert_eq!(labels(&graph, &graph.important(2)), ["broken", "a"]);
    }

    proptest! {
        #[test]
        fn every_shown_node_is_in_one_layer_whatever_the_edges(
            edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..60),
        ) {
            let mut graph = Graph::default();
            let mut places = HashMap::new();
            for n in 0..12 {
                let of = Of::Shared(n.to_string());
                graph.put(&mut places, Node { of, label: n.to_string(), status: ("ok", "✓", "ok"), health: Health::Fine });
            }
            edges.iter().for_each(|(from, to)| graph.join(*from, *to));
            let shown: Vec<usize> = (0..12).collect();
            let mut all: Vec<usize> = graph.layers(&shown).concat();
            all.sort_unstable();
            prop_assert_eq!(all, shown);
            // Without edges back, each node is in a later layer than those that need it.
            let mut forward = Graph { nodes: graph.nodes.clone(), needs: vec![BTreeSet::new(); 12] };
            edges.iter().filter(|(from, to)| from < to).for_each(|(from, to)| forward.join(*from, *to));
            let layers = forward.layers(&(0..12).collect::<Vec<_>>());
            let layer = |place: usize| layers.iter().position(|layer| layer.contains(&place));
            for (from, needs) in forward.needs.iter().enumerate() {
                prop_assert!(needs.iter().all(|to| layer(from) < layer(*to)));
            }
        }
    }
}
