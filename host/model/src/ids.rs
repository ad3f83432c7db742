//! Checked identifiers.

use std::fmt;
use std::sync::Arc;

/// The id of a target: `[a-z0-9][a-z0-9_-]{0,62}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(Arc<str>);

/// The kind of a target (`pve`, `http`, ...): `[a-z][a-z0-9-]{0,31}`. Each kind is served by one plugin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

/// A text that is not a valid id, with the rule that it violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidId {
    /// The rejected text, shortened for display.
    pub text: String,
    /// The rule in words.
    pub rule: &'static str,
}

impl TargetId {
    const RULE: &'static str =
        "a target id is 1 to 63 characters of a-z, 0-9, '_' and '-', and begins with a letter or digit";

    /// Checks `text` against the rule for target ids.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
        let head = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        check(text, 63, Self::RULE, head, tail).map(Self)
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Kind {
    const RULE: &'static str = "a kind is 1 to 32 characters of a-z, 0-9 and '-', and begins with a letter";

    /// Checks `text` against the rule for kinds.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        check(text, 32, Self::RULE, |byte| byte.is_ascii_lowercase(), tail).map(Self)
    }

    /// Whether it is `email`, the kind of channel that the host serves itself.
    pub fn is_email(&self) -> bool {
        self.as_str() == "email"
    }

    /// Returns the kind as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(
    text: &str,
    longest: usize,
    rule: &'static str,
    head: impl Fn(u8) -> bool,
    tail: impl Fn(u8) -> bool,
) -> Result<Arc<str>, InvalidId> {
    let bytes = text.as_bytes();
    let good = bytes.len() <= longest && bytes.first().is_some_and(|&b| head(b)) && bytes.iter().all(|&b| tail(b));
    if good { Ok(text.into()) } else { Err(InvalidId { text: text.chars().take(80).collect(), rule }) }
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not fit: {}", self.text, self.rule)
    }
}

impl std::error::Error for InvalidId {}

macro_rules! text_like {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
text_like!(TargetId, Kind);

impl From<&TargetId> for Arc<str> {
    fn from(id: &TargetId) -> Self {
        id.0.clone()
    }
}

impl From<&Kind> for Arc<str> {
    fn from(kind: &Kind) -> Self {
        kind.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_ids_and_kinds_are_checked() {
        let long = "a".repeat(63);
        for good in ["a", "0", "pve-core", "a_b", &long] {
            assert!(TargetId::new(good).is_ok(), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in ["", "-a", "_a", "A", "a b", "a/b", "ä", "a\n", &longer] {
            assert!(TargetId::new(bad).is_err(), "{bad}");
        }
        for good in ["http", "proactive-deps", "a1"] {
            assert!(Kind::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "a_b", "../x", "Http", &long] {
            assert!(Kind::new(bad).is_err(), "{bad}");
        }
    }
}
