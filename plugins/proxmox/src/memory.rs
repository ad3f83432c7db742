//! The memory of a target: what one poll remembers for the next, as one document in the target's cache.
//!
//! [`Memory::load`] reads the document once, at the start of a poll. [`Memory::save`] writes it once, at the end, if it
//! changed. What may be large and is rarely needed has its own entry, see [`Sections`]. A value that is valid for a
//! limited time carries its own expiry, see [`crate::Expiring`]. All times are times of polls, in milliseconds since
//! 1970.
//!
//! Invariant: a plugin works without its memory. A missing, damaged or older document reads as empty, and a memory that
//! is too large loses its least important parts.

use crate::expiring::{self, ExpiringMap};
use crate::hysteresis::Crossed;
use crate::inventory::Inventory;
use crate::origins::SilentOrigin;
use crate::schedule::Schedule;
use crate::sections::Sections;
use crate::visibility::Visibility;
use polliwog_sdk::{Endpoint, cache, http};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A document that does not change is written again after this time, before it expires. Milliseconds.
const RENEWED: u64 = 24 * 60 * 60 * 1000;
const KEY: &str = "memory";

/// The part of the memory that belongs to one plugin.
pub trait PluginMemory: Default + Serialize + DeserializeOwned {
    /// Names the values that [`PluginMemory::shed`] drops, for a warning.
    const SHED: &'static str;

    /// Drops expired values.
    fn purge(&mut self, now: u64);

    /// Drops the values and sections that need the most room and matter least. Returns whether there were any.
    fn shed(&mut self, sections: &mut Sections) -> bool;
}

/// A plugin that remembers nothing in addition.
impl PluginMemory for () {
    const SHED: &'static str = "nothing";

    fn purge(&mut self, _: u64) {}

    fn shed(&mut self, _: &mut Sections) -> bool {
        false
    }
}

/// A part that is dropped from a memory that is too large, and the function that drops it, which returns whether there
/// was such a part.
type Step<P> = (&'static str, fn(&mut Memory<P>) -> bool);

/// The document. `P` is the plugin's own part.
#[derive(Debug, Default, Deserialize, Serialize)]
// A document of another version of these structs reads as empty.
#[serde(deny_unknown_fields, bound = "P: PluginMemory")]
pub struct Memory<P> {
    /// When it was written.
    written: u64,
    /// Hash of the target's settings.
    settings: u64,
    /// The URL of the origin that answered at the last poll.
    pub(crate) answered: Option<String>,
    /// Origins that did not answer, by their URLs.
    pub(crate) silent: ExpiringMap<SilentOrigin>,
    /// Parts of the report that were read.
    pub(crate) read: ExpiringMap<()>,
    /// Parts of the report that could not be read at the last poll, and the time since when.
    pub(crate) missed: ExpiringMap<u64>,
    pub(crate) schedule: Schedule,
    pub(crate) visibility: Visibility,
    /// Values beyond a threshold.
    pub(crate) crossed: ExpiringMap<Crossed>,
    pub(crate) inventory: Inventory,
    /// The plugin's own part.
    pub plugin: P,
    /// The parts of the memory outside the document.
    #[serde(skip)]
    pub sections: Sections,
    /// The document as it was read.
    #[serde(skip)]
    stored: Vec<u8>,
    /// The time of this poll.
    #[serde(skip)]
    now: u64,
}

impl<P: PluginMemory> Memory<P> {
    /// Reads the document. Changed settings make everything due again.
    pub fn load(target: &Endpoint) -> Self {
        let stored = cache::get(KEY).unwrap_or_default();
        let text = std::str::from_utf8(&stored).unwrap_or_default();
        let mut memory: Self = serde_json::from_str(text).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        http::stable(&target.settings).hash(&mut hasher);
        let settings = hasher.finish();
        if memory.settings != settings {
            memory.schedule = Schedule::default();
        }
        Self { settings, stored, now: expiring::now(), ..memory }
    }

    /// Writes the document and the sections if they changed. Returns what had to be dropped because there was no room.
    pub fn save(mut self) -> Vec<&'static str> {
        self.silent.purge(self.now);
        self.read.purge(self.now);
        self.missed.purge(self.now);
        self.crossed.purge(self.now);
        self.schedule.purge(self.now);
        self.plugin.purge(self.now);
        if self.write() {
            return Vec::new();
        }
        // The least important part comes first. Without samples, graphs have gaps. Without names, titles are missing.
        // Without the inventory, dependencies that cannot be checked are reported as removed. Without the schedule,
        // everything is checked at each poll.
        let steps: [Step<P>; 4] = [
            ("samples between two checks", |memory| memory.schedule.drop_samples()),
            (P::SHED, |memory| memory.plugin.shed(&mut memory.sections)),
            ("the names of all dependencies", |memory| memory.inventory.clear(&mut memory.sections)),
            ("when each part was checked", |memory| memory.schedule.drop_checks()),
        ];
        let (mut steps, mut dropped) = (steps.into_iter(), Vec::new());
        // The old document may take the room of a new section.
        cache::remove(KEY);
        self.stored.clear();
        while !self.write() {
            // If nothing is left to drop, the next poll starts without a memory.
            let Some((what, _)) = steps.find(|(_, drop)| drop(&mut self)) else { break };
            dropped.push(what);
        }
        dropped
    }

    /// Returns `false` if the host refuses the document or a section, because the memory is full.
    fn write(&mut self) -> bool {
        if !self.sections.write() {
            return false;
        }
        let fresh = (self.written..self.written + RENEWED).contains(&self.now);
        if fresh && self.bytes() == self.stored {
            return true;
        }
        self.written = self.now;
        cache::set(KEY, &self.bytes(), cache::LONGEST).is_ok()
    }

    /// Whether the last check of a part has expired.
    pub fn is_due(&self, part: &str) -> bool {
        self.schedule.valid(part, self.now).is_none()
    }

    /// The time of this poll.
    pub fn now(&self) -> u64 {
        self.now
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
