//! Names as operators write them in settings.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Names, each in full or with `*` for any text. Upper and lower case are the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(from = "Vec<Written>")]
#[schemars(with = "Vec<Written>")]
pub struct Patterns {
    /// Those in full, in lower case: there may be as many as there are guests.
    exact: BTreeSet<String>,
    /// Those with a `*`, in lower case.
    starred: Vec<String>,
}

/// A name, or a guest's number, as people write it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Name(String),
    Number(u32),
}

impl Patterns {
    /// Those that begin with `WORD:` where WORD is none of these, as the setting of this name.
    pub fn problem(&self, setting: &str, format: &[&str]) -> Option<String> {
        let all = self.exact.iter().chain(&self.starred);
        let unknown = |name: &&String| name.split_once(':').is_some_and(|(word, _)| !format.contains(&word));
        let name = all.into_iter().find(unknown)?;
        let format: Vec<String> = format.iter().map(|word| format!("{word}:")).collect();
        Some(format!("\"{setting}\" names {name:?}: before a colon stands one of {}", format.join(", ")))
    }

    /// Whether one of them is any of these names.
    pub fn match_any<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        if self.is_all() {
            return true;
        }
        !self.is_empty() && names.into_iter().any(|name| self.matches(&name.to_lowercase()))
    }

    /// Whether they mean everything, which nobody writes by mistake.
    pub fn is_all(&self) -> bool {
        self.starred.iter().any(|pattern| pattern == "*")
    }

    /// Those without a `*`, in lower case.
    pub fn exact(&self) -> impl Iterator<Item = &str> {
        self.exact.iter().map(String::as_str)
    }

    /// Those that are none of the names that will be shown.
    pub fn unseen(&self) -> Unseen<'_> {
        Unseen { exact: self.exact().collect(), starred: self.starred.iter().map(String::as_str).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.starred.is_empty()
    }

    fn matches(&self, name: &str) -> bool {
        self.exact.contains(name) || self.starred.iter().any(|pattern| matches(pattern, name))
    }
}

/// Patterns that fit nothing so far.
pub struct Unseen<'a> {
    exact: BTreeSet<&'a str>,
    starred: Vec<&'a str>,
}

impl<'a> Unseen<'a> {
    /// Leaves out those that are this name.
    pub fn see(&mut self, name: &str) {
        if self.exact.is_empty() && self.starred.is_empty() {
            return;
        }
        let name = name.to_lowercase();
        self.exact.remove(name.as_str());
        self.starred.retain(|pattern| !matches(pattern, &name));
    }

    /// Those that are left, in lower case.
    pub fn left(self) -> impl Iterator<Item = &'a str> {
        self.exact.into_iter().chain(self.starred)
    }
}

impl From<Vec<Written>> for Patterns {
    fn from(written: Vec<Written>) -> Self {
        let text = |written| match written {
            Written::Name(name) => name,
            Written::Number(number) => number.to_string(),
        };
        written.into_iter().map(text).collect::<Vec<_>>().into()
    }
}

impl From<Vec<String>> for Patterns {
    fn from(patterns: Vec<String>) -> Self {
        let lower = patterns.into_iter().map(|pattern| pattern.trim().to_lowercase()).filter(|one| !one.is_empty());
        let (starred, exact): (Vec<String>, Vec<String>) = lower.partition(|pattern| pattern.contains('*'));
        Self { exact: exact.into_iter().collect(), starred }
    }
}

impl<const N: usize> From<[&str; N]> for Patterns {
    fn from(patterns: [&str; N]) -> Self {
        Vec::from(patterns.map(str::to_owned)).into()
    }
}

/// Whether a pattern with a `*` is a name, both in lower case.
fn matches(pattern: &str, name: &str) -> bool {
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
            (" web ", "web", true),
            ("", "", false),
            ("", "x", false),
        ] {
            assert_eq!(Patterns::from([pattern]).match_any([name]), expected, "{pattern:?} {name:?}");
        }
        assert!(!Patterns::default().match_any(["x"]));
    }

    #[test]
    fn numbers_are_names_and_words_before_a_colon_are_known() {
        let patterns: Patterns = serde_json::from_str(r#"[100, "web*", "tag:prod"]"#).expect("they are patterns");
        assert!(patterns.match_any(["100"]) && patterns.match_any(["tag:PROD"]) && !patterns.match_any(["101"]));
        assert_eq!(patterns.problem("x", &["tag", "pool"]), None);
        let wrong = Patterns::from(["tags:prod"]).problem("guests.expected", &["tag", "pool"]);
        let said = "\"guests.expected\" names \"tags:prod\": before a colon stands one of tag:, pool:";
        assert_eq!(wrong.as_deref(), Some(said));
    }

    #[test]
    fn patterns_that_fit_nothing_are_known() {
        let patterns = Patterns::from(["web", "tag:prod", "100", "db*", "x*"]);
        let mut unseen = patterns.unseen();
        for name in ["WEB", "100", "db-1", "tag:test"] {
            unseen.see(name);
        }
        assert_eq!(unseen.left().collect::<Vec<_>>(), ["tag:prod", "x*"]);
    }
}
