//! Names as operators write them in settings.

use schemars::JsonSchema;
use serde::Deserialize;

/// Names, each in full or with `*` for any text. Upper and lower case are the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(transparent)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// Whether one of them is any of these names.
    pub fn match_any<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> bool {
        self.0.iter().any(|pattern| names.clone().into_iter().any(|name| matches(pattern, name)))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const N: usize> From<[&str; N]> for Patterns {
    fn from(patterns: [&str; N]) -> Self {
        Self(patterns.map(str::to_owned).into())
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The first place where it fits leaves most for the parts behind it.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, expected) in [
            ("web", "web", true),
            ("web", "WEB", true),
            ("web", "web1", false),
            ("web*", "web1", true),
            ("*", "", true),
            ("*1", "web1", true),
            ("w*b*1", "web-b1", true),
            ("w*b*1", "wb", false),
            ("a*a", "a", false),
            ("tag:*", "tag:prod", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Patterns::from([pattern]).match_any([name]), expected, "{pattern:?} {name:?}");
        }
        assert!(!Patterns::default().match_any(["x"]));
    }
}
