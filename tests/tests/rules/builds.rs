//! Builds: what is optimised, what is built twice, and what is in the table of costs.
//!
//! The profile `release` optimises what a poll runs through. Everything else is compiled as cheaply as possible, so a
//! crate that is missing in the list would make each poll slower without a word.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The crates of this repository that a poll runs through.
const ROOTS: [&str; 8] = ["egress", "engine", "metrics", "model", "notify", "sandbox", "scheduler", "store"];
/// Dependencies of these crates that may have another level than [`FAST`], each with the reason. What only they use is
/// not searched.
const COLD: [(&str, &str); 32] = [
    ("addr2line", "finds the lines of a trap"),
    ("catalog", "runs when a plugin file changes"),
    ("config", "runs when the configuration changes"),
    ("cranelift-codegen", "compiles plugins"),
    ("data-encoding", "writes a signature in hex digits"),
    ("encoding_rs", "finds the functions of a trap"),
    ("gimli", "finds the lines of a trap"),
    ("http-auth", "answers a challenge for a password"),
    ("icu_locale_core", "names of locales, which names of hosts do not use"),
    ("jiff", "runs when a silence begins or ends"),
    ("libm", "only for a CPU without the instructions"),
    ("libsqlite3-sys", "C code; its level is set by measuring"),
    ("machine-code", "compiles plugins"),
    ("mail", "sends email"),
    ("object", "reads compiled plugins when they are loaded"),
    ("pulley-interpreter", "is linked and does not run: plugins are machine code"),
    ("rayon", "compiles plugins"),
    ("regex", "checks settings and secrets when they change"),
    ("rusqlite_migration", "runs when the database is opened"),
    ("rustls-native-certs", "runs at the start"),
    ("schema", "checks settings when they change"),
    ("sd-notify", "runs at the start and on a timer of systemd"),
    ("semver", "runs at the start, and compares versions of interfaces"),
    ("target-lexicon", "runs at the start"),
    ("tempfile", "runs when a plugin is compiled"),
    ("thiserror", "only errors"),
    ("wasmparser", "reads plugins when they are compiled"),
    ("wasmtime-environ", "a poll looks up functions and types: fast enough at \"z\", not at 0"),
    ("wasmtime-internal-component-util", "only names of types"),
    ("wasmtime-internal-cranelift", "compiles plugins"),
    ("wasmtime-wasi", "a poll calls it a few times at most"),
    ("x509-parser", "runs once for each TLS connection"),
];

/// The level of optimisation for what a poll runs through.
const FAST: &str = "3";

/// The lines of `cargo tree`.
fn tree(root: &Path, arguments: &[&str]) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--offline", "--no-dedupe"]).args(arguments).current_dir(root);
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The dependencies of [`ROOTS`] on this platform, without those of [`COLD`], and the entries of [`COLD`] that are
/// among the dependencies.
fn dependencies(root: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut arguments = vec!["--edges", "normal,no-proc-macro", "--prefix", "depth"];
    arguments.extend(ROOTS.iter().flat_map(|name| ["-p", name]));
    let (mut hot, mut cold, mut skipped) = (BTreeSet::new(), BTreeSet::new(), usize::MAX);
    for line in tree(root, &arguments) {
        let name = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let depth: usize = line[..line.len() - name.len()].parse().unwrap();
        let name = name.split(' ').next().unwrap();
        if depth > skipped {
            continue;
        }
        let is_cold = COLD.iter().any(|(cold, _)| *cold == name);
        skipped = if is_cold { depth } else { usize::MAX };
        let _ = if is_cold { cold.insert(name.to_owned()) } else { hot.insert(name.to_owned()) };
    }
    (hot, cold)
}

/// The optimisation level of each package in a section of the workspace's manifest.
fn levels(manifest: &str, section: &str) -> BTreeMap<String, String> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.starts_with('['));
    let entry = |line: &str| {
        let (name, settings) = line.split_once(" = { opt-level = ")?;
        Some((name.to_owned(), settings.split([',', ' ']).next()?.to_owned()))
    };
    lines.filter_map(entry).collect()
}

/// Returns the problems of the levels of the profile `release`.
pub(crate) fn unoptimised(root: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap();
    let levels = levels(&manifest, "[profile.release.package]");
    let (hot, cold) = dependencies(root);
    let is_fast = |name: &&String| levels.get(*name).is_some_and(|level| level == FAST);
    let slow = hot.iter().filter(|name| !is_fast(name)).map(|name| {
        format!(
            "a poll runs through {name}: give it opt-level = 3 in [profile.release.package] of Cargo.toml, or name it in \
             COLD of tests/tests/rules/builds.rs with the reason why not"
        )
    });
    let stale =
        COLD.iter().filter(|(name, _)| !cold.contains(*name)).map(|(name, _)| format!("COLD names {name} in vain"));
    let unknown = levels.keys().filter(|name| !lock.contains(&format!("\nname = \"{name}\"\n")));
    slow.chain(stale)
        .chain(unknown.map(|name| format!("the profile names {name}, which is not in Cargo.lock")))
        .collect()
}

/// Packages whose features differ between the program and the workspace with its tests. Each would be built twice for
/// both, with all packages that depend on it.
pub(crate) fn built_twice(root: &Path) -> Vec<String> {
    let features = |arguments: &[&str]| -> BTreeMap<String, String> {
        let lines = tree(root, &[arguments, &["--prefix", "none", "--format", "{p}|{f}"]].concat());
        let entry = |line: &String| {
            let (package, features) = line.trim_end_matches(" (*)").split_once('|').unwrap();
            (package.to_owned(), features.to_owned())
        };
        lines.iter().map(entry).collect()
    };
    let tests = features(&["--workspace", "--edges", "normal,build,dev"]);
    let program = features(&["-p", "polliwog", "--edges", "normal,build"]);
    let differ =
        program.iter().filter(|(package, features)| tests.get(*package).is_some_and(|tests| tests != *features));
    differ
        .map(|(package, features)| format!("{package}: {features} without the tests, {} with them", tests[package]))
        .collect()
}

/// Packages of the program that are not in the table of costs.
pub(crate) fn without_cost(root: &Path) -> Vec<String> {
    let table = std::fs::read_to_string(root.join("tests/build-cost.tsv")).unwrap();
    let known: BTreeSet<&str> = table.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    let packages = tree(root, &["-p", "polliwog", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let names: BTreeSet<&str> = packages.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let unknown = names.into_iter().filter(|name| !known.contains(name));
    unknown
        .map(|name| format!("{name} is not in tests/build-cost.tsv: see CONTRIBUTING.md, \"The cost of a build\""))
        .collect()
}

#[test]
fn levels_are_read_from_their_section() {
    let manifest = "[a]\nx = { opt-level = 1 }\n[b]\n# Why.\ny = { opt-level = 3, codegen-units = 1 }\nz = { opt-level = \"z\" }\n[c]\n";
    let expected = [("y", "3"), ("z", "\"z\"")].map(|(name, level)| (name.to_owned(), level.to_owned()));
    assert_eq!(levels(manifest, "[b]"), BTreeMap::from(expected));
}
