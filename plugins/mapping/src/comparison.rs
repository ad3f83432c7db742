//! Comparisons of values in the body.

use crate::path::{Found, Path};
use crate::tree::{Node, js_number};
use polliwog_sdk::prelude::*;
use polliwog_sdk::serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor, value};
use regex_lite::Regex;
use std::cell::OnceCell;
use std::fmt;

/// A path, or a comparison of the value at a path.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Field {
    /// A path.
    Path(Path),
    /// True if all comparisons of the value are true.
    Comparison(Box<Comparison>),
}

/// The severity.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Severity {
    /// A path to a word or number.
    Path(Path),
    /// Two comparisons.
    Bounds(Box<Bounds>),
}

/// Bounds: critical if `critical` is true, else warning if `warning` is true, else ok.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// When the status is warning.
    pub warning: Option<Comparison>,
    /// When the status is critical.
    pub critical: Option<Comparison>,
}

/// A comparison: true if all that is given is true. Texts are compared without regard to case. A text that is a number
/// counts as one where a number is needed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Comparison {
    /// A path.
    pub field: Path,
    /// The value equals this text, number or boolean.
    pub equals: Option<Scalar>,
    /// The value does not equal this text, number or boolean.
    pub not_equals: Option<Scalar>,
    /// The value is one of these.
    pub one_of: Option<Vec<Scalar>>,
    /// The value is not one of these.
    pub none_of: Option<Vec<Scalar>>,
    /// The number is below this one.
    pub less_than: Option<f64>,
    /// The number is this one or below it.
    pub at_most: Option<f64>,
    /// The number is above this one.
    pub more_than: Option<f64>,
    /// The number is this one or above it.
    pub at_least: Option<f64>,
    /// The text contains this one; or the list has this element.
    pub contains: Option<Scalar>,
    /// The text does not contain this one; or the list does not have this element.
    pub excludes: Option<Scalar>,
    /// The text matches this regular expression somewhere, with regard to case. `(?i)` ignores it, `^` and `$` are the
    /// ends.
    pub matches: Option<String>,
    /// The compiled expression: there may be thousands of elements.
    #[serde(skip)]
    #[schemars(skip)]
    compiled: OnceCell<Option<Regex>>,
}

/// A text, a number or a boolean.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, a number, true or false")]
pub enum Scalar {
    /// A text.
    Text(String),
    /// An integer.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

impl Scalar {
    /// Whether a value, in lower case, is this one. The blanks around it do not count, and integers are compared
    /// with all of their digits.
    fn is(&self, found: Found<'_, '_>, lower: &str) -> bool {
        match (self, found.node().and_then(Node::as_integer)) {
            (Self::Integer(wanted), Some(number)) => *wanted == number,
            _ => [lower, lower.trim()].contains(&self.lower().as_str()),
        }
    }

    fn lower(&self) -> String {
        match self {
            Self::Text(text) => text.to_lowercase(),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => js_number(*number),
            Self::Boolean(boolean) => boolean.to_string(),
        }
    }
}

impl Field {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            Self::Comparison(comparison) => &comparison.field,
        }
    }
}

impl Severity {
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let (path, bounds) = match self {
            Self::Path(path) => (Some(path), [None, None]),
            Self::Bounds(bounds) => (None, [bounds.warning.as_ref(), bounds.critical.as_ref()]),
        };
        path.into_iter().chain(bounds.into_iter().flatten().map(|bound| &bound.field))
    }
}

impl Comparison {
    /// Returns what is wrong, and the key that it is about.
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let texts = [
            ("/equals", self.equals.as_ref()),
            ("/notEquals", self.not_equals.as_ref()),
            ("/contains", self.contains.as_ref()),
            ("/excludes", self.excludes.as_ref()),
        ];
        if let Some((key, _)) =
            texts.iter().find(|(_, text)| matches!(text, Some(Scalar::Text(text)) if text.is_empty()))
        {
            return Some((key, "it is empty: write the text to compare with".to_owned()));
        }
        for (key, list) in [("/oneOf", &self.one_of), ("/noneOf", &self.none_of)] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                return Some((key, "it is empty: add at least one value".to_owned()));
            }
        }
        if let Some(Err(error)) = self.matches.as_deref().map(Regex::new) {
            return Some(("/matches", format!("it is not a regular expression: {error}")));
        }
        self.is_empty().then(|| {
            let keys =
                "equals, notEquals, oneOf, noneOf, lessThan, atMost, moreThan, atLeast, contains, excludes or matches";
            ("", format!("it compares with nothing: add {keys}"))
        })
    }

    /// The texts, numbers and booleans to compare with.
    fn scalars(&self) -> impl Iterator<Item = &Scalar> {
        let single = [&self.equals, &self.not_equals, &self.contains, &self.excludes];
        let listed = [&self.one_of, &self.none_of];
        single.into_iter().flatten().chain(listed.into_iter().flatten().flatten())
    }

    fn is_empty(&self) -> bool {
        let numbers = [self.less_than, self.at_most, self.more_than, self.at_least];
        numbers.iter().all(Option::is_none)
            && self.one_of.is_none()
            && self.none_of.is_none()
            && self.scalars().next().is_none()
            && self.matches.is_none()
    }

    /// Compares a value. `None` if it is null, not a number where one is needed, or an object where something is not to
    /// be in it.
    pub(crate) fn holds(&self, found: Found<'_, '_>) -> Option<bool> {
        let is_negative = self.not_equals.is_some() || self.none_of.is_some() || self.excludes.is_some();
        if found.is_null() || (is_negative && !found.is_plain()) {
            return None;
        }
        let mut holds = true;
        if [self.less_than, self.at_most, self.more_than, self.at_least].iter().any(Option::is_some) {
            let number = found.as_number()?;
            holds &=
                self.less_than.is_none_or(|bound| number < bound) && self.at_most.is_none_or(|bound| number <= bound);
            holds &=
                self.more_than.is_none_or(|bound| number > bound) && self.at_least.is_none_or(|bound| number >= bound);
        }
        let text = found.to_js()?;
        let lower = text.to_lowercase();
        let is = |scalar: &Scalar| scalar.is(found, &lower);
        // A number that JSON does not have says nothing, unless the comparison is with that.
        if text.trim().parse::<f64>().is_ok_and(|number| !number.is_finite()) && !self.scalars().any(is) {
            return None;
        }
        let has = |scalar: &Scalar| has(found, &lower, scalar);
        holds &= self.equals.as_ref().is_none_or(is) && !self.not_equals.as_ref().is_some_and(is);
        holds &= self.one_of.as_ref().is_none_or(|list| list.iter().any(is));
        holds &= !self.none_of.as_ref().is_some_and(|list| list.iter().any(is));
        holds &= self.contains.as_ref().is_none_or(has) && !self.excludes.as_ref().is_some_and(has);
        if let Some(pattern) = &self.matches {
            holds &= self.compiled.get_or_init(|| Regex::new(pattern).ok()).as_ref()?.is_match(&text);
        }
        Some(holds)
    }
}

/// Whether a list has an element, or a text contains another one.
fn has(found: Found<'_, '_>, lower: &str, scalar: &Scalar) -> bool {
    let wanted = scalar.lower();
    match found.node() {
        Some(Node::List(items)) => {
            items.iter().any(|item| item.to_js().is_some_and(|text| text.to_lowercase() == wanted))
        }
        _ => lower.contains(&wanted),
    }
}

/// A path, or a table.
enum Written<T> {
    Path(Path),
    Table(T),
}

/// Reads a path or a table. Unlike an untagged enum, it says what is wrong in the table.
fn written<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Written<T>, D::Error> {
    struct PathOrTable<T>(&'static str, std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for PathOrTable<T> {
        type Value = Written<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Written::Path(Path::parse(text)))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Path::deserialize(value::SeqAccessDeserializer::new(list)).map(Written::Path)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(value::MapAccessDeserializer::new(map)).map(Written::Table)
        }
    }
    deserializer.deserialize_any(PathOrTable(expected, std::marker::PhantomData))
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match written(deserializer, "a path or a comparison")? {
            Written::Path(path) => Self::Path(path),
            Written::Table(comparison) => Self::Comparison(Box::new(comparison)),
        })
    }
}

impl<'de> Deserialize<'de> for Severity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match written(deserializer, "a path, or a table with warning and critical")? {
            Written::Path(path) => Self::Path(path),
            Written::Table(bounds) => Self::Bounds(Box::new(bounds)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::serde_json;

    #[test]
    fn values_are_compared() {
        for (comparison, value, expected) in [
            (r#"{"field":"v","equals":"up"}"#, r#""UP""#, Some(true)),
            (r#"{"field":"v","notEquals":"error"}"#, r#""Error""#, Some(false)),
            (r#"{"field":"v","notEquals":0}"#, "1", Some(true)),
            (r#"{"field":"v","notEquals":0}"#, "null", None),
            (r#"{"field":"v","lessThan":50}"#, "49.9", Some(true)),
            (r#"{"field":"v","lessThan":50}"#, "50", Some(false)),
            (r#"{"field":"v","lessThan":50}"#, r#"" 12 ""#, Some(true)),
            (r#"{"field":"v","lessThan":50}"#, r#""low""#, None),
            (r#"{"field":"v","lessThan":50}"#, r#""NaN""#, None),
            (r#"{"field":"v","lessThan":50}"#, "true", None),
            (r#"{"field":"v","notEquals":5}"#, r#""NaN""#, None),
            (r#"{"field":"v","noneOf":["DOWN"]}"#, r#""-Infinity""#, None),
            (r#"{"field":"v","excludes":"down"}"#, r#""1e400""#, None),
            (r#"{"field":"v","matches":"."}"#, r#""NaN""#, None),
            (r#"{"field":"v","equals":"nan"}"#, r#""NaN""#, Some(true)),
            (r#"{"field":"v","notEquals":"NaN"}"#, r#""nan""#, Some(false)),
            (r#"{"field":"v","atMost":50}"#, "50", Some(true)),
            (r#"{"field":"v","moreThan":0}"#, "0", Some(false)),
            (r#"{"field":"v","atLeast":0,"lessThan":10}"#, "0", Some(true)),
            (r#"{"field":"v","atLeast":0,"lessThan":10}"#, "10", Some(false)),
            (r#"{"field":"v","contains":"running"}"#, r#""Up (Running)""#, Some(true)),
            (r#"{"field":"v","contains":"eth1"}"#, r#"["eth0","eth1"]"#, Some(true)),
            (r#"{"field":"v","contains":"eth"}"#, r#"["eth0","eth1"]"#, Some(false)),
            (r#"{"field":"v","excludes":"error"}"#, r#""no ERROR""#, Some(false)),
            (r#"{"field":"v","excludes":7}"#, "[1,2]", Some(true)),
            (r#"{"field":"v","oneOf":["idle","printing"]}"#, r#""Printing""#, Some(true)),
            (r#"{"field":"v","oneOf":[1,2]}"#, r#""3""#, Some(false)),
            (r#"{"field":"v","noneOf":["failed",null]}"#, r#""x""#, None),
            (r#"{"field":"v","noneOf":["failed"]}"#, r#""done""#, Some(true)),
            (r#"{"field":"v","matches":"^v[0-9]+$"}"#, r#""v12""#, Some(true)),
            (r#"{"field":"v","matches":"^V"}"#, r#""v12""#, Some(false)),
            (r#"{"field":"v","matches":"(?i)^V"}"#, r#""v12""#, Some(true)),
            (r#"{"field":"v.length","moreThan":1}"#, "[1,2]", Some(true)),
        ] {
            let Ok(comparison_) = serde_json::from_str::<Comparison>(comparison) else {
                assert_eq!(expected, None, "{comparison}");
                continue;
            };
            let body = format!("{{\"v\":{value}}}");
            let node: Node<'_> = serde_json::from_str(&body).unwrap();
            let found = comparison_.field.last(&node).unwrap();
            assert_eq!(comparison_.holds(found), expected, "{comparison} of {value}");
            assert_eq!(comparison_.problem(), None, "{comparison}");
        }
    }
}
