//! The inventory: the dependencies of earlier reports, which are reported as unknown when they cannot be checked.
//!
//! The host calls a dependency removed if a report neither names nor keeps it. The inventory holds them by family,
//! which is the first segment of a name: `guest`.

use crate::expiring::Section;
use polliwog_sdk::{Dependency, Report, Status};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The dependencies of earlier reports.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Inventory {
    families: BTreeMap<String, Section<Family<'static>>>,
}

/// Dependencies by name.
type Family<'a> = BTreeMap<Cow<'a, str>, Identity<'a>>;

/// The identity of a dependency in addition to its name, without its state. There may be thousands, so the names are
/// short.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Identity<'a> {
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    parent: Option<Cow<'a, str>>,
}

impl Inventory {
    /// Replaces the inventory with the dependencies that a report names or keeps.
    pub(crate) fn update(&mut self, report: &Report) {
        let mut families: BTreeMap<&str, Vec<(Cow<'_, str>, Identity<'_>)>> = BTreeMap::new();
        for dependency in &report.dependencies {
            let members = families.entry(family(&dependency.name)).or_default();
            members.push((Cow::Borrowed(&dependency.name), Identity::of(dependency)));
        }
        let mut kept: BTreeMap<&str, Names<'_>> = BTreeMap::new();
        for name in &report.kept {
            kept.entry(family(name)).or_default().insert(name);
        }
        self.families.retain(|family, _| families.contains_key(family.as_str()) || kept.contains_key(family.as_str()));
        for (family, members) in families {
            // Of two members of one name, the last one stays: that of the report.
            let kept =
                kept.get(family).map(|kept| self.family(family).into_iter().filter(|(name, _)| kept.contain(name)));
            let members: Family<'_> = kept.into_iter().flatten().chain(members).collect();
            self.families.insert(family.to_owned(), Section::of(&members));
        }
    }

    /// Earlier dependencies of these names, or of these prefixes that end in `/`, as unknown for the given reasons.
    pub(crate) fn unknown(&self, lost: &[(String, String)]) -> Vec<Dependency> {
        let families: BTreeSet<&str> = lost.iter().map(|(member, _)| family(member)).collect();
        let by_name: BTreeMap<&str, &str> = lost.iter().map(|(member, why)| (member.as_str(), why.as_str())).collect();
        let prefixes: Vec<&(String, String)> = lost.iter().filter(|(member, _)| member.ends_with('/')).collect();
        let of = |(name, identity): (Cow<'_, str>, Identity<'_>)| {
            let by_prefix =
                || prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, why)| why.as_str());
            let why = by_name.get(&*name).copied().or_else(by_prefix)?.to_owned();
            Some(identity.unknown(name.into_owned(), why))
        };
        families.into_iter().flat_map(|family| self.family(family)).filter_map(of).collect()
    }

    /// The names of earlier dependencies with a prefix that ends in `/`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        self.family(family(prefix)).into_keys().filter(|name| name.starts_with(prefix)).map(Cow::into_owned).collect()
    }

    fn family(&self, family: &str) -> Family<'static> {
        self.families.get(family).map(Section::read).unwrap_or_default()
    }
}

/// Names, and prefixes that end in `/`.
#[derive(Default)]
struct Names<'a> {
    exact: BTreeSet<&'a str>,
    prefixes: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn insert(&mut self, name: &'a str) {
        if name.ends_with('/') {
            self.prefixes.push(name);
        } else {
            self.exact.insert(name);
        }
    }

    fn contain(&self, name: &str) -> bool {
        self.exact.contains(name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// The first segment of a name or prefix.
fn family(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

impl<'a> Identity<'a> {
    fn of(dependency: &'a Dependency) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        Self { kind: text(&dependency.kind), title: text(&dependency.title), parent: text(&dependency.parent) }
    }

    fn unknown(self, name: String, why: String) -> Dependency {
        let [kind, title, parent] = [self.kind, self.title, self.parent].map(|text| text.map(Cow::into_owned));
        Dependency { kind, title, parent, error_message: Some(why), ..Dependency::new(name, Status::Unknown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(names: &[&str], kept: &[&str]) -> Report {
        let mut report: Report =
            names.iter().map(|name| Dependency::ok(*name).with_title(format!("{name}!"))).collect();
        kept.iter().for_each(|kept| report.keep(*kept));
        report
    }

    #[test]
    fn kept_dependencies_stay_in_the_inventory() {
        let mut inventory = Inventory::default();
        inventory.update(&report(&["guest/1", "guest/2", "guest/3", "node/a", "ha"], &[]));
        inventory.update(&report(&["guest/1", "api"], &["guest/2", "node/"]));
        assert_eq!(inventory.names("guest/"), ["guest/1", "guest/2"]);
        assert_eq!(inventory.names("node/"), ["node/a"]);
        assert!(inventory.names("ha").is_empty(), "the last report neither names nor keeps it");
    }

    #[test]
    fn lost_dependencies_are_unknown_with_their_titles() {
        let mut inventory = Inventory::default();
        inventory.update(&report(&["guest/1", "guest/2", "guesthouse/1", "node/a"], &[]));
        let lost = [("guest/".to_owned(), "hidden".to_owned()), ("guest/2".to_owned(), "offline".to_owned())];
        let unknown = inventory.unknown(&lost);
        let found: Vec<_> = unknown
            .iter()
            .map(|found| (found.name.as_str(), found.title.as_deref(), found.error_message.as_deref()))
            .collect();
        let expected = [("guest/1", Some("guest/1!"), Some("hidden")), ("guest/2", Some("guest/2!"), Some("offline"))];
        assert_eq!(found, expected);
        assert!(unknown.iter().all(|found| found.status == Status::Unknown));
    }
}
