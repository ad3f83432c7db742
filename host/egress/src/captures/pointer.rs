//! Finds values in JSON by pointers (RFC 6901).

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// A value in a body.
pub(super) struct Found {
    pub value: String,
    /// The content of a JSON string, or all of a number or bool.
    pub place: Range<usize>,
    /// The number of stars that replace it: 0 for a number or bool, because stars would not be JSON.
    pub stars: usize,
}

/// Returns the string, number or bool at a JSON pointer. The body is parsed once.
pub(super) fn pointed(body: &[u8], pointer: &str) -> Option<Found> {
    let steps: Vec<String> = match pointer.strip_prefix('/') {
        Some(steps) => steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
        None if pointer.is_empty() => Vec::new(),
        None => return None,
    };
    let found = Walk(&steps).deserialize(&mut serde_json::Deserializer::from_slice(body)).ok()??.get();
    // The raw value is a slice of the body.
    let start = found.as_ptr() as usize - body.as_ptr() as usize;
    match serde_json::from_str(found).ok()? {
        // Without the quotes.
        Value::String(value) => {
            let stars = value.len();
            Some(Found { value, place: start + 1..start + found.len() - 1, stars })
        }
        Value::Number(_) | Value::Bool(_) => {
            Some(Found { value: found.to_owned(), place: start..start + found.len(), stars: 0 })
        }
        _ => None,
    }
}

/// Follows a path through JSON. The result is `None` if the path does not exist. If a key occurs twice, the last one
/// counts.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() { Deserialize::deserialize(json).map(Some) } else { json.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(here) = map.next_key_seed(Is(&self.0[0]))? {
            if here {
                found = map.next_value_seed(Walk(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0[0].parse().unwrap_or(usize::MAX);
        for _ in 0..wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = seq.next_element_seed(Walk(&self.0[1..]))?.flatten();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Compares a key with a name without copying the key.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}
