//! Names in settings.

use crate::setting::problem_of;
use polliwog_sdk::{Report, SettingsProblem};
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Names, each in full or with `*` for any text. Case does not matter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(from = "Vec<Written>")]
#[schemars(with = "Vec<Written>")]
pub struct Patterns {
    /// Names in full, in lower case. There may be as many as there are guests.
    exact: BTreeSet<String>,
    /// Names with a `*`, in lower case.
    starred: Vec<String>,
}

/// A name, or the ID of a guest, as people write it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Name(String),
    Number(u32),
}

impl Patterns {
    /// Returns a problem if a name begins with `WORD:` and the word is unknown. `setting` is the name of the setting.
    pub fn problem(&self, setting: &str, words: &[&str]) -> Option<SettingsProblem> {
        let all = self.exact.iter().chain(&self.starred);
        let unknown = |name: &&String| name.split_once(':').is_some_and(|(word, _)| !words.contains(&word));
        let name = all.into_iter().find(unknown)?;
        let words: Vec<String> = words.iter().map(|word| format!("{word}:")).collect();
        let message = format!("it names {name:?}: the word before the colon must be one of {}", words.join(", "));
        Some(problem_of(setting, message))
    }

    /// Whether any pattern matches any of these names.
    pub fn match_any<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.for_every_name().unwrap_or_else(|| names.into_iter().any(|name| self.matches(&lower(name))))
    }

    /// The result of [`Patterns::match_any`] for every name: true with `*`, false without patterns. `None` if it
    /// depends on the name.
    pub fn for_every_name(&self) -> Option<bool> {
        if self.is_all() { Some(true) } else { self.is_empty().then_some(false) }
    }

    /// Whether a pattern matches everything.
    pub fn is_all(&self) -> bool {
        self.starred.iter().any(|pattern| pattern == "*")
    }

    /// The names without a `*`, in lower case.
    pub fn exact(&self) -> impl Iterator<Item = &str> {
        self.exact.iter().map(String::as_str)
    }

    /// Returns all patterns, to find those that match nothing.
    pub fn unseen(&self) -> Unseen<'_> {
        Unseen { exact: self.exact().collect(), starred: self.starred.iter().map(String::as_str).collect() }
    }

    /// Whether any pattern may match a name that begins like this.
    fn may_match(&self, beginning: &str) -> bool {
        self.exact.iter().any(|name| name.starts_with(beginning))
            || self.starred.iter().filter_map(|pattern| pattern.split('*').next()).any(|known| {
                let shorter = known.len().min(beginning.len());
                known.as_bytes()[..shorter] == beginning.as_bytes()[..shorter]
            })
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.starred.is_empty()
    }

    fn matches(&self, name: &str) -> bool {
        self.exact.contains(name) || self.starred.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether the settings select an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// It is checked.
    Wanted,
    /// It is not.
    Excluded,
    /// No known name is included, and one that is not known now may be.
    Unsure,
}

impl Selection {
    /// Returns whether any of these names is included and none is excluded. `unknown` are the beginnings of names that
    /// are not known now: `comment:`, or an empty one for any name.
    pub fn of<'a, I: IntoIterator<Item = &'a str>>(
        names: impl Fn() -> I,
        (include, exclude): (&Patterns, &Patterns),
        unknown: &[&str],
    ) -> Self {
        if exclude.match_any(names()) {
            return Self::Excluded;
        }
        if include.match_any(names()) {
            return Self::Wanted;
        }
        if unknown.iter().any(|beginning| include.may_match(beginning)) { Self::Unsure } else { Self::Excluded }
    }

    /// Returns whether the object is checked. If it is not, the report says what became of its dependency.
    pub fn is_wanted(self, report: &mut Report, name: impl FnOnce() -> String) -> bool {
        match self {
            Self::Wanted => {}
            Self::Excluded => report.remove(name()),
            Self::Unsure => report.keep(name()),
        }
        self == Self::Wanted
    }
}

/// Patterns that have matched nothing so far.
pub struct Unseen<'a> {
    exact: BTreeSet<&'a str>,
    starred: Vec<&'a str>,
}

impl<'a> Unseen<'a> {
    /// Removes the patterns that match this name.
    pub fn see(&mut self, name: &str) {
        if self.exact.is_empty() && self.starred.is_empty() {
            return;
        }
        let name = lower(name);
        self.exact.remove(&*name);
        self.starred.retain(|pattern| !matches(pattern, &name));
    }

    /// Returns the remaining patterns, in lower case.
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

/// A name in lower case. There may be thousands, and most are.
fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.to_lowercase())
    }
}

/// Whether a pattern with a `*` matches a name. Both are in lower case.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The first match leaves most of the name for the parts after it.
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
    fn an_object_is_excluded_only_if_its_unknown_names_cannot_be_included() {
        let patterns =
            |written: &[&str]| Patterns::from(written.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (include, exclude, unknown, expected) in [
            (&["*"][..], &[][..], &[""][..], Selection::Wanted),
            (&["100"], &[], &[""], Selection::Wanted),
            (&["web-*"], &[], &[""], Selection::Unsure),
            (&["web-*"], &[], &[], Selection::Excluded),
            (&["web-*"], &["100"], &[""], Selection::Excluded),
            (&["*"], &["100"], &[""], Selection::Excluded),
            (&["vm/*"], &[], &["comment:"], Selection::Excluded),
            (&["comment:prod*"], &[], &["comment:"], Selection::Unsure),
            (&["com*"], &[], &["comment:"], Selection::Unsure),
            (&["comment:prod"], &[], &["comment:"], Selection::Unsure),
            (&["ns:weekly"], &[], &["comment:", "owner:"], Selection::Excluded),
        ] {
            let (included, excluded) = (patterns(include), patterns(exclude));
            let selection = Selection::of(|| ["100"], (&included, &excluded), unknown);
            assert_eq!(selection, expected, "{include:?} {exclude:?} {unknown:?}");
        }
    }

    #[test]
    fn a_star_matches_any_text() {
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
    fn names_are_needed_unless_all_or_none_match() {
        for (patterns, expected) in [
            (Patterns::default(), Some(false)),
            (Patterns::from(["*"]), Some(true)),
            (Patterns::from(["x", "*"]), Some(true)),
            (Patterns::from(["x"]), None),
            (Patterns::from(["x*"]), None),
        ] {
            assert_eq!(patterns.for_every_name(), expected, "{patterns:?}");
        }
    }

    #[test]
    fn ids_are_names_and_unknown_words_before_a_colon_are_problems() {
        let patterns: Patterns = serde_json::from_str(r#"[100, "web*", "tag:prod"]"#).expect("they are patterns");
        assert!(patterns.match_any(["100"]) && patterns.match_any(["tag:PROD"]) && !patterns.match_any(["101"]));
        assert_eq!(patterns.problem("x", &["tag", "pool"]), None);
        let wrong = Patterns::from(["tags:prod"]).problem("guests.expected", &["tag", "pool"]);
        let said = "guests.expected: it names \"tags:prod\": the word before the colon must be one of tag:, pool:";
        assert_eq!(wrong.expect("it is a problem").sentence(), said);
    }

    #[test]
    fn patterns_that_match_nothing_are_found() {
        let patterns = Patterns::from(["web", "tag:prod", "100", "db*", "x*"]);
        let mut unseen = patterns.unseen();
        for name in ["WEB", "100", "db-1", "tag:test"] {
            unseen.see(name);
        }
        assert_eq!(unseen.left().collect::<Vec<_>>(), ["tag:prod", "x*"]);
    }
}
