//! The names of dependencies in a report: made plain and unique.
//!
//! No dependency is lost for its name, because its status would be lost with it.

use super::repairs::Repairs;
use crate::host::v0_1::{poller, types};
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum length of a name in bytes.
pub(super) const NAME: usize = 256;
/// The longest name that repairs show as a whole, in characters.
const SHOWN: usize = 60;

/// Makes all names of a report plain, and merges the dependencies that then have the same one: the worst counts.
pub(super) fn repair(report: &mut poller::Report, repairs: &mut Repairs) {
    let of_samples = report.samples.iter_mut().filter_map(|sample| sample.dependency.as_mut());
    let references = report.dependencies.iter_mut().flat_map(|dependency| &mut dependency.runs_on);
    for name in references.chain(of_samples).chain(&mut report.kept).chain(&mut report.gone) {
        if let Some(plain) = plain(name) {
            *name = plain;
        }
    }
    // The names as the plugin wrote them, by position.
    let mut written = BTreeMap::new();
    for (at, dependency) in report.dependencies.iter_mut().enumerate() {
        if let Some(mut plain) = plain(&dependency.name) {
            if plain.is_empty() {
                plain = format!("item {}", at + 1);
            }
            written.insert(at, std::mem::replace(&mut dependency.name, plain));
        }
    }
    for (at, was) in &written {
        let name = &report.dependencies[*at].name;
        if was.trim() != name {
            repairs.note(format!("the name {:?} is not plain: it is shown as {:?}", short(was), short(name)));
        }
    }
    let mut seen = HashSet::with_capacity_and_hasher(report.dependencies.len(), RandomState::default());
    if report.dependencies.iter().any(|dependency| !seen.insert(dependency.name.as_str())) {
        report.dependencies = merged(std::mem::take(&mut report.dependencies), &written, repairs);
    }
}

/// Merges the dependencies with the same name: the worst takes the position of the first.
fn merged(
    dependencies: Vec<poller::Dependency>,
    written: &BTreeMap<usize, String>,
    repairs: &mut Repairs,
) -> Vec<poller::Dependency> {
    let mut place: HashMap<String, (usize, usize)> = HashMap::with_capacity(dependencies.len());
    let mut kept: Vec<poller::Dependency> = Vec::with_capacity(dependencies.len());
    for (at, dependency) in dependencies.into_iter().enumerate() {
        let Some((index, first)) = place.get(&dependency.name) else {
            place.insert(dependency.name.clone(), (kept.len(), at));
            kept.push(dependency);
            continue;
        };
        let known = &mut kept[*index];
        let of = |at: &usize| short(written.get(at).unwrap_or(&dependency.name));
        let names = match (of(first), of(&at)) {
            (first, second) if first == second => format!("{first:?} is reported more than once"),
            (first, second) => format!("{first:?} and {second:?} are one name"),
        };
        let (before, now) = (word(known), word(&dependency));
        let verdict = if before == now { format!("both are {now}") } else { "the worse counts".to_owned() };
        repairs.note(format!("{names}, as {before} and as {now}: {verdict}"));
        if badness(&dependency) >= badness(known) {
            *known = dependency;
        }
    }
    kept
}

/// How bad a dependency is: critical, unknown, warning, ok, skipped.
fn badness(dependency: &poller::Dependency) -> u8 {
    match dependency.status {
        _ if is_skipped(dependency) => 0,
        types::Status::Ok => 1,
        types::Status::Warning => 2,
        types::Status::Unknown => 3,
        types::Status::Critical => 4,
    }
}

fn word(dependency: &poller::Dependency) -> &'static str {
    match dependency.status {
        _ if is_skipped(dependency) => "skipped",
        types::Status::Ok => "ok",
        types::Status::Warning => "warning",
        types::Status::Unknown => "unknown",
        types::Status::Critical => "critical",
    }
}

fn is_skipped(dependency: &poller::Dependency) -> bool {
    dependency.flags.contains(poller::DependencyFlags::SKIPPED)
}

/// Characters that join others, as emoji and some scripts need them. They mean nothing at the ends of a name.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// Returns the plain form of a name; `None` if it is plain already. Invisible characters are removed, control
/// characters are replaced by spaces, and spaces and joiners around it are removed. A long name is cut, and the hash of
/// the whole is added, so that two long names with the same beginning stay different. The plain form of a plain name
/// is the name itself.
fn plain(name: &str) -> Option<String> {
    let is_ascii = name.len() <= NAME && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_ascii && !name.is_empty() && !name.starts_with(' ') && !name.ends_with(' ') {
        return None;
    }
    let visible = name.chars().filter(|c| !model::is_invisible(*c));
    let spaced: String = visible.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut plain = spaced.trim_matches(|c: char| c.is_whitespace() || JOINERS.contains(&c)).to_owned();
    if plain.len() > NAME {
        let hash = model::hex(&Sha256::digest(&plain)[..4]);
        let end = (0..=NAME - "… ".len() - hash.len()).rev().find(|at| plain.is_char_boundary(*at)).unwrap_or(0);
        plain.truncate(end);
        plain = format!("{plain}… {hash}");
    }
    Some(plain).filter(|plain| plain.is_empty() || plain != name)
}

/// Beginning and end of a name for a repair. Unlike other texts, it keeps odd characters: they are what is wrong.
fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= SHOWN {
        return name.to_owned();
    }
    let (head, tail) = (name.chars().take(SHOWN * 2 / 3), name.chars().skip(count - SHOWN / 4));
    head.chain(['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests;
