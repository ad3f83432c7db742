//! The inventory: the dependencies of earlier reports, which are reported as unknown when they cannot be checked.
//!
//! The host calls a dependency removed if a report neither names nor keeps it. The inventory holds them by family,
//! which is the first segment of a name: `guest`.

use crate::sections::Sections;
use crate::sorted_map::SortedMap;
use polliwog_sdk::{Dependency, Report, Status};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How often a section is written although it has not changed: the host removes those that were not used for longest if
/// it has no room. Milliseconds.
const RENEWED: u64 = 5 * 60 * 1000;

/// The families of earlier reports. Their dependencies are in sections.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Inventory {
    families: SortedMap<String, Written>,
}

/// The content of a family's section in short, and when it was written.
#[derive(Debug, Deserialize, Serialize)]
struct Written {
    /// The sum of the hashes of the family's dependencies: independent of their order, which can change.
    #[serde(rename = "d")]
    digest: u64,
    /// Milliseconds since 1970.
    #[serde(rename = "w")]
    at: u64,
}

/// Dependencies by name.
type Family<'a> = SortedMap<Cow<'a, str>, Identity<'a>>;

/// The identity of a dependency in addition to its name, without its state. There may be thousands, so the names are
/// short.
#[derive(Debug, Default, Hash, Deserialize, Serialize)]
struct Identity<'a> {
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    runs_on: Vec<Cow<'a, str>>,
}

impl Inventory {
    /// Replaces the inventory with the dependencies that a report names or keeps.
    pub(crate) fn update(&mut self, report: &Report, sections: &mut Sections, now: u64) {
        let mut families: SortedMap<&str, Vec<(Cow<'_, str>, Identity<'_>)>> = SortedMap::new();
        for dependency in &report.dependencies {
            let members = families.get_or_default(family(&dependency.name));
            members.push((Cow::Borrowed(&dependency.name), Identity::of(dependency)));
        }
        let mut kept: SortedMap<&str, Names<'_>> = SortedMap::new();
        for name in &report.kept {
            kept.get_or_default(family(name)).insert(name);
        }
        let mut excluded = Names::default();
        report.gone.iter().for_each(|name| excluded.insert(name));
        let stays = |name: &str| families.contains_key(name) || kept.contains_key(name);
        let gone: Vec<String> = self.families.keys().filter(|name| !stays(name)).cloned().collect();
        for family in gone {
            self.families.remove(&family);
            sections.remove(&key(&family));
        }
        for (family, mut members) in families {
            if let Some(kept) = kept.get(family) {
                // Of two members of one name, the last one stays: that of the report.
                let known = self
                    .family(family, sections)
                    .into_iter()
                    .filter(|(name, _)| kept.contain(name) && !excluded.contain(name));
                members = known.chain(members).collect::<Family<'_>>().into_iter().collect();
            }
            let digest = digest(&members);
            let stands = |known: &Written| known.digest == digest && (known.at..known.at + RENEWED).contains(&now);
            if !self.families.get(family).is_some_and(stands) {
                sections.set(key(family), &members.into_iter().collect::<Family<'_>>());
                self.families.insert(family.to_owned(), Written { digest, at: now });
            }
        }
    }

    /// Forgets all dependencies. Returns whether there were any.
    pub(crate) fn clear(&mut self, sections: &mut Sections) -> bool {
        let families = std::mem::take(&mut self.families);
        families.keys().for_each(|family| {
            sections.remove(&key(family));
        });
        !families.is_empty()
    }

    /// Earlier dependencies of these names, or of these prefixes that end in `/`, as unknown for the given reasons.
    pub(crate) fn unknown(&self, lost: &[(String, String)], sections: &Sections) -> Vec<Dependency> {
        let families: BTreeSet<&str> = lost.iter().map(|(member, _)| family(member)).collect();
        let by_name: SortedMap<&str, &str> = lost.iter().map(|(member, why)| (member.as_str(), why.as_str())).collect();
        let prefixes: Vec<&(String, String)> = lost.iter().filter(|(member, _)| member.ends_with('/')).collect();
        let of = |(name, identity): (Cow<'_, str>, Identity<'_>)| {
            let by_prefix =
                || prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, why)| why.as_str());
            let why = by_name.get(&*name).copied().or_else(by_prefix)?.to_owned();
            Some(identity.unknown(name.into_owned(), why))
        };
        families.into_iter().flat_map(|family| self.family(family, sections)).filter_map(of).collect()
    }

    /// The names of earlier dependencies with a prefix that ends in `/`.
    pub(crate) fn names(&self, prefix: &str, sections: &Sections) -> Vec<String> {
        self.family(family(prefix), sections)
            .into_keys()
            .filter(|name| name.starts_with(prefix))
            .map(Cow::into_owned)
            .collect()
    }

    fn family(&self, family: &str, sections: &Sections) -> Family<'static> {
        if self.families.contains_key(family) { sections.get(&key(family)) } else { Family::default() }
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

/// Returns the key of a family's section.
fn key(family: &str) -> String {
    format!("inventory/{family}")
}

fn digest(members: &[(Cow<'_, str>, Identity<'_>)]) -> u64 {
    members.iter().fold(0, |sum: u64, member| {
        let mut hasher = DefaultHasher::new();
        member.hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    })
}

impl<'a> Identity<'a> {
    fn of(dependency: &'a Dependency) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        let runs_on = dependency.runs_on.iter().map(|name| Cow::Borrowed(name.as_str())).collect();
        Self { kind: text(&dependency.kind), title: text(&dependency.title), runs_on }
    }

    fn unknown(self, name: String, why: String) -> Dependency {
        let [kind, title] = [self.kind, self.title].map(|text| text.map(Cow::into_owned));
        let runs_on = self.runs_on.into_iter().map(Cow::into_owned).collect();
        Dependency { kind, title, runs_on, error_message: Some(why), ..Dependency::new(name, Status::Unknown) }
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
        let (mut inventory, mut sections) = (Inventory::default(), Sections::default());
        inventory.update(&report(&["guest/1", "guest/2", "guest/3", "node/a", "ha"], &[]), &mut sections, 0);
        inventory.update(&report(&["guest/1", "api"], &["guest/2", "node/"]), &mut sections, 1);
        let names = |prefix: &str| inventory.names(prefix, &sections);
        assert_eq!(names("guest/"), ["guest/1", "guest/2"]);
        assert_eq!(names("node/"), ["node/a"]);
        assert!(names("ha").is_empty(), "the last report neither names nor keeps it");
    }

    #[test]
    fn a_section_is_written_when_it_changes_and_every_five_minutes() {
        let (mut inventory, mut sections) = (Inventory::default(), Sections::default());
        let mut update = |names: &[&str], kept: &[&str], now: u64| {
            inventory.update(&report(names, kept), &mut sections, now);
            inventory.families["guest"].at == now
        };
        for (names, kept, now, written) in [
            (&["guest/1", "guest/2"][..], &[][..], 1, true),
            (&["guest/2", "guest/1"], &[], 2, false),
            (&["guest/1"], &["guest/2"], 3, false),
            (&["guest/1"], &[], 4, true),
            (&["guest/1"], &[], 3 + RENEWED, false),
            (&["guest/1"], &[], 4 + RENEWED, true),
            (&["guest/1"], &[], 2, true),
        ] {
            assert_eq!(update(names, kept, now), written, "{names:?} at {now}");
        }
    }

    #[test]
    fn lost_dependencies_are_unknown_with_their_titles() {
        let (mut inventory, mut sections) = (Inventory::default(), Sections::default());
        inventory.update(&report(&["guest/1", "guest/2", "guesthouse/1", "node/a"], &[]), &mut sections, 0);
        let lost = [("guest/".to_owned(), "hidden".to_owned()), ("guest/2".to_owned(), "offline".to_owned())];
        let unknown = inventory.unknown(&lost, &sections);
        let found: Vec<_> = unknown
            .iter()
            .map(|found| (found.name.as_str(), found.title.as_deref(), found.error_message.as_deref()))
            .collect();
        let expected = [("guest/1", Some("guest/1!"), Some("hidden")), ("guest/2", Some("guest/2!"), Some("offline"))];
        assert_eq!(found, expected);
        assert!(unknown.iter().all(|found| found.status == Status::Unknown));
    }
}
