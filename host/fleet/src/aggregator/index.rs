//! Which deployments a device's labels match, without evaluating every selector for every device.
//!
//! Each selector is filed under its *anchor*: the rarest label that it requires. A device's candidates are the
//! selectors filed under its labels; only these are evaluated. A selector that requires only the presence of a key is
//! filed under the key; one that requires neither is a candidate for all devices.

use super::arena::Arena;
use crate::selector::{Requirement, Selector};
use smallvec::SmallVec;

/// A key with a value, as a number.
pub(super) type Pair = u32;

/// A requirement on numbered labels.
#[derive(Clone, Debug)]
enum Rule {
    Equal(Pair),
    In(Vec<Pair>),
    NotIn(Vec<Pair>),
    Exists(u32),
    Missing(u32),
}

/// Where a selector is filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Pair(Pair),
    Key(u32),
    Everywhere,
}

/// A selector with its places in the index.
#[derive(Debug, Default)]
struct Filed {
    /// `None` if the deployment is not defined.
    rules: Option<Vec<Rule>>,
    anchors: SmallVec<[Anchor; 1]>,
}

/// The selectors by their anchors.
#[derive(Default)]
pub(super) struct Index {
    keys: Arena,
    pairs: Arena,
    /// For looking up a pair without an allocation.
    buffer: String,
    /// The key of each pair.
    key_of: Vec<u32>,
    /// The number of devices with each pair.
    devices: Vec<u32>,
    by_pair: Vec<SmallVec<[u32; 4]>>,
    by_key: Vec<Vec<u32>>,
    everywhere: Vec<u32>,
    /// By deployment.
    filed: Vec<Filed>,
}

impl Index {
    /// Returns the number of a label.
    pub(super) fn pair(&mut self, key: &str, value: &str) -> Pair {
        // Neither may contain a line break.
        self.buffer.clear();
        self.buffer.push_str(key);
        self.buffer.push('\n');
        self.buffer.push_str(value);
        if let Some(pair) = self.pairs.get(&self.buffer) {
            return pair;
        }
        let key = self.key(key);
        self.key_of.push(key);
        self.devices.push(0);
        self.by_pair.push(SmallVec::new());
        self.pairs.number(&self.buffer)
    }

    /// Returns the key and the value of a label.
    pub(super) fn label(&self, pair: Pair) -> (String, String) {
        let (key, value) = self.pairs.text(pair).split_once('\n').expect("both parts are in the text");
        (key.to_owned(), value.to_owned())
    }

    fn key(&mut self, key: &str) -> u32 {
        let number = self.keys.number(key);
        self.by_key.resize(self.keys.len() as usize, Vec::new());
        number
    }

    /// Counts a device's labels, which decide the anchors of later selectors.
    pub(super) fn count(&mut self, pairs: &[Pair], is_added: bool) {
        for pair in pairs {
            let count = &mut self.devices[*pair as usize];
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Files the selector of a deployment in place of its earlier one; without a selector, the deployment is not
    /// defined.
    pub(super) fn file(&mut self, deployment: u32, selector: Option<&Selector>) {
        self.remove(deployment);
        let rules = selector.map(|selector| self.rules(selector));
        let place = deployment as usize;
        if self.filed.len() <= place {
            self.filed.resize_with(place + 1, Filed::default);
        }
        self.filed[place].rules = rules;
        self.insert(deployment);
    }

    /// Files all selectors again, by the counts of now.
    pub(super) fn file_again(&mut self) {
        for deployment in 0..self.filed.len() {
            let deployment = u32::try_from(deployment).expect("deployments have numbers of 32 bits");
            self.remove(deployment);
            self.insert(deployment);
        }
    }

    fn rules(&mut self, selector: &Selector) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            selector.labels.iter().map(|(key, value)| Rule::Equal(self.pair(key, value))).collect();
        for requirement in &selector.requirements {
            rules.push(match requirement {
                Requirement::In(key, values) => Rule::In(values.iter().map(|value| self.pair(key, value)).collect()),
                Requirement::NotIn(key, values) => {
                    Rule::NotIn(values.iter().map(|value| self.pair(key, value)).collect())
                }
                Requirement::Exists(key) => Rule::Exists(self.key(key)),
                Requirement::DoesNotExist(key) => Rule::Missing(self.key(key)),
            });
        }
        rules
    }

    fn insert(&mut self, deployment: u32) {
        let Some(rules) = &self.filed[deployment as usize].rules else { return };
        let cost = |pairs: &[Pair]| pairs.iter().map(|pair| u64::from(self.devices[*pair as usize])).sum::<u64>();
        let required = rules.iter().filter_map(|rule| match rule {
            Rule::Equal(pair) => Some(std::slice::from_ref(pair)),
            Rule::In(pairs) => Some(pairs.as_slice()),
            _ => None,
        });
        let key = rules.iter().find_map(|rule| if let Rule::Exists(key) = rule { Some(*key) } else { None });
        let anchors: SmallVec<[Anchor; 1]> = match (required.min_by_key(|pairs| cost(pairs)), key) {
            (Some(pairs), _) => pairs.iter().map(|pair| Anchor::Pair(*pair)).collect(),
            (None, Some(key)) => SmallVec::from_elem(Anchor::Key(key), 1),
            (None, None) => SmallVec::from_elem(Anchor::Everywhere, 1),
        };
        for anchor in &anchors {
            match anchor {
                Anchor::Pair(pair) => self.by_pair[*pair as usize].push(deployment),
                Anchor::Key(key) => self.by_key[*key as usize].push(deployment),
                Anchor::Everywhere => self.everywhere.push(deployment),
            }
        }
        self.filed[deployment as usize].anchors = anchors;
    }

    fn remove(&mut self, deployment: u32) {
        let Some(filed) = self.filed.get_mut(deployment as usize) else { return };
        for anchor in std::mem::take(&mut filed.anchors) {
            match anchor {
                Anchor::Pair(pair) => self.by_pair[pair as usize].retain(|filed| *filed != deployment),
                Anchor::Key(key) => self.by_key[key as usize].retain(|filed| *filed != deployment),
                Anchor::Everywhere => self.everywhere.retain(|filed| *filed != deployment),
            }
        }
    }

    /// Whether the selector of a deployment matches labels.
    pub(super) fn matches(&self, deployment: u32, labels: &[Pair]) -> bool {
        let has_key = |key: &u32| labels.iter().any(|pair| self.key_of[*pair as usize] == *key);
        self.filed.get(deployment as usize).and_then(|filed| filed.rules.as_ref()).is_some_and(|rules| {
            rules.iter().all(|rule| match rule {
                Rule::Equal(pair) => labels.contains(pair),
                Rule::In(pairs) => pairs.iter().any(|pair| labels.contains(pair)),
                Rule::NotIn(pairs) => !pairs.iter().any(|pair| labels.contains(pair)),
                Rule::Exists(key) => has_key(key),
                Rule::Missing(key) => !has_key(key),
            })
        })
    }

    /// Returns the deployments that match labels, in ascending order.
    pub(super) fn matching(&self, labels: &[Pair]) -> SmallVec<[u32; 8]> {
        let of_pairs = labels.iter().flat_map(|pair| &self.by_pair[*pair as usize]);
        let of_keys = labels.iter().flat_map(|pair| &self.by_key[self.key_of[*pair as usize] as usize]);
        let candidates = of_pairs.chain(of_keys).chain(&self.everywhere).copied();
        let mut found: SmallVec<[u32; 8]> = candidates.filter(|deployment| self.matches(*deployment, labels)).collect();
        found.sort_unstable();
        found
    }
}
