//! Values that plugins store from one poll of a target to the next. They are kept in memory only.

use lru::LruCache;
use model::TargetId;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum size of the values of one target in bytes.
const MAX_TARGET_BYTES: usize = 1 << 20;
/// Maximum size of all values in bytes.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Size of an entry in bytes beyond its key and value, so that many empty entries are counted too.
const OVERHEAD: usize = 128;
/// Maximum length of a key in bytes.
const MAX_KEY_BYTES: usize = 256;

/// Maximum time for which a value is kept.
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheError {
    /// The key is empty or too long, or the time to live is out of bounds.
    InvalidArgument,
    /// The target's values would be too large.
    Full,
    /// The call has no cache.
    Unavailable,
}

/// The owner of an entry: a target and one version of its plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub target: TargetId,
    pub plugin: [u8; 32],
}

struct Entry {
    value: Vec<u8>,
    expires: Instant,
}

/// All entries. If their size exceeds the limit, the least recently used ones are removed first.
pub(crate) struct Cache {
    entries: Mutex<Entries>,
}

struct Entries {
    /// The entries of each plugin, by its SHA-256. If the total exceeds the limit, the plugin with the most bytes loses
    /// its oldest entries.
    by_plugin: HashMap<[u8; 32], Share>,
    bytes: usize,
    by_owner: HashMap<Owner, usize>,
}

/// The entries of all targets of one plugin.
struct Share {
    by_key: LruCache<(Owner, String), Entry>,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new() -> Self {
        let entries = Entries { by_plugin: HashMap::new(), bytes: 0, by_owner: HashMap::new() };
        Self { entries: Mutex::new(entries) }
    }

    pub(crate) fn get(&self, owner: &Owner, key: &str) -> Option<Vec<u8>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (owner.clone(), key.to_owned());
        let entry = entries.by_plugin.get_mut(&owner.plugin)?.by_key.get(&key)?;
        if entry.expires <= Instant::now() {
            entries.remove(&key);
            return None;
        }
        Some(entry.value.clone())
    }

    /// Stores a value.
    pub(crate) fn set(&self, owner: &Owner, key: &str, value: Vec<u8>, ttl: Duration) -> Result<(), CacheError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || ttl.is_zero() || ttl > MAX_TTL {
            return Err(CacheError::InvalidArgument);
        }
        let size = key.len() + value.len() + OVERHEAD;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (owner.clone(), key.to_owned());
        entries.remove(&key);
        if entries.by_owner.get(owner).copied().unwrap_or_default() + size > MAX_TARGET_BYTES {
            return Err(CacheError::Full);
        }
        let empty = || Share { by_key: LruCache::unbounded(), bytes: 0 };
        let share = entries.by_plugin.entry(owner.plugin).or_insert_with(empty);
        share.by_key.put(key, Entry { value, expires: Instant::now() + ttl });
        share.bytes += size;
        entries.bytes += size;
        *entries.by_owner.entry(owner.clone()).or_default() += size;
        while entries.bytes > MAX_TOTAL_BYTES {
            let largest = entries.by_plugin.values().max_by_key(|share| share.bytes);
            let oldest = largest.and_then(|share| share.by_key.peek_lru()).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            entries.remove(&oldest);
        }
        Ok(())
    }

    pub(crate) fn remove(&self, owner: &Owner, key: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&(owner.clone(), key.to_owned()));
    }

    /// Removes all entries of a target.
    pub(crate) fn forget(&self, target: &TargetId) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = entries.by_plugin.values().flat_map(|share| share.by_key.iter()).map(|(key, _)| key);
        let of_target = keys.filter(|(owner, _)| owner.target == *target);
        for key in of_target.cloned().collect::<Vec<_>>() {
            entries.remove(&key);
        }
    }
}

impl Entries {
    fn remove(&mut self, key: &(Owner, String)) {
        let Some(share) = self.by_plugin.get_mut(&key.0.plugin) else { return };
        let Some(entry) = share.by_key.pop(key) else { return };
        let size = key.1.len() + entry.value.len() + OVERHEAD;
        share.bytes -= size;
        if share.by_key.is_empty() {
            self.by_plugin.remove(&key.0.plugin);
        }
        self.bytes -= size;
        if let Some(held) = self.by_owner.get_mut(&key.0) {
            *held -= size;
            if *held == 0 {
                self.by_owner.remove(&key.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: usize) -> Owner {
        Owner { target: TargetId::new(&format!("t{n}")).unwrap(), plugin: [0; 32] }
    }

    #[tokio::test(start_paused = true)]
    async fn values_expire_and_belong_to_their_target_and_plugin() {
        let cache = Cache::new();
        cache.set(&owner(1), "k", b"v".to_vec(), Duration::from_secs(5)).unwrap();
        assert_eq!(cache.get(&owner(1), "k"), Some(b"v".to_vec()));
        assert_eq!(cache.get(&owner(2), "k"), None);
        assert_eq!(cache.get(&Owner { plugin: [1; 32], ..owner(1) }, "k"), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(cache.get(&owner(1), "k"), None);
        assert_eq!(cache.entries.lock().unwrap().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn each_target_and_all_together_have_a_bound() {
        let cache = Cache::new();
        let minute = Duration::from_secs(60);
        assert_eq!(cache.set(&owner(0), "k", vec![0; MAX_TARGET_BYTES], minute), Err(CacheError::Full));
        let (longest, too_long) = ("k".repeat(MAX_KEY_BYTES), "k".repeat(MAX_KEY_BYTES + 1));
        for (key, ttl, expected) in [
            (longest.as_str(), MAX_TTL, Ok(())),
            (too_long.as_str(), minute, Err(CacheError::InvalidArgument)),
            ("", minute, Err(CacheError::InvalidArgument)),
            ("k", Duration::ZERO, Err(CacheError::InvalidArgument)),
            ("k", MAX_TTL + Duration::from_millis(1), Err(CacheError::InvalidArgument)),
        ] {
            assert_eq!(cache.set(&owner(0), key, vec![], ttl), expected, "{} bytes for {ttl:?}", key.len());
        }
        cache.remove(&owner(0), &longest);
        for n in 0..70 {
            cache.set(&owner(n), "k", vec![0; MAX_TARGET_BYTES - 1000], minute).unwrap();
            cache.set(&owner(n), "k", vec![1; MAX_TARGET_BYTES - 1000], minute).unwrap();
        }
        assert_eq!(cache.get(&owner(0), "k"), None, "the oldest went");
        assert!(cache.get(&owner(69), "k").is_some());
        assert!(cache.entries.lock().unwrap().bytes <= MAX_TOTAL_BYTES);
        cache.remove(&owner(69), "k");
        assert_eq!(cache.get(&owner(69), "k"), None);
        cache.forget(&owner(68).target);
        assert_eq!(cache.get(&owner(68), "k"), None);
        assert!(cache.get(&owner(67), "k").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_plugin_with_the_most_bytes_loses_its_own_entries() {
        let cache = Cache::new();
        let minute = Duration::from_secs(60);
        let small = Owner { plugin: [9; 32], ..owner(1000) };
        cache.set(&small, "k", vec![1; 100], minute).unwrap();
        for n in 0..100 {
            cache.set(&owner(n), "k", vec![0; MAX_TARGET_BYTES - 1000], minute).unwrap();
        }
        assert!(cache.get(&small, "k").is_some() && cache.get(&owner(99), "k").is_some());
        assert_eq!(cache.get(&owner(0), "k"), None);
    }
}
