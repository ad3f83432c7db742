//! Tolerant parsing of JSON from real services: numbers in quotes, flags as 0 and 1, `null` for missing values.
//!
//! Use the types in a map or list, or the functions with serde's `deserialize_with`:
//!
//! ```
//! use polliwog_sdk::{json, lenient, serde::Deserialize};
//!
//! #[derive(Deserialize)]
//! # #[serde(crate = "polliwog_sdk::serde")]
//! struct Node {
//!     #[serde(default, deserialize_with = "lenient::number")]
//!     uptime: Option<f64>,
//!     #[serde(default, deserialize_with = "lenient::flag")]
//!     online: Option<bool>,
//!     #[serde(default, deserialize_with = "lenient::text")]
//!     version: Option<String>,
//! }
//!
//! let node: Node = json(br#"{"uptime": "12.5", "online": 1, "version": 8}"#).unwrap();
//! assert_eq!((node.uptime, node.online, node.version.as_deref()), (Some(12.5), Some(true), Some("8")));
//! ```
//!
//! A value of the wrong type, such as a list instead of a number, is an error. `null`, an empty text and, for numbers,
//! words such as `"N/A"` mean that there is no value. [`Field`] accepts every value and reports afterwards what it
//! found, so that one unexpected field does not fail the whole response.

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A finite number, parsed from a number, a text with a number, or a flag (1 and 0). `null` and other texts are errors,
/// unlike in [`number`].
///
/// ```
/// use polliwog_sdk::lenient::Number;
/// # use polliwog_sdk::serde_json;
///
/// let numbers: Vec<Number> = serde_json::from_str(r#"[0.5, "0.5", true]"#).unwrap();
/// assert_eq!(numbers, [Number(0.5), Number(0.5), Number(1.0)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Number(pub f64);

/// A flag, parsed from `true`, 1, `"1"`, `"true"`, `"yes"`, `"on"` and their opposites.
///
/// ```
/// use polliwog_sdk::lenient::Flag;
/// # use polliwog_sdk::serde_json;
///
/// let flags: Vec<Flag> = serde_json::from_str(r#"[true, 1, "on", "0"]"#).unwrap();
/// assert_eq!(flags, [Flag(true), Flag(true), Flag(true), Flag(false)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flag(pub bool);

/// A text, parsed from a text, a number or a flag.
///
/// ```
/// use polliwog_sdk::lenient::Text;
/// # use polliwog_sdk::serde_json;
///
/// let ids: Vec<Text> = serde_json::from_str(r#"["100", 100]"#).unwrap();
/// assert_eq!(ids[0], ids[1]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Text(pub String);

/// A text as [`Text`], without a copy where the parsed text contains it as it is. Saves an allocation for each field of
/// a long list.
///
/// ```
/// use polliwog_sdk::lenient::{BorrowedText, Field};
/// # use polliwog_sdk::serde_json;
/// use std::borrow::Cow;
///
/// let names: Vec<Field<BorrowedText<'_>>> = serde_json::from_str(r#"["pve1", 2]"#).unwrap();
/// assert!(matches!(names[0].get(), Some(BorrowedText(Cow::Borrowed("pve1")))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BorrowedText<'a>(pub Cow<'a, str>);

/// For `deserialize_with`: a finite number. `None` if there is no number.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    scalar(deserializer, |scalar| scalar.number())
}

/// For `deserialize_with`: a flag. `None` if there is no flag.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    scalar(deserializer, |scalar| scalar.flag())
}

/// For `deserialize_with`: a text. `None` if it is missing or empty.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    scalar(deserializer, |scalar| scalar.text())
}

/// A field with any value. Parsing it never fails.
///
/// ```
/// use polliwog_sdk::lenient::{Field, Number};
/// # use polliwog_sdk::serde_json;
///
/// let fields: Vec<Field<Number>> = serde_json::from_str(r#"[8, "8", null, "", "N/A", [8], "eight"]"#).unwrap();
/// assert_eq!(fields[1], Field::Is(Number(8.0)));
/// assert_eq!(fields[4], Field::Absent);
/// assert_eq!(fields[5], Field::Odd("a list".to_owned()));
/// assert_eq!(fields[6], Field::Odd("\"eight\"".to_owned()));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Field<T> {
    /// No value: the field is missing (with `#[serde(default)]`), `null`, an empty text, or a word such as `"N/A"`.
    #[default]
    Absent,
    /// A value of the expected type.
    Is(T),
    /// Another value, shortened for messages.
    Odd(String),
}

impl<T> Field<T> {
    /// Returns the value. `None` if it is absent or has another type.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Odd(_) => None,
        }
    }
}

/// A [`Field`] that is parsed where it is used, and only skipped before: most fields of a long list are not used.
///
/// ```
/// use polliwog_sdk::lenient::{Field, Lazy, Number};
/// # use polliwog_sdk::serde_json;
///
/// let fields: Vec<Lazy<'_, Number>> = serde_json::from_str(r#"["8", null, "eight"]"#).unwrap();
/// assert_eq!(fields[0].read(), Field::Is(Number(8.0)));
/// assert_eq!(fields[2].read(), Field::Odd("\"eight\"".to_owned()));
/// assert_eq!(Lazy::<Number>::default().read(), Field::Absent);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lazy<'a, T>(Option<&'a RawValue>, PhantomData<T>);

impl<T> Default for Lazy<'_, T> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de: 'a, 'a, T> Deserialize<'de> for Lazy<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Some(Deserialize::deserialize(deserializer)?), PhantomData))
    }
}

impl<'a, T> Lazy<'a, T>
where
    Field<T>: Deserialize<'a>,
{
    /// Parses the field.
    pub fn read(&self) -> Field<T> {
        let Some(text) = self.0.map(RawValue::get) else { return Field::Absent };
        // The text is JSON, and a field accepts any. A number beyond the range of `f64` and half a surrogate pair fail.
        serde_json::from_str(text).unwrap_or_else(|_| Field::Odd(text.chars().take(SHOWN).collect()))
    }
}

/// Words that mean that there is no value.
const NONE: [&str; 6] = ["", "n/a", "-", "none", "null", "unknown"];
/// Maximum number of characters of [`Field::Odd`].
const SHOWN: usize = 40;

macro_rules! from_scalar {
    ($name:ident, $read:ident, $nothing:expr, $expected:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = scalar(deserializer, |scalar| scalar.$read().map($name).ok_or_else(|| scalar.to_string()))?;
                read.map_err(|odd| de::Error::invalid_value(Unexpected::Other(&odd), &$expected))
            }
        }

        impl<'de> Deserialize<'de> for Field<$name> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Any(|anything: Anything<'_>, _| {
                    Self::read(anything, &$nothing, |scalar| scalar.$read().map($name))
                }))
            }
        }
    };
}

from_scalar!(Number, number, NONE, "a number or a text that contains one");
from_scalar!(Flag, flag, NONE, "a flag");
from_scalar!(Text, text, [""], "a text");

impl<'de: 'a, 'a> Deserialize<'de> for Field<BorrowedText<'a>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(|anything: Anything<'_>, borrowed: Option<&'de str>| {
            Self::read(anything, &[""], |scalar| match borrowed {
                Some(text) => Some(BorrowedText(Cow::Borrowed(text))),
                None => scalar.text().map(|text| BorrowedText(Cow::Owned(text))),
            })
        }))
    }
}

impl<T> Field<T> {
    /// `nothing` are the words that mean that there is no value.
    fn read(anything: Anything<'_>, nothing: &[&str], read: impl FnOnce(Scalar<'_>) -> Option<T>) -> Self {
        match anything {
            Ok(scalar) if scalar.is_one_of(nothing) => Self::Absent,
            Ok(scalar) => match read(scalar) {
                Some(value) => Self::Is(value),
                None => Self::Odd(scalar.to_string().chars().take(SHOWN).collect()),
            },
            Err(what) => Self::Odd(what.to_owned()),
        }
    }
}

/// A scalar, or a name for the type of another value.
type Anything<'a> = Result<Scalar<'a>, &'static str>;

/// A JSON value that is neither a list nor an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scalar<'a> {
    Nothing,
    Flag(bool),
    /// Integers have their own variants, so that a large one keeps its digits.
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// Returns whether the value is `null` or one of `words`.
    fn is_one_of(self, words: &[&str]) -> bool {
        match self {
            Self::Nothing => true,
            Self::Text(text) => {
                // Most texts need no search for white space, which decodes characters.
                let [first, last] = [text.bytes().next(), text.bytes().next_back()];
                let is_bare = [first, last].iter().all(|byte| byte.is_some_and(|byte| byte.is_ascii_graphic()));
                let text = if is_bare { text } else { text.trim() };
                words.iter().any(|word| text.eq_ignore_ascii_case(word))
            }
            _ => false,
        }
    }

    fn number(self) -> Option<f64> {
        let number = match self {
            Self::Nothing => None,
            Self::Flag(flag) => Some(f64::from(u8::from(flag))),
            Self::Unsigned(number) => Some(number as f64),
            Self::Signed(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            Self::Text(text) => text.trim().parse().ok(),
        };
        number.filter(|number: &f64| number.is_finite())
    }

    fn flag(self) -> Option<bool> {
        let text = match self {
            Self::Flag(flag) => return Some(flag),
            Self::Text(text) => text.trim(),
            _ => {
                let number = self.number()?;
                return [(0.0, false), (1.0, true)].iter().find(|(is, _)| *is == number).map(|(_, flag)| *flag);
            }
        };
        let is = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if is(["1", "true", "yes", "on"]) {
            return Some(true);
        }
        is(["0", "false", "no", "off"]).then_some(false)
    }

    fn text(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Text(text) => (!text.is_empty()).then(|| text.to_owned()),
            _ => Some(self.to_string()),
        }
    }
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Calls `read` with a scalar. Fails for a list or an object.
fn scalar<'de, D: Deserializer<'de>, T>(deserializer: D, read: impl FnOnce(Scalar<'_>) -> T) -> Result<T, D::Error> {
    deserializer
        .deserialize_any(Any(|anything: Anything<'_>, _| anything.map(read)))?
        .map_err(|what| de::Error::invalid_type(Unexpected::Other(what), &"a number, text, flag or null"))
}

/// Visits any JSON value. Calls the function with the scalar, or with a name for the other type. A text is valid only
/// during the call; the second argument is the text if the input contains it as it is.
struct Any<F>(F);

impl<'de, T, F: FnOnce(Anything<'_>, Option<&'de str>) -> T> Visitor<'de> for Any<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Nothing), None))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Flag(flag)), None))
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Signed(number)), None))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Unsigned(number)), None))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Float(number)), None))
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Text(text)), None))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok((self.0)(Ok(Scalar::Text(text)), Some(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok((self.0)(Err("a list"), None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok((self.0)(Err("an object"), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_parsed_as_numbers_flags_and_texts() {
        for (json, number, flag, text) in [
            ("null", None, None, None),
            ("0", Some(0.0), Some(false), Some("0")),
            ("1", Some(1.0), Some(true), Some("1")),
            ("-2.5", Some(-2.5), None, Some("-2.5")),
            ("18446744073709551615", Some(18_446_744_073_709_551_615.0), None, Some("18446744073709551615")),
            ("true", Some(1.0), Some(true), Some("true")),
            ("false", Some(0.0), Some(false), Some("false")),
            ("\"\"", None, None, None),
            ("\" 12 \"", Some(12.0), None, Some(" 12 ")),
            ("\"0\"", Some(0.0), Some(false), Some("0")),
            ("\"Yes\"", None, Some(true), Some("Yes")),
            ("\"N/A\"", None, None, Some("N/A")),
            ("\"NaN\"", None, None, Some("NaN")),
            ("\"inf\"", None, None, Some("inf")),
        ] {
            let reader = || serde_json::Deserializer::from_str(json);
            let found = scalar(&mut reader(), |found| (found.number(), found.flag(), found.text())).unwrap();
            assert_eq!(found, (number, flag, text.map(str::to_owned)), "{json}");
        }
        for json in ["[]", "{}", "[1]"] {
            assert!(serde_json::from_str::<Number>(json).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<Number>("\"N/A\"").unwrap_err().to_string().contains("\"N/A\""));
        assert_eq!(serde_json::from_str::<Vec<Flag>>("[1, \"off\"]").unwrap(), [Flag(true), Flag(false)]);
        assert_eq!(serde_json::from_str::<Text>("8").unwrap(), Text("8".to_owned()));
    }

    #[test]
    fn a_lazy_field_reads_as_the_field() {
        let texts = ["8", " 8", "\"8\"", "null", "[8]", "{\"a\": [1]}", "1e5", "true", "\"x\""];
        for text in texts {
            let lazy: Lazy<'_, Number> = serde_json::from_str(text).unwrap();
            assert_eq!(lazy.read(), serde_json::from_str(text).unwrap(), "{text}");
        }
        let lazy: Lazy<'_, Number> = serde_json::from_str("1e999").unwrap();
        assert_eq!(lazy.read(), Field::Odd("1e999".to_owned()));
    }

    #[test]
    fn texts_without_escapes_are_borrowed() {
        let fields: Vec<Field<BorrowedText<'_>>> =
            serde_json::from_str(r#"["a", "\u0061", 8, true, "", " ", null, [1]]"#).unwrap();
        let is_borrowed =
            |field: &Field<BorrowedText<'_>>| field.get().map(|BorrowedText(text)| matches!(text, Cow::Borrowed(_)));
        assert_eq!(
            fields[..4].iter().map(is_borrowed).collect::<Vec<_>>(),
            [Some(true), Some(false), Some(false), Some(false)]
        );
        let text = |text: &'static str| Field::Is(BorrowedText(Cow::Borrowed(text)));
        let absent = || Field::Absent;
        let odd = Field::Odd("a list".to_owned());
        assert_eq!(fields, [text("a"), text("a"), text("8"), text("true"), absent(), absent(), absent(), odd]);
    }
}
