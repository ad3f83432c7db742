//! Values in the memory of a target that are valid for a limited time.

use crate::sorted_map::SortedMap;
use polliwog_sdk::clock;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longer than any fault lasts.
pub const LONG: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// Returns the time of this poll, in milliseconds since 1970.
pub fn now() -> u64 {
    u64::try_from(clock::now()).unwrap_or(0)
}

/// A value that is valid for a limited time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Expiring<T> {
    #[serde(rename = "f")]
    from: u64,
    #[serde(rename = "u")]
    until: u64,
    #[serde(rename = "v")]
    value: T,
}

impl<T> Expiring<T> {
    /// A value that is valid from `now` for the time `ttl`.
    pub fn new(value: T, now: u64, ttl: Duration) -> Self {
        Self { from: now, until: now + ttl.as_millis() as u64, value }
    }

    /// The value; `None` if it has expired. A value of the future was remembered before the clock was set back.
    pub fn get(&self, now: u64) -> Option<&T> {
        (self.from..self.until).contains(&now).then_some(&self.value)
    }

    /// The value, expired or not.
    pub(crate) fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Values that are valid for a limited time, by name.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ExpiringMap<T>(SortedMap<String, Expiring<T>>);

impl<T> Default for ExpiringMap<T> {
    fn default() -> Self {
        Self(SortedMap::new())
    }
}

impl<T> ExpiringMap<T> {
    /// The value of this name; `None` if it is missing or has expired.
    pub fn get(&self, name: &str, now: u64) -> Option<&T> {
        self.0.get(name)?.get(now)
    }

    /// Remembers a value from `now` for the time `ttl`.
    pub fn set(&mut self, name: impl Into<String>, value: T, now: u64, ttl: Duration) {
        self.0.insert(name.into(), Expiring::new(value, now, ttl));
    }

    /// Forgets a value.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Drops expired values.
    pub fn purge(&mut self, now: u64) {
        self.0.retain(|_, value| value.get(now).is_some());
    }

    /// Drops all values. Returns whether there were any.
    pub fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }

    /// Drops the values whose names are not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| wanted(name));
    }
}

impl<T: PartialEq> ExpiringMap<T> {
    /// Remembers a value that is set again at each poll. The document changes only when the value does, or when half of
    /// its time has passed.
    pub fn renew(&mut self, name: &str, value: T, now: u64, ttl: Duration) {
        let half = (ttl / 2).as_millis() as u64;
        let stands = self
            .0
            .get(name)
            .is_some_and(|known| known.value == value && (known.from..known.until.saturating_sub(half)).contains(&now));
        if !stands {
            self.set(name, value, now, ttl);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn values_expire_by_the_time_of_the_poll() {
        let mut values = ExpiringMap::default();
        values.set("a", 1, 1_000, MINUTE);
        for (now, expected) in [(999, None), (1_000, Some(1)), (60_999, Some(1)), (61_000, None)] {
            assert_eq!(values.get("a", now).copied(), expected, "{now}");
        }
        values.purge(61_000);
        assert_eq!(values.get("a", 1_000), None, "it was dropped");
    }

    #[test]
    fn a_renewed_value_changes_when_half_of_its_time_has_passed() {
        let mut values = ExpiringMap::default();
        let mut renew = |value: u8, now: u64| {
            values.renew("a", value, now, MINUTE);
            values.0["a"].from
        };
        let found =
            [(1, 0), (1, 29_999), (2, 29_999), (2, 40_000), (2, 60_000), (2, 10_000)].map(|(v, now)| renew(v, now));
        assert_eq!(found, [0, 0, 29_999, 29_999, 60_000, 10_000], "and after the clock was set back");
    }
}
