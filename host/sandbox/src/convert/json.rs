//! Checks JSON text from plugins by the rules of the parser that later reads and writes it.
//!
//! A check of the brackets alone would accept text that later parsers refuse: a number that is too large, half of a
//! surrogate pair, a thousand nested lists. Text that this check accepts can be parsed, embedded in a document of the
//! host, and written by every later step.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Maximum nesting of lists and objects. serde_json parses 128 levels, and the document that embeds the text needs some
/// of them.
const DEPTH: usize = 64;
/// Prefix of the keys with which serde_json marks unparsed text internally.
const RESERVED: &str = "$serde_json::private::";

/// Returns whether a text is JSON that every later step can handle.
pub(super) fn is_sound(text: &str) -> bool {
    let mut parser = serde_json::Deserializer::from_str(text);
    Validate { depth: 0 }.deserialize(&mut parser).is_ok() && parser.end().is_ok()
}

/// Validates a value without storing it.
struct Validate {
    depth: usize,
}

impl Validate {
    fn inside<E: Error>(&self) -> Result<Self, E> {
        if self.depth >= DEPTH { Err(E::custom("nested too deeply")) } else { Ok(Self { depth: self.depth + 1 }) }
    }
}

impl<'de> DeserializeSeed<'de> for Validate {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Validate {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Key)?.is_some() {
            map.next_value_seed(self.inside()?)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.inside()?)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Validates that a key is not reserved by serde_json.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<(), D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        if key.starts_with(RESERVED) { Err(E::custom("a reserved key")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_json_can_be_parsed_and_embedded() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        for good in [
            "{}",
            "null",
            r#"{"a":[1,-2.5e3,true,null,"ü\ud83d\ude00"],"b":12345678901234567890123}"#,
            &nested(DEPTH),
            " 1 ",
        ] {
            assert!(is_sound(good), "{good}");
            let embedded = format!("[[[[[[[[{good}]]]]]]]]");
            assert!(serde_json::from_str::<serde_json::Value>(&embedded).is_ok(), "{good}");
        }
        for bad in [
            "",
            "{",
            "1 2",
            "1e309",
            "-1e999999",
            r#""\ud800""#,
            r#"{"\udc00":1}"#,
            r#"{"$serde_json::private::RawValue":"x"}"#,
            r#"[{"$serde_json::private::Number":"1"}]"#,
            &nested(DEPTH + 1),
            &nested(100_000),
        ] {
            assert!(!is_sound(bad), "{}", &bad[..bad.len().min(60)]);
        }
    }
}
