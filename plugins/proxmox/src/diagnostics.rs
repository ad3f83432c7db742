//! Diagnostics: fields whose values are not of the expected type or range.

use polliwog_sdk::Report;
use polliwog_sdk::lenient::{Field, Flag, Number};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// From here on a number in JSON is not exact, and too large for any time, count or size: 9 PB, in bytes.
const LARGEST: f64 = 9_007_199_254_740_992.0;
/// How many fields are named; the rest is counted.
const NAMED: usize = 100;
/// The words of the note about items of a list that may have had something to say. The notes of a check that is not due
/// are kept as texts.
const UNREAD: &str = "items that are not objects and cannot be judged";

/// Fields that could not be read, for the report's warnings.
#[derive(Debug, Default)]
pub struct Diagnostics {
    named: Vec<String>,
    more: usize,
    /// The number of diagnostics before the check in progress.
    of_check: usize,
}

impl Diagnostics {
    /// Starts a check.
    pub(crate) fn begin_check(&mut self) {
        self.of_check = self.named.len();
    }

    /// Returns the diagnostics since the check started.
    pub(crate) fn of_check(&self) -> Vec<String> {
        self.named.get(self.of_check..).unwrap_or_default().to_vec()
    }

    /// Adds that a list has a name more than once.
    pub fn repeated(&mut self, list: impl fmt::Display, name: impl fmt::Display) {
        self.add(|| format!("{list} has {name} more than once: the worst counts"));
    }

    /// The first list of which items could not be judged at all.
    pub(crate) fn unread_items(&self) -> Option<&str> {
        self.named.iter().map(String::as_str).find(|note| note.contains(UNREAD))
    }

    /// Adds a diagnostic.
    pub fn add(&mut self, note: impl FnOnce() -> String) {
        if self.named.len() < NAMED {
            self.named.push(note());
        } else {
            self.more += 1;
        }
    }

    /// Returns a number that is neither negative nor beyond 2^53. `what` names the field for a person: `disk of
    /// storage/local`.
    pub fn number(&mut self, field: &Field<Number>, what: impl FnOnce() -> String) -> Option<f64> {
        match field {
            Field::Is(Number(number)) if (0.0..LARGEST).contains(number) => Some(*number),
            Field::Is(Number(number)) => {
                self.add(|| format!("{} is {number}, which is impossible: ignored", what()));
                None
            }
            Field::Absent => None,
            Field::Odd(odd) => {
                self.odd(odd, "number", what);
                None
            }
        }
    }

    /// Returns a text, owned or borrowed.
    pub fn text<'a, T>(&mut self, field: &'a Field<T>, what: impl FnOnce() -> String) -> Option<&'a T> {
        match field {
            Field::Is(text) => Some(text),
            Field::Absent => None,
            Field::Odd(odd) => {
                self.odd(odd, "text", what);
                None
            }
        }
    }

    /// Returns a flag.
    pub fn flag(&mut self, field: &Field<Flag>, what: impl FnOnce() -> String) -> Option<bool> {
        match field {
            Field::Is(Flag(flag)) => Some(*flag),
            Field::Absent => None,
            Field::Odd(odd) => {
                self.odd(odd, "flag", what);
                None
            }
        }
    }

    fn odd(&mut self, odd: &str, wanted: &str, what: impl FnOnce() -> String) {
        self.add(|| format!("{} is {odd}, which is not a {wanted}: ignored", what()));
    }

    /// Adds the diagnostics of another reader.
    pub fn append(&mut self, other: Self) {
        let room = NAMED.saturating_sub(self.named.len());
        self.more += other.more + other.named.len().saturating_sub(room);
        self.named.extend(other.named.into_iter().take(room));
    }

    /// Adds them to the warnings of a report.
    pub fn into_report(self, report: &mut Report) {
        for note in self.named {
            report.warn(note);
        }
        if self.more > 0 {
            report.warn(format!("{} more fields could not be read", self.more));
        }
    }
}

/// A list of objects of type `T`, in a collection. Other items are counted and dropped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed<T, C> {
    items: C,
    /// The number of dropped items, without those that are null.
    odd: usize,
    /// The number of dropped items that are null.
    nulls: usize,
    of: PhantomData<T>,
}

impl<T, C> Listed<T, C> {
    /// Returns the objects, and adds a diagnostic if items were dropped. `what` names the list: `/cluster/status`.
    pub(crate) fn checked_items(self, diagnostics: &mut Diagnostics, what: &str) -> C {
        if self.odd > 0 {
            diagnostics.add(|| format!("{what} has {UNREAD}: {}", self.odd));
        }
        if self.nulls > 0 {
            diagnostics.add(|| format!("{what} has items that are null: {}", self.nulls));
        }
        self.items
    }
}

impl<'de, T: Deserialize<'de>, C: Default + Extend<T>> Deserialize<'de> for Listed<T, C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, C>(PhantomData<(T, C)>);

        impl<'de, T: Deserialize<'de>, C: Default + Extend<T>> Visitor<'de> for List<T, C> {
            type Value = Listed<T, C>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listed<T, C>, A::Error> {
                let mut listed = Listed { items: C::default(), odd: 0, nulls: 0, of: PhantomData };
                while let Some(item) = list.next_element()? {
                    match item {
                        Item::Is(item) => listed.items.extend([item]),
                        Item::Null => listed.nulls += 1,
                        Item::Odd => listed.odd += 1,
                    }
                }
                Ok(listed)
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// An object, null or another value.
enum Item<T> {
    Is(T),
    Null,
    Odd,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Any<T> {
            type Value = Item<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Item::Is)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item<T>, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Item::Odd)
            }

            fn visit_unit<E>(self) -> Result<Item<T>, E> {
                Ok(Item::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Item<T>, E> {
                Ok(Item::Odd)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Item<T>, E> {
                Ok(Item::Odd)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Item<T>, E> {
                Ok(Item::Odd)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Item<T>, E> {
                Ok(Item::Odd)
            }

            fn visit_str<E>(self, _: &str) -> Result<Item<T>, E> {
                Ok(Item::Odd)
            }
        }

        deserializer.deserialize_any(Any(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Node {
        #[serde(default)]
        cpu: Field<Number>,
    }

    use serde::Deserialize;

    #[test]
    fn items_that_are_not_objects_are_dropped_and_counted() {
        let list: Listed<Node, Vec<_>> =
            serde_json::from_str(r#"[{"cpu": 1}, null, 3, -3, 0.5, "x", [{"cpu": 1}], true, {}]"#).unwrap();
        assert_eq!((list.items.len(), list.odd, list.nulls), (2, 6, 1));
        assert!(serde_json::from_str::<Listed<Node, Vec<_>>>("{}").is_err());
        let mut diagnostics = Diagnostics::default();
        list.checked_items(&mut diagnostics, "/nodes");
        assert_eq!(
            diagnostics.named,
            ["/nodes has items that are not objects and cannot be judged: 6", "/nodes has items that are null: 1"]
        );
        assert_eq!(diagnostics.unread_items(), Some(diagnostics.named[0].as_str()));
    }

    #[test]
    fn unreadable_fields_are_named() {
        let mut diagnostics = Diagnostics::default();
        for (json, expected) in [
            ("1", Some(1.0)),
            ("\"2.5\"", Some(2.5)),
            ("null", None),
            ("-1", None),
            ("9007199254740992", None),
            ("\"x\"", None),
            ("{}", None),
        ] {
            let field: Field<Number> = serde_json::from_str(json).unwrap();
            assert_eq!(diagnostics.number(&field, || format!("{json} of x")), expected, "{json}");
        }
        assert_eq!(diagnostics.named.len(), 4);
        assert_eq!(diagnostics.named[0], "-1 of x is -1, which is impossible: ignored");
        assert_eq!(diagnostics.named[2], "\"x\" of x is \"x\", which is not a number: ignored");
        for _ in 0..200 {
            diagnostics.add(String::new);
        }
        let mut report = Report::empty();
        diagnostics.into_report(&mut report);
        assert_eq!(report.warnings.len(), NAMED + 1);
        assert_eq!(report.warnings[NAMED], "104 more fields could not be read");
    }
}
