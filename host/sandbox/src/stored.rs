//! Values of an endpoint that last over calls, restarts and versions of its plugin.

use model::PluginValues;
use std::sync::Arc;

/// Maximum length of a key in bytes.
const KEY: usize = 256;
/// Maximum number of keys of an endpoint.
const KEYS: usize = 64;
/// Maximum length of all keys and values of an endpoint in bytes.
const BYTES: usize = 64 << 10;

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    InvalidArgument,
    Full,
}

/// The values of an endpoint during a call. Changes take effect after the call.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    values: PluginValues,
    is_changed: bool,
}

impl Stored {
    pub(crate) fn new(values: PluginValues) -> Self {
        Self { values, is_changed: false }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.values.get(key).cloned()
    }

    pub(crate) fn set(&mut self, key: String, value: Vec<u8>) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > KEY {
            return Err(StoreError::InvalidArgument);
        }
        let old = self.values.get(&key);
        if old == Some(&value) {
            return Ok(());
        }
        let count = self.values.len() + usize::from(old.is_none());
        let size = |(key, value): (&String, &Vec<u8>)| key.len() + value.len();
        let replaced = old.map_or(0, |old| key.len() + old.len());
        let bytes = self.values.iter().map(size).sum::<usize>() - replaced + key.len() + value.len();
        if count > KEYS || bytes > BYTES {
            return Err(StoreError::Full);
        }
        Arc::make_mut(&mut self.values).insert(key, value);
        self.is_changed = true;
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if self.values.contains_key(key) {
            Arc::make_mut(&mut self.values).remove(key);
            self.is_changed = true;
        }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// Returns the values if the call changed them.
    pub(crate) fn into_changed(self) -> Option<PluginValues> {
        self.is_changed.then_some(self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bounded_and_equal_ones_are_no_change() {
        let mut stored = Stored::new(PluginValues::default());
        let set = |stored: &mut Stored, key: &str, length: usize| stored.set(key.to_owned(), vec![7; length]);
        assert_eq!(set(&mut stored, "", 1), Err(StoreError::InvalidArgument));
        assert_eq!(set(&mut stored, &"k".repeat(257), 1), Err(StoreError::InvalidArgument));
        assert_eq!(set(&mut stored, "a", BYTES), Err(StoreError::Full));
        assert_eq!(stored.clone().into_changed(), None);
        assert_eq!(set(&mut stored, "a", BYTES - 1), Ok(()));
        assert_eq!(set(&mut stored, "b", 0), Err(StoreError::Full));
        assert_eq!(set(&mut stored, "a", 1), Ok(()), "the old value does not count");
        for number in 1..KEYS {
            assert_eq!(set(&mut stored, &number.to_string(), 1), Ok(()));
        }
        assert_eq!((set(&mut stored, "one more", 1), stored.keys().len()), (Err(StoreError::Full), KEYS));
        let values = stored.into_changed().unwrap();
        let mut again = Stored::new(values.clone());
        assert_eq!((set(&mut again, "a", 1), again.get("a")), (Ok(()), Some(vec![7])));
        again.remove("none");
        assert_eq!(again.clone().into_changed(), None, "nothing differs");
        again.remove("a");
        assert_eq!(again.get("a"), None);
        assert_eq!(again.into_changed().map(|left| left.len()), Some(values.len() - 1));
    }
}
