//! Parts of the memory that may hold thousands of entries. Each has its own entry in the target's cache, which is read
//! only where it is needed, and written only if it changes.

use crate::sorted_map::SortedMap;
use polliwog_sdk::cache;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The sections of a target.
#[derive(Debug, Default)]
pub struct Sections {
    /// The new sections of this poll by key, as JSON. They are written at its end, like the rest of the memory.
    changed: SortedMap<String, Vec<u8>>,
}

impl Sections {
    /// Returns a section. Returns the default if it is missing or damaged.
    pub fn get<T: DeserializeOwned + Default>(&self, key: &str) -> T {
        let parse = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| serde_json::from_str(text).ok());
        match self.changed.get(key) {
            Some(changed) => parse(changed),
            None => cache::get(key).as_deref().and_then(parse),
        }
        .unwrap_or_default()
    }

    /// Replaces a section. `value` must serialize as the type that [`Sections::get`] returns.
    pub fn set(&mut self, key: impl Into<String>, value: &impl Serialize) {
        self.changed.insert(key.into(), serde_json::to_vec(value).unwrap_or_default());
    }

    /// Removes a section. Returns whether it existed.
    pub fn remove(&mut self, key: &str) -> bool {
        let (changed, stored) = (self.changed.remove(key).is_some(), cache::get(key).is_some());
        cache::remove(key);
        changed || stored
    }

    /// Writes what has changed. Returns `false` if the host refuses a section, because the memory is full.
    pub(crate) fn write(&mut self) -> bool {
        self.changed.retain(|key, section| cache::set(key, section, cache::LONGEST).is_err());
        self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_section_is_written_at_the_end_of_a_poll() {
        let mut sections = Sections::default();
        sections.set("names", &[1, 2]);
        assert_eq!(sections.get::<Vec<u8>>("names"), [1, 2]);
        assert!(Sections::default().get::<Vec<u8>>("names").is_empty(), "the poll has not ended");
        assert!(sections.write());
        let mut next = Sections::default();
        assert_eq!(next.get::<Vec<u8>>("names"), [1, 2]);
        assert!(next.remove("names") && !next.remove("names"));
        assert!(next.get::<Vec<u8>>("names").is_empty());
    }

    #[test]
    fn a_damaged_section_reads_as_the_default() {
        cache::set("names", br#"{"a":"text"}"#, Duration::from_secs(60)).unwrap();
        assert!(Sections::default().get::<Vec<u8>>("names").is_empty());
    }

    #[test]
    fn a_section_that_is_refused_is_written_when_there_is_room() {
        cache::set("other", &[0; 900_000], Duration::from_secs(60)).unwrap();
        let mut sections = Sections::default();
        sections.set("names", &"x".repeat(200_000));
        assert!(!sections.write());
        cache::remove("other");
        assert!(sections.write());
        assert_eq!(Sections::default().get::<String>("names").len(), 200_000);
    }
}
