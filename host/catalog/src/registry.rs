//! Decides which file serves which kind. Pure: it takes the verdicts on files and their removals.
//!
//! If two files serve one kind, the file that already serves it stays, and the other is refused with a reason. If it is
//! not known which file served last, both are refused. If the new content of a file is bad, its earlier version
//! continues to serve.

use model::Kind;
use std::collections::BTreeMap;

/// A good version of a file.
#[derive(Clone, Debug)]
pub(super) struct Version<P> {
    /// The kind that the file serves.
    pub kind: Kind,
    /// The loaded plugin.
    pub plugin: P,
}

/// The result of the checks of a file.
pub(super) type Verdict<P> = Result<Version<P>, (Cause<P>, String)>;

/// All files that were checked.
#[derive(Debug)]
pub(super) struct PluginRegistry<P> {
    files: BTreeMap<String, File<P>>,
}

#[derive(Debug)]
struct File<P> {
    serving: Option<Version<P>>,
    refusal: Option<Refusal<P>>,
}

#[derive(Debug)]
struct Refusal<P> {
    reason: String,
    cause: Cause<P>,
}

/// Why a file was refused. The cause decides whether the unchanged file is checked again.
#[derive(Clone, Debug)]
pub(super) enum Cause<P> {
    /// The content is bad.
    Content,
    /// Another file serves the kind.
    Conflict(Kind),
    /// This version does not fit the targets of its kind. It waits for a configuration that fits it.
    Targets(Version<P>),
    /// The file would take over a kind that has targets, without the operator's permission.
    Trust,
    /// The checks failed for a temporary reason on this machine.
    Host,
}

impl<P> PluginRegistry<P> {
    /// Creates the registry at a start. `last` maps each kind to the file that served it last.
    pub(super) fn new(judged: Vec<(String, Verdict<P>)>, last: &BTreeMap<Kind, String>) -> Self {
        let mut registry = Self { files: BTreeMap::new() };
        let mut by_kind: BTreeMap<Kind, Vec<(String, Version<P>)>> = BTreeMap::new();
        for (name, verdict) in judged {
            match verdict {
                Ok(version) => by_kind.entry(version.kind.clone()).or_default().push((name, version)),
                Err((cause, reason)) => registry.refuse(&name, cause, reason),
            }
        }
        for (kind, files) in by_kind {
            let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
            let known = match &names[..] {
                [only] => Some(only.clone()),
                _ => last.get(&kind).filter(|file| names.contains(file)).cloned(),
            };
            for (name, version) in files {
                match &known {
                    Some(serves) if *serves == name => registry.take(&name, version),
                    Some(serves) => registry.refuse(&name, Cause::Conflict(kind.clone()), taken_by(&kind, serves)),
                    None => registry.refuse(&name, Cause::Conflict(kind.clone()), undecided(&kind, &names)),
                }
            }
        }
        registry
    }

    /// Returns the file that serves a kind.
    pub(super) fn holder(&self, kind: &Kind) -> Option<&str> {
        let serves = |file: &File<P>| file.serving.as_ref().is_some_and(|version| version.kind == *kind);
        self.files.iter().find(|(_, file)| serves(file)).map(|(name, _)| name.as_str())
    }

    /// Returns the version that a file serves.
    pub(super) fn serving(&self, name: &str) -> Option<&Version<P>> {
        self.files.get(name)?.serving.as_ref()
    }

    /// Fails with the reason if a file that serves `kind` must not be used.
    pub(super) fn may_serve(&self, name: &str, kind: &Kind) -> Result<(), String> {
        match self.holder(kind) {
            Some(holder) if holder != name => Err(taken_by(kind, holder)),
            _ => Ok(()),
        }
    }

    /// Makes a file serve with this version.
    pub(super) fn take(&mut self, name: &str, version: Version<P>) {
        self.files.insert(name.to_owned(), File { serving: Some(version), refusal: None });
    }

    /// Makes a refused file serve with an earlier version; with `None` it serves nothing.
    pub(super) fn serve_with(&mut self, name: &str, version: Option<Version<P>>) {
        if let Some(file) = self.files.get_mut(name) {
            file.serving = version;
        }
    }

    /// Returns all serving files with their versions.
    pub(super) fn all_serving(&self) -> impl Iterator<Item = (&str, &Version<P>)> {
        self.files.iter().filter_map(|(name, file)| Some((name.as_str(), file.serving.as_ref()?)))
    }

    /// Refuses the content of a file. Its earlier version, if any, continues to serve.
    pub(super) fn refuse(&mut self, name: &str, cause: Cause<P>, reason: String) {
        let file = self.files.entry(name.to_owned()).or_insert(File { serving: None, refusal: None });
        file.refusal = Some(Refusal { reason, cause });
    }

    /// Removes a file. Returns the kind that it served.
    pub(super) fn remove(&mut self, name: &str) -> Option<Kind> {
        let removed = self.files.remove(name)?;
        // Update the reasons of the files that wait for the same kind.
        for kind in self.undecided_kinds() {
            let conflicting = self.conflicting(&kind);
            for name in &conflicting {
                self.refuse(name, Cause::Conflict(kind.clone()), undecided(&kind, &conflicting));
            }
        }
        removed.serving.map(|version| version.kind)
    }

    /// Returns unchanged files that may be accepted now: the only remaining file of a kind, files that did not fit the
    /// targets, and files whose checks failed for a temporary reason.
    pub(super) fn to_judge_again(&self) -> Vec<String> {
        let again = |(name, file): (&String, &File<P>)| {
            let again = match &file.refusal.as_ref()?.cause {
                Cause::Content => false,
                Cause::Targets(_) | Cause::Trust | Cause::Host => true,
                Cause::Conflict(kind) => self.holder(kind).is_none() && self.conflicting(kind).len() == 1,
            };
            again.then(|| name.clone())
        };
        self.files.iter().filter_map(again).collect()
    }

    /// Returns all refused files, each with the reason and the earlier version that continues to serve, if any.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&str, &str, Option<&Version<P>>)> {
        self.files.iter().filter_map(|(name, file)| {
            Some((name.as_str(), file.refusal.as_ref()?.reason.as_str(), file.serving.as_ref()))
        })
    }

    /// Returns all files with a version that waits for a configuration that fits it.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (&str, &Version<P>)> {
        self.files.iter().filter_map(|(name, file)| match &file.refusal.as_ref()?.cause {
            Cause::Targets(version) => Some((name.as_str(), version)),
            _ => None,
        })
    }

    fn conflicting(&self, kind: &Kind) -> Vec<String> {
        let is_conflict = |refusal: &Refusal<P>| matches!(&refusal.cause, Cause::Conflict(of) if of == kind);
        let waits = |file: &File<P>| file.refusal.as_ref().is_some_and(is_conflict);
        self.files.iter().filter(|(_, file)| waits(file)).map(|(name, _)| name.clone()).collect()
    }

    fn undecided_kinds(&self) -> Vec<Kind> {
        let causes = self.files.values().filter_map(|file| file.refusal.as_ref()).map(|refusal| &refusal.cause);
        let mut kinds: Vec<Kind> = causes
            .filter_map(|cause| match cause {
                Cause::Conflict(kind) if self.holder(kind).is_none() => Some(kind.clone()),
                _ => None,
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }
}

fn taken_by(kind: &Kind, holder: &str) -> String {
    format!("{holder} already serves kind {kind}: remove one of them")
}

fn undecided(kind: &Kind, names: &[String]) -> String {
    format!(
        "more than one file serves kind {kind} ({}), and it is not known which one served last: keep one",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }

    fn version(name: &str, number: u32) -> Version<u32> {
        Version { kind: kind(name), plugin: number }
    }

    fn registry(files: &[(&str, Option<&str>)], last: &[(&str, &str)]) -> PluginRegistry<u32> {
        let judged = files.iter().map(|(file, of)| {
            ((*file).to_owned(), of.map(|of| version(of, 1)).ok_or_else(|| (Cause::Content, "bad".to_owned())))
        });
        let last = last.iter().map(|(of, file)| (kind(of), (*file).to_owned())).collect();
        PluginRegistry::new(judged.collect(), &last)
    }

    fn refused(registry: &PluginRegistry<u32>) -> Vec<&str> {
        registry.refused().map(|(name, _, _)| name).collect()
    }

    #[test]
    fn at_a_start_the_last_server_of_a_kind_serves_it_and_unknown_conflicts_are_refused() {
        let files = [("a", Some("x")), ("b", Some("x")), ("c", Some("y")), ("d", None)];
        let known = registry(&files, &[("x", "b")]);
        assert_eq!((known.holder(&kind("x")), known.holder(&kind("y"))), (Some("b"), Some("c")));
        assert_eq!(refused(&known), ["a", "d"]);
        let unknown = registry(&files, &[("x", "gone")]);
        assert_eq!((unknown.holder(&kind("x")), unknown.holder(&kind("y"))), (None, Some("c")));
        assert_eq!(refused(&unknown), ["a", "b", "d"]);
    }

    #[test]
    fn the_last_good_version_continues_to_serve_after_a_bad_one() {
        let mut registry = registry(&[("a", Some("x"))], &[]);
        registry.refuse("a", Cause::Content, "truncated".to_owned());
        assert_eq!(registry.holder(&kind("x")), Some("a"));
        assert_eq!(registry.refused().next().unwrap().2.unwrap().plugin, 1);
        registry.take("a", version("x", 2));
        assert_eq!((registry.serving("a").unwrap().plugin, refused(&registry).len()), (2, 0));
    }

    #[test]
    fn a_version_that_does_not_fit_the_targets_is_a_candidate() {
        let mut registry = registry(&[("a", Some("x"))], &[]);
        registry.refuse("a", Cause::Targets(version("x", 2)), "unknown key".to_owned());
        let candidates = |registry: &PluginRegistry<u32>| {
            registry.candidates().map(|(name, version)| (name.to_owned(), version.plugin)).collect::<Vec<_>>()
        };
        assert_eq!((candidates(&registry), registry.serving("a").unwrap().plugin), (vec![("a".to_owned(), 2)], 1));
        assert_eq!(registry.to_judge_again(), ["a"]);
        registry.refuse("a", Cause::Content, "truncated".to_owned());
        assert_eq!(candidates(&registry), []);
    }

    #[test]
    fn a_second_file_of_a_kind_waits_until_the_first_is_removed() {
        let mut registry = registry(&[("a", Some("x"))], &[]);
        assert!(registry.may_serve("a", &kind("x")).is_ok());
        let why = registry.may_serve("b", &kind("x")).unwrap_err();
        assert!(why.contains('a'), "{why}");
        registry.refuse("b", Cause::Conflict(kind("x")), why);
        assert!(registry.to_judge_again().is_empty());
        assert_eq!(registry.remove("a"), Some(kind("x")));
        assert_eq!(registry.to_judge_again(), ["b"]);
    }

    #[test]
    fn two_waiting_files_of_a_kind_are_refused_until_one_is_removed() {
        let mut registry = registry(&[("a", Some("x"))], &[]);
        for name in ["b", "c"] {
            registry.refuse(name, Cause::Conflict(kind("x")), "a serves".to_owned());
        }
        registry.remove("a");
        assert!(registry.to_judge_again().is_empty());
        let reason = registry.refused().next().unwrap().1.to_owned();
        assert!(reason.contains("b, c"), "{reason}");
        assert_eq!(registry.remove("c"), None);
        assert_eq!(registry.to_judge_again(), ["b"]);
    }

    #[test]
    fn a_file_that_changes_its_kind_no_longer_serves_the_old_one() {
        let mut registry = registry(&[("a", Some("x"))], &[]);
        registry.take("a", version("y", 2));
        assert_eq!((registry.holder(&kind("x")), registry.holder(&kind("y"))), (None, Some("a")));
    }
}
