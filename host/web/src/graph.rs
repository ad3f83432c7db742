//! Targets and what they depend on as a graph: its nodes, the part that is shown, and where each node is drawn. Pure.
//!
//! A target depends on the dependencies that it reports, a dependency on what it runs on. Dependencies of several
//! targets with one canonical name are one node. A dependency whose canonical name is the id of a target is the node of
//! that target.

use crate::condition::Condition;
use crate::status::TargetStatus;
use model::{DependencyState, TargetState};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A graph with at most this many nodes is shown as a whole.
const FEW: usize = 40;

/// The identity of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of<'a> {
    /// A target, by its id.
    Target(&'a str),
    /// A dependency with a canonical name.
    Shared(&'a str),
    /// A dependency of one target, by the target's id and its own name.
    Dependency(&'a str, &'a str),
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
pub(crate) struct Node<'a> {
    pub of: Of<'a>,
    pub label: &'a str,
    /// The class, the sign and the word of its status.
    pub status: (&'static str, &'static str, &'static str),
    pub health: Health,
}

/// The nodes at the other ends of each node's edges, in ascending order.
#[derive(Debug)]
struct Edges {
    /// The place in `ends` of the first edge of each node, and after all the number of edges.
    first: Vec<usize>,
    ends: Vec<usize>,
}

impl Edges {
    /// Groups pairs of nodes by their first. Equal pairs count once.
    fn new(nodes: usize, mut pairs: Vec<(usize, usize)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut first = vec![0; nodes + 1];
        pairs.iter().for_each(|(from, _)| first[from + 1] += 1);
        (0..nodes).for_each(|node| first[node + 1] += first[node]);
        Self { first, ends: pairs.into_iter().map(|(_, to)| to).collect() }
    }

    fn of(&self, node: usize) -> &[usize] {
        &self.ends[self.first[node]..self.first[node + 1]]
    }
}

/// All nodes, and which depends on which. It borrows its names from the targets, because a large estate has tens of
/// thousands of nodes and a page shows few of them.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    pub nodes: Vec<Node<'a>>,
    needs: Edges,
    needed_by: Edges,
}

/// A graph that is being built.
#[derive(Default)]
struct Draft<'a> {
    nodes: Vec<Node<'a>>,
    /// The nodes that several targets may report.
    places: HashMap<Of<'a>, usize>,
    /// A node, and one that it depends on.
    pairs: Vec<(usize, usize)>,
}

impl<'a> Draft<'a> {
    fn add_target(&mut self, target: &'a TargetState) {
        let status = TargetStatus::of(target);
        let health = match status {
            bad if bad.is_bad() => Health::Bad,
            TargetStatus::Warning | TargetStatus::Unknown => Health::Doubtful,
            _ => Health::Fine,
        };
        let shown = (status.as_str(), status.sign(), status.as_str());
        let of = Of::Target(target.info.id.as_str());
        self.put(Node { of, label: &target.info.name, status: shown, health });
    }

    fn add_dependencies(&mut self, target: &'a TargetState) {
        let id = target.info.id.as_str();
        let own = self.places[&Of::Target(id)];
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for dependency in target.observed.dependencies.iter() {
            let reported = &dependency.record.reported;
            let condition = Condition::of(target, dependency);
            let health = match condition {
                Condition::Critical => Health::Bad,
                Condition::Ok | Condition::Skipped => Health::Fine,
                _ => Health::Doubtful,
            };
            let status = (condition.class(), condition.sign(), condition.class());
            let of = self.identity(id, dependency);
            let label = match of {
                Of::Shared(name) => name,
                _ => reported.title.as_deref().unwrap_or(&reported.name),
            };
            let node = Node { of, label, status, health };
            // The names of a target's dependencies are different. A large estate has far more of them than of
            // the others.
            let place = match of {
                Of::Dependency(..) => self.add(node),
                Of::Target(_) | Of::Shared(_) => self.put(node),
            };
            by_name.insert(&reported.name, place);
        }
        let all = target.observed.dependencies.iter();
        let carriers: HashSet<&str> =
            all.flat_map(|dependency| &dependency.record.reported.runs_on).map(String::as_str).collect();
        for dependency in target.observed.dependencies.iter() {
            let reported = &dependency.record.reported;
            let place = by_name[reported.name.as_str()];
            for other in reported.runs_on.iter().filter_map(|other| by_name.get(other.as_str())) {
                self.join(place, *other);
            }
            // These lead to the dependencies that others run on.
            if !carriers.contains(reported.name.as_str()) {
                self.join(own, place);
            }
        }
    }

    /// Returns what a dependency is: a target, a shared dependency, or one of its target only.
    fn identity(&self, target: &'a str, dependency: &'a DependencyState) -> Of<'a> {
        let record = &dependency.record;
        match record.canonical.as_deref() {
            None => Of::Dependency(target, &record.reported.name),
            Some(canonical) if self.places.contains_key(&Of::Target(canonical)) => Of::Target(canonical),
            Some(canonical) => Of::Shared(canonical),
        }
    }

    /// Adds a node. If there is one already, it gets the worse of both conditions, unless it is a target.
    fn put(&mut self, node: Node<'a>) -> usize {
        if let Some(place) = self.places.get(&node.of) {
            let held = &mut self.nodes[*place];
            if node.health < held.health && !matches!(held.of, Of::Target(_)) {
                (held.health, held.status) = (node.health, node.status);
            }
            return *place;
        }
        self.places.insert(node.of, self.nodes.len());
        self.add(node)
    }

    fn add(&mut self, node: Node<'a>) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn join(&mut self, from: usize, to: usize) {
        if from != to {
            self.pairs.push((from, to));
        }
    }

    fn done(self) -> Graph<'a> {
        let (nodes, back) = (self.nodes.len(), self.pairs.iter().map(|(from, to)| (*to, *from)).collect());
        Graph { nodes: self.nodes, needs: Edges::new(nodes, self.pairs), needed_by: Edges::new(nodes, back) }
    }
}

impl<'a> Graph<'a> {
    /// Builds the graph of all targets.
    pub(crate) fn new(targets: &'a [Arc<TargetState>]) -> Self {
        let mut draft = Draft::default();
        targets.iter().for_each(|target| draft.add_target(target));
        targets.iter().for_each(|target| draft.add_dependencies(target));
        draft.done()
    }

    /// Returns the nodes that a node depends on.
    pub(crate) fn needs(&self, node: usize) -> &[usize] {
        self.needs.of(node)
    }

    /// Returns the node of a target's id, or of a dependency's canonical or reported name; else the node with this
    /// name or label in upper or lower case.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        fn own<'a>(node: &Node<'a>) -> &'a str {
            match node.of {
                Of::Target(own) | Of::Shared(own) | Of::Dependency(_, own) => own,
            }
        }
        let wanted = name.to_lowercase();
        let is_like = |node: &Node<'_>| node.label.to_lowercase() == wanted || own(node).to_lowercase() == wanted;
        self.nodes.iter().position(|node| own(node) == name).or_else(|| self.nodes.iter().position(is_like))
    }

    /// Returns up to five labels that contain a text, in upper or lower case.
    pub(crate) fn similar(&self, text: &str) -> Vec<&'a str> {
        const MOST: usize = 5;
        let wanted = text.to_lowercase();
        let mut found: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if found.len() < MOST && !found.contains(&node.label) && node.label.to_lowercase().contains(&wanted) {
                found.push(node.label);
            }
        }
        found
    }

    /// Returns at most `most` nodes that are within `distance` of one, in both directions, nearest first.
    pub(crate) fn around(&self, node: usize, distance: usize, most: usize) -> Vec<usize> {
        let (mut seen, mut queue) = (vec![node], VecDeque::from([(node, 0)]));
        let mut known = HashSet::from([node]);
        while let Some((place, far)) = queue.pop_front() {
            if far == distance {
                continue;
            }
            for next in self.needs(place).iter().chain(self.needed_by.of(place)) {
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
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.retain(|place| {
            let node = &self.nodes[*place];
            let is_shared = matches!(node.of, Of::Shared(_)) && self.needed_by.of(*place).len() > 1;
            node.health != Health::Fine || is_shared || matches!(node.of, Of::Target(_))
        });
        order.sort_by_key(|place| (self.nodes[*place].health, std::cmp::Reverse(self.needed_by.of(*place).len())));
        let (mut chosen, mut known) = (Vec::new(), HashSet::new());
        for place in order {
            let mut wanted = vec![place];
            while let Some(place) = wanted.pop() {
                if chosen.len() < most && known.insert(place) {
                    chosen.push(place);
                    wanted.extend(self.needed_by.of(place));
                }
            }
        }
        chosen
    }

    /// Places nodes in layers: each in a later layer than those that depend on it, except in cycles. Returns the nodes
    /// of each layer in their order from top to bottom.
    pub(crate) fn layers(&self, shown: &[usize]) -> Vec<Vec<usize>> {
        let is_shown: HashSet<usize> = shown.iter().copied().collect();
        let mut layer: HashMap<usize, usize> = HashMap::new();
        let mut roots = shown.to_vec();
        roots.sort_by_key(|place| (!matches!(self.nodes[*place].of, Of::Target(_)), self.nodes[*place].label));
        for root in roots {
            layer.entry(root).or_insert(0);
            // Depth first with the path, so that a cycle ends.
            let mut path = vec![(root, self.needs(root).to_vec())];
            while let Some((place, rest)) = path.last_mut() {
                let Some(next) = rest.pop() else {
                    path.pop();
                    continue;
                };
                let depth = layer[place] + 1;
                let is_deeper = layer.get(&next).is_none_or(|held| *held < depth);
                if is_shown.contains(&next) && is_deeper && path.iter().all(|(on_path, _)| *on_path != next) {
                    layer.insert(next, depth);
                    path.push((next, self.needs(next).to_vec()));
                }
            }
        }
        let count = layer.values().max().map_or(0, |last| last + 1);
        let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut places: Vec<usize> = layer.keys().copied().collect();
        places.sort_by_key(|place| (self.nodes[*place].health, self.nodes[*place].label, *place));
        places.into_iter().for_each(|place| layers[layer[&place]].push(place));
        self.untangle(&mut layers);
        layers
    }

    /// Moves each node next to those that depend on it.
    fn untangle(&self, layers: &mut [Vec<usize>]) {
        for at in 1..layers.len() {
            let above: HashMap<usize, usize> = layers[..at]
                .iter()
                .flat_map(|layer| layer.iter().enumerate().map(|(row, place)| (*place, row)))
                .collect();
            let middle = |place: &usize| {
                let rows: Vec<usize> =
                    self.needed_by.of(*place).iter().filter_map(|from| above.get(from).copied()).collect();
                // In thousandths, because the order needs whole numbers.
                (rows.iter().sum::<usize>() * 1000).checked_div(rows.len()).unwrap_or(usize::MAX)
            };
            layers[at].sort_by_key(|place| middle(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use model::{Status, Timestamp};
    use proptest::prelude::*;

    fn reporting(name: &str, dependencies: &[(&str, Status, Option<&str>, Option<&str>)]) -> Arc<TargetState> {
        let mut found = with(target(name), |observed| {
            let all = (dependencies.iter()).map(|(name, status, canonical, runs_on)| {
                let mut found = dependency(name, *status);
                let record = Arc::make_mut(&mut found.record);
                record.canonical = canonical.map(ToOwned::to_owned);
                record.reported.runs_on = runs_on.iter().map(|&other| other.to_owned()).collect();
                found
            });
            observed.dependencies = Arc::new(all.collect());
        });
        found.schedule.last_success = Some(Timestamp::from_millis(1));
        Arc::new(found)
    }

    fn labels<'a>(graph: &Graph<'a>, places: &[usize]) -> Vec<&'a str> {
        places.iter().map(|place| graph.nodes[*place].label).collect()
    }

    #[test]
    fn canonical_names_join_targets_and_children_come_before_their_parents() {
        let shop = [("db", Status::Critical, Some("postgres"), None), ("orders", Status::Ok, Some("billing"), None)];
        let billing = [
            ("main-db", Status::Ok, Some("postgres"), None),
            ("vm", Status::Ok, None, Some("node")),
            ("node", Status::Ok, None, None),
        ];
        let targets = [reporting("shop", &shop), reporting("billing", &billing)];
        let graph = Graph::new(&targets);
        let layers = graph.layers(&graph.important(100));
        let layers: Vec<_> = layers.iter().map(|layer| labels(&graph, layer)).collect();
        assert_eq!(layers, [vec!["shop"], vec!["billing"], vec!["postgres", "vm"], vec!["node"]]);
        let postgres = &graph.nodes[graph.find("postgres").unwrap()];
        assert_eq!((postgres.health, postgres.status.0), (Health::Bad, "critical"), "the worse of both");
        let around = graph.around(graph.find("postgres").unwrap(), 1, 100);
        assert_eq!(labels(&graph, &around), ["postgres", "shop", "billing"]);
        assert_eq!(graph.around(graph.find("postgres").unwrap(), 9, 2).len(), 2);
        assert!(graph.find("other").is_none());
        assert_eq!(graph.find("Main-DB"), None, "a name that is an alias only");
        assert_eq!(graph.find("POSTGRES"), graph.find("postgres"));
    }

    #[test]
    fn a_large_graph_shows_what_is_not_fine_and_what_depends_on_it() {
        let fine: Vec<(String, Status)> = (0..50).map(|n| (format!("fine-{n}"), Status::Ok)).collect();
        let mut all: Vec<_> = fine.iter().map(|(name, status)| (name.as_str(), *status, None, None)).collect();
        all.push(("broken", Status::Critical, None, None));
        let targets = [reporting("a", &all), reporting("b", &all[..50])];
        let graph = Graph::new(&targets);
        assert_eq!(labels(&graph, &graph.important(100)), ["broken", "a", "b"]);
        assert_eq!(labels(&graph, &graph.important(2)), ["broken", "a"]);
    }

    proptest! {
        #[test]
        fn every_shown_node_is_in_one_layer_whatever_the_edges(
            edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..60),
        ) {
            let names: Vec<String> = (0..12).map(|n| n.to_string()).collect();
            let graph = |edges: &[(usize, usize)]| {
                let mut draft = Draft::default();
                for name in &names {
                    draft.put(Node { of: Of::Shared(name), label: name, status: ("ok", "✓", "ok"), health: Health::Fine });
                }
                edges.iter().for_each(|(from, to)| draft.join(*from, *to));
                draft.done()
            };
            let shown: Vec<usize> = (0..12).collect();
            let mut all: Vec<usize> = graph(&edges).layers(&shown).concat();
            all.sort_unstable();
            prop_assert_eq!(all, shown);
            // Without edges back, each node is in a later layer than those that need it.
            let forward: Vec<_> = edges.iter().copied().filter(|(from, to)| from < to).collect();
            let forward = graph(&forward);
            let layers = forward.layers(&(0..12).collect::<Vec<_>>());
            let layer = |place: usize| layers.iter().position(|layer| layer.contains(&place));
            for from in 0..12 {
                prop_assert!(forward.needs(from).iter().all(|to| layer(from) < layer(*to)));
                prop_assert!(forward.needs(from).iter().all(|to| forward.needed_by.of(*to).contains(&from)));
            }
        }
    }
}
