//! The targets that depend on a dependency or target, directly or through others.

use model::TargetState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A target that depends on something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dependant<'a> {
    pub target: &'a TargetState,
    /// The target that it depends on, and that depends on the thing; `None` if it depends on the thing itself.
    pub through: Option<&'a TargetState>,
}

/// Returns the targets that depend on what has one of these names, nearest first. A name is the id of a target, or the
/// canonical or reported name of a dependency. A target depends on another if it reports a dependency whose canonical
/// name is the other's id.
pub(crate) fn dependants<'a>(targets: &'a [Arc<TargetState>], names: &[&str]) -> Vec<Dependant<'a>> {
    let mut reporters: HashMap<&str, Vec<&'a TargetState>> = HashMap::new();
    for target in targets {
        for dependency in target.observed.dependencies.iter() {
            let record = &dependency.record;
            if let Some(canonical) = record.canonical.as_deref() {
                reporters.entry(canonical).or_default().push(target);
            } else if names.contains(&record.reported.name.as_str()) {
                reporters.entry(&record.reported.name).or_default().push(target);
            }
        }
    }
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    // The thing itself is not among them, even in a circle.
    known.extend(names.iter().copied());
    let mut queue: VecDeque<(&str, Option<&'a TargetState>)> = names.iter().map(|name| (*name, None)).collect();
    while let Some((name, through)) = queue.pop_front() {
        for target in reporters.get(name).into_iter().flatten() {
            if known.insert(target.info.id.as_str()) {
                found.push(Dependant { target, through });
                queue.push_back((target.info.id.as_str(), Some(target)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use model::Status;

    #[test]
    fn dependants_are_found_through_targets_and_circles_end() {
        let on = |name: &str, canonical: &[&str]| {
            Arc::new(with(target(name), |observed| {
                let all = (canonical.iter()).map(|canonical| {
                    let mut found = dependency(&format!("the {canonical}"), Status::Ok);
                    Arc::make_mut(&mut found.record).canonical = Some((*canonical).to_owned());
                    found
                });
                observed.dependencies = Arc::new(all.collect());
            }))
        };
        let all = [on("shop", &["postgres", "gateway"]), on("gateway", &["shop", "vault"]), on("portal", &["gateway"])];
        let found = |names: &[&str]| -> Vec<(String, Option<String>)> {
            let name = |target: &TargetState| target.info.id.to_string();
            dependants(&all, names).iter().map(|found| (name(found.target), found.through.map(name))).collect()
        };
        let direct = |name: &str| (name.to_owned(), None);
        let through = |name: &str, other: &str| (name.to_owned(), Some(other.to_owned()));
        assert_eq!(found(&["postgres"]), [direct("shop"), through("gateway", "shop"), through("portal", "gateway")]);
        assert_eq!(found(&["shop"]), [direct("gateway"), through("portal", "gateway")]);
        assert_eq!(found(&["vault"]), [direct("gateway"), through("shop", "gateway"), through("portal", "gateway")]);
        assert!(found(&["portal"]).is_empty() && found(&["unknown"]).is_empty());
    }
}
