//! JSON with all members of its objects: of a key that is repeated, each value counts.

use polliwog_sdk::serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use polliwog_sdk::serde::ser::{SerializeMap, Serializer};
use polliwog_sdk::serde::{Deserialize, Serialize};
use polliwog_sdk::serde_json::{self, Number};
use std::borrow::Cow;
use std::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// The members in their order, repeated ones as well.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Node<'a> {
    /// Returns the members with a key, in their order.
    pub(crate) fn members<'n>(&'n self, key: &str) -> impl Iterator<Item = &'n Self> {
        let members = match self {
            Self::Object(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().filter(move |(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the value as a number; a text counts if it is one.
    pub(crate) fn as_number(&self) -> Option<f64> {
        let number = match self {
            Self::Number(number) => number.as_f64(),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite())
    }

    /// Returns an integer with all of its digits.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_i64() } else { None }
    }

    /// Returns the JSON text.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Implements JavaScript's `String(value)`. `None` for null, which equals nothing.
    pub(crate) fn to_js(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone().into_owned()),
            Self::Bool(boolean) => Some(boolean.to_string()),
            Self::Number(number) => number.as_f64().map(js_number),
            Self::List(items) => {
                Some(items.iter().map(|item| item.to_js().unwrap_or_default()).collect::<Vec<_>>().join(","))
            }
            Self::Object(_) => Some("[object Object]".to_owned()),
            Self::Null => None,
        }
    }
}

/// Implements ECMAScript's Number::toString: an exponent from 1e21 and below 1e-6, otherwise plain digits without a
/// trailing `.0`.
pub(crate) fn js_number(number: f64) -> String {
    let size = number.abs();
    if number == 0.0 {
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    if size >= 1.0 { text.replace('e', "e+") } else { text }
}

impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

/// A key, without a copy where the body contains it as it is.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(boolean))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'de>, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node<'de>, E> {
        Ok(Number::from_f64(number).map_or(Node::Null, Node::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        Ok(Node::Object(members))
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(boolean) => serializer.serialize_bool(*boolean),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_like_in_javascript() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (200.0, "200"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (1.5e-7, "1.5e-7"),
        ] {
            assert_eq!(js_number(number), text);
        }
    }

    #[test]
    fn a_body_stays_as_it_was_with_its_repeated_keys() {
        let body = r#"{"a":[1,-2.5,18446744073709551615,true,null,"\u0061"],"a":{"b":"x","b":{}},"":"ü"}"#;
        let node: Node<'_> = serde_json::from_str(body).unwrap();
        assert_eq!(node.to_json(), body.replace("\\u0061", "a"));
        assert_eq!(node.members("a").count(), 2);
    }
}
