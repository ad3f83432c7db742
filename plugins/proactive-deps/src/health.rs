//! The nested form of a state: the object `health` of an item.

use polliwog_sdk::prelude::*;
use polliwog_sdk::serde::de::{Deserializer, Error, MapAccess, Visitor};
use polliwog_sdk::serde_json::{self, value::RawValue};
use std::fmt;

/// Most values of one field that are read.
const MOST: usize = 16;

/// Reads the health of an item. A value that is neither an object nor a list is the state. `None` if it cannot be read,
/// or has other fields only.
pub(crate) fn health(raw: &RawValue) -> Option<Health<'_>> {
    match raw.get().as_bytes().first() {
        Some(b'{') => serde_json::from_str(raw.get()).ok().filter(|health: &Health<'_>| health.says(raw)),
        Some(b'[') => None,
        _ => Some(Health { state: Some(raw), ..Health::default() }),
    }
}

/// Reads a health of which fields are repeated, as several. Contains only `None` if it cannot be read.
pub(crate) fn repeated(raw: &RawValue) -> Vec<Option<Health<'_>>> {
    match serde_json::from_str(raw.get()) {
        Ok(Repeated(found)) if !found.is_empty() => found.into_iter().map(Some).collect(),
        Ok(_) | Err(_) => vec![None],
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Part {
    State,
    Code,
    Latency,
    Skipped,
    #[serde(other)]
    Other,
}

/// A health of which fields are repeated: the first one has the first value of each field.
struct Repeated<'a>(Vec<Health<'a>>);

impl<'de> Deserialize<'de> for Repeated<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EachPart)
    }
}

struct EachPart;

impl<'de> Visitor<'de> for EachPart {
    type Value = Repeated<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: Vec<Health<'de>> = Vec::new();
        while let Some((part, raw)) = map.next_entry::<Part, &RawValue>()? {
            if matches!(part, Part::Other) {
                continue;
            }
            let free = found.iter().position(|health| health.get(part).is_none()).unwrap_or(found.len());
            if free == MOST {
                return Err(A::Error::custom("a field is repeated too often"));
            }
            if free == found.len() {
                found.push(Health::default());
            }
            found[free].set(part, raw);
        }
        Ok(Repeated(found))
    }
}

/// The unparsed fields of a health.
#[derive(Clone, Copy, Default, Deserialize)]
pub(crate) struct Health<'a> {
    #[serde(borrow)]
    pub state: Option<&'a RawValue>,
    #[serde(borrow)]
    pub code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub latency: Option<&'a RawValue>,
    #[serde(borrow)]
    pub skipped: Option<&'a RawValue>,
}

impl<'a> Health<'a> {
    /// Whether it has a field that is known, or none at all.
    fn says(&self, raw: &RawValue) -> bool {
        [self.state, self.code, self.latency, self.skipped].iter().any(Option::is_some)
            || raw.get()[1..].trim_start().starts_with('}')
    }

    fn get(&self, part: Part) -> Option<&'a RawValue> {
        match part {
            Part::State => self.state,
            Part::Code => self.code,
            Part::Latency => self.latency,
            Part::Skipped => self.skipped,
            Part::Other => None,
        }
    }

    fn set(&mut self, part: Part, raw: &'a RawValue) {
        let raw = Some(raw).filter(|raw| raw.get() != "null");
        match part {
            Part::State => self.state = raw,
            Part::Code => self.code = raw,
            Part::Latency => self.latency = raw,
            Part::Skipped => self.skipped = raw,
            Part::Other => {}
        }
    }
}
