//! A map in the order of its keys, for maps that have few entries or are built at once.
//!
//! It is a sorted list. The standard library's tree was 40 % of the code that the compiler got for `pve`, because all
//! of it is compiled again for each type of keys and values, of which that plugin has some thirty.

use crate::Diagnostics;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

/// A map in the order of its keys. Inserting a key before others moves all of them.
#[derive(Clone, PartialEq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> SortedMap<K, V> {
    /// An empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The entries in order, with values that can be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The keys in order.
    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = K> {
        self.0.into_iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values in the order of their keys, to be changed.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Keeps the entries for which the function returns true.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| wanted(key, value));
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// The place of a key, or the place where it would be.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| &self.0[place].1)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Whether a key has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Sets the value of a key. Returns the value that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// Removes a key. Returns the value that it had.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| self.0.remove(place).1)
    }

    /// The value of a key, which is made if it is missing.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let place = self.find(&key).unwrap_or_else(|place| {
            self.0.insert(place, (key, value()));
            place
        });
        &mut self.0[place].1
    }

    /// The value of a key, which is the default if it is missing.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }
}

impl<K: Ord + fmt::Display, V> SortedMap<K, V> {
    /// Adds what a list has under a name. Of several with one name the worst counts, whatever their order, and a
    /// diagnostic says so. `list` names the list, `rank` is higher for what is worse.
    pub fn insert_worst<R: PartialOrd>(
        &mut self,
        name: K,
        value: V,
        rank: impl Fn(&V) -> R,
        (list, diagnostics): (impl fmt::Display, &mut Diagnostics),
    ) {
        match self.find(&name) {
            Ok(place) => {
                diagnostics.repeated(list, &name);
                let known = &mut self.0[place].1;
                if rank(&value) > rank(known) {
                    *known = value;
                }
            }
            Err(place) => self.0.insert(place, (name, value)),
        }
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Borrow<Q> + Ord, Q: Ord + ?Sized, V> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key has a value")
    }
}

/// Of two entries with one key, the last one stays.
impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::from_entries(entries.into_iter().collect())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn from_entries(entries: Vec<(K, V)>) -> Self {
        if entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Self(entries);
        }
        let order = order(entries.len(), &|a, b| entries[a].0.cmp(&entries[b].0));
        let mut entries: Vec<Option<(K, V)>> = entries.into_iter().map(Some).collect();
        let mut sorted: Vec<(K, V)> = Vec::with_capacity(entries.len());
        for entry in order.into_iter().filter_map(|place| entries[place].take()) {
            match sorted.last_mut() {
                Some(last) if last.0 == entry.0 => *last = entry,
                _ => sorted.push(entry),
            }
        }
        Self(sorted)
    }
}

/// The places of a list in the order of its entries; equal entries stay in their order. A sort of the entries
/// themselves would be compiled for each type.
fn order(number: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..number).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let entries = entries.into_iter();
        // An option is one entry, for example.
        if entries.size_hint().1.is_some_and(|most| most <= 1) {
            entries.for_each(|(key, value)| drop(self.insert(key, value)));
        } else {
            *self = std::mem::take(&mut self.0).into_iter().chain(entries).collect();
        }
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::iter::Map<std::slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl<'a, K, V> IntoIterator for &'a mut SortedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = std::iter::Map<std::slice::IterMut<'a, (K, V)>, fn(&'a mut (K, V)) -> (&'a K, &'a mut V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }
}

impl<K: Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for SortedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = SortedMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(SortedMap::from_entries(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares all operations with those of the standard library's map, on every sequence of four keys.
    #[test]
    fn it_behaves_as_a_tree() {
        for code in 0_u32..4 * 4 * 4 * 4 * 4 {
            let keys: Vec<String> = (0..5).map(|place| ((code >> (2 * place)) % 4).to_string()).collect();
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for (value, key) in keys.iter().enumerate() {
                assert_eq!(map.insert(key.clone(), value), tree.insert(key.clone(), value));
            }
            let entries = || keys.iter().cloned().zip(0..);
            let is_same = |map: &SortedMap<String, usize>, tree: &BTreeMap<String, usize>| {
                assert!(map.iter().eq(tree) && map.len() == tree.len(), "{map:?} and {tree:?}");
            };
            is_same(&map, &tree);
            is_same(&entries().collect(), &tree);
            let mut extended = SortedMap::from([("2".to_owned(), 7)]);
            extended.extend(entries());
            is_same(&extended, &BTreeMap::from([("2".to_owned(), 7)]).into_iter().chain(entries()).collect());
            let json = serde_json::to_string(&map).unwrap();
            assert_eq!(json, serde_json::to_string(&tree).unwrap());
            is_same(&serde_json::from_str(&json).unwrap(), &tree);
            for key in ["0", "1", "2", "3"] {
                assert_eq!((map.get(key), map.contains_key(key)), (tree.get(key), tree.contains_key(key)));
            }
            *map.get_or_default("1".to_owned()) += 10;
            *tree.entry("1".to_owned()).or_default() += 10;
            assert_eq!(map.remove("0"), tree.remove("0"));
            map.retain(|_, value| value % 2 == 0);
            tree.retain(|_, value| *value % 2 == 0);
            is_same(&map, &tree);
        }
    }

    #[test]
    fn the_worst_of_one_name_counts_in_any_order() {
        for list in [[("a", 2), ("b", 1), ("a", 3)], [("a", 3), ("a", 2), ("b", 1)]] {
            let (mut map, mut diagnostics) = (SortedMap::new(), Diagnostics::default());
            for (name, value) in list {
                map.insert_worst(name.to_owned(), value, |value| *value, ("/nodes", &mut diagnostics));
            }
            assert!(map.iter().eq([(&"a".to_owned(), &3), (&"b".to_owned(), &1)]), "{map:?}");
            let mut report = polliwog_sdk::Report::empty();
            diagnostics.into_report(&mut report);
            assert_eq!(report.warnings, ["/nodes has a more than once: the worst counts"]);
        }
    }

    #[test]
    fn of_two_members_with_one_name_the_last_one_stays() {
        let map: SortedMap<String, u8> = serde_json::from_str(r#"{"b":1,"a":2,"b":3}"#).unwrap();
        assert!(map.iter().eq([(&"a".to_owned(), &2), (&"b".to_owned(), &3)]));
    }
}
