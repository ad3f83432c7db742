//! What was reported, so that it can be said to be unknown when nobody can look at it any more.
//!
//! A plugin begins each poll anew, and what it does not name the host calls missing, as if somebody had removed it.
//! Dependencies are remembered by family, which is what their names begin with: `guest`.

use crate::memory::{LONG, remember, remembered};
use polliwog_sdk::{Dependency, Report, Status, cache};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

const MARKS: &str = "roll";

/// What of a dependency does not depend on how it is: name, kind, title, parent. There may be thousands, so that it is short.
#[derive(Debug, Deserialize, Serialize)]
struct Entry(String, Option<String>, Option<String>, Option<String>);

/// A hash of each family's entries, and when they were written, in milliseconds since 1970: what has not changed is not
/// written again for a while.
type Marks = BTreeMap<String, (u64, u64)>;
/// The host may have dropped it for want of room.
const AGAIN: u64 = 60 * 60 * 1000;

/// Remembers what a report names, and what it keeps that was known before.
pub(crate) fn remember_all(report: &Report, now: u64) {
    let before: Marks = remembered(MARKS);
    let mut families: BTreeMap<&str, Vec<&Dependency>> = BTreeMap::new();
    for dependency in &report.dependencies {
        families.entry(family(&dependency.name)).or_default().push(dependency);
    }
    let kept = |family: &str| {
        report.kept.iter().filter(|kept| self::family(kept) == family).map(String::as_str).collect::<Vec<_>>()
    };
    let mut marks: Marks = before.clone();
    for gone in before.keys().filter(|family| !families.contains_key(family.as_str()) && kept(family).is_empty()) {
        cache::remove(&key(gone));
        marks.remove(gone);
    }
    for (family, members) in families {
        let kept = kept(family);
        let mark = mark(&members, &kept);
        if before.get(family).is_some_and(|(known, at)| *known == mark && (*at..*at + AGAIN).contains(&now)) {
            continue;
        }
        let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
        let stands = |entry: &Entry| !names.contains(entry.0.as_str()) && kept.iter().any(|kept| entry.is(kept));
        let before = if kept.is_empty() { Vec::new() } else { family_of(family) };
        let entries: Vec<Entry> =
            members.iter().map(|member| Entry::of(member)).chain(before.into_iter().filter(stands)).collect();
        if remember(&key(family), &entries, LONG) {
            marks.insert(family.to_owned(), (mark, now));
        } else {
            marks.remove(family);
        }
    }
    if marks != before {
        remember(MARKS, &marks, LONG);
    }
}

/// Those of these names, or prefixes that end in `/`, that were reported before: unknown, for these reasons.
pub(crate) fn unknown(lost: &[(String, String)]) -> Vec<Dependency> {
    let families: BTreeSet<&str> = lost.iter().map(|(member, _)| family(member)).collect();
    let by_name: BTreeMap<&str, &str> = lost.iter().map(|(member, why)| (member.as_str(), why.as_str())).collect();
    let prefixes: Vec<&(String, String)> = lost.iter().filter(|(member, _)| member.ends_with('/')).collect();
    let of = |entry: Entry| {
        let by_prefix = || prefixes.iter().find(|(prefix, _)| entry.is(prefix)).map(|(_, why)| why.as_str());
        let why = by_name.get(entry.0.as_str()).copied().or_else(by_prefix)?.to_owned();
        Some(entry.unknown(why))
    };
    families.into_iter().flat_map(family_of).filter_map(of).collect()
}

/// The names under a prefix that were reported before.
pub(crate) fn names(prefix: &str) -> Vec<String> {
    family_of(family(prefix)).into_iter().filter(|entry| entry.is(prefix)).map(|entry| entry.0).collect()
}

/// What a name, or a prefix, begins with.
fn family(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

fn family_of(family: &str) -> Vec<Entry> {
    remembered(&key(family))
}

fn key(family: &str) -> String {
    format!("roll/{family}")
}

/// In any order: Proxmox lists things in another one each time.
fn mark(members: &[&Dependency], kept: &[&str]) -> u64 {
    let kept = kept.iter().fold(0_u64, |sum, kept| {
        let mut hasher = DefaultHasher::new();
        kept.hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    });
    members.iter().fold(kept, |sum, Dependency { name, kind, title, parent, .. }| {
        let mut hasher = DefaultHasher::new();
        (name, kind, title, parent).hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    })
}

impl Entry {
    fn of(Dependency { name, kind, title, parent, .. }: &Dependency) -> Self {
        Self(name.clone(), kind.clone(), title.clone(), parent.clone())
    }

    /// Whether it is the one of this name, or of this prefix, which ends in `/`.
    fn is(&self, member: &str) -> bool {
        self.0 == member || member.ends_with('/') && self.0.starts_with(member)
    }

    fn unknown(self, why: String) -> Dependency {
        let Self(name, kind, title, parent) = self;
        Dependency { kind, title, parent, error_message: Some(why), ..Dependency::new(name, Status::Unknown) }
    }
}
