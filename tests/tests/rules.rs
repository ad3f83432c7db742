//! Rules of the repository that no compiler checks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "rules/builds.rs"]
mod builds;
#[path = "rules/circles.rs"]
mod circles;
#[path = "rules/language.rs"]
mod language;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Generated code.
const GENERATED: [&str; 1] = ["sdk/src/bindings.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Which workspace crates each workspace crate names, dev-dependencies aside.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let named = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().clone();
        let kept = all.into_iter().filter(|dependency| dependency["kind"] != "dev");
        let kept = kept.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
        kept.filter(|name| names.contains(name.as_str())).collect()
    };
    packages.iter().map(|package| (package["name"].as_str().unwrap().to_owned(), named(package))).collect()
}

/// The third column of ARCHITECTURE's table of crates: the crates that each crate may name.
fn documented_edges() -> BTreeMap<String, BTreeSet<String>> {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [name, _, may] = cells[..] else { return None };
        Some((words(name).first()?.trim_end_matches('/').to_owned(), words(may)))
    };
    let by_folder: BTreeMap<String, Vec<String>> =
        map.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect();
    let metadata = metadata();
    let crates = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let name = package["name"].as_str().unwrap().to_owned();
        let folder = PathBuf::from(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let folder = folder.strip_prefix(root()).unwrap().display().to_string();
        let may = by_folder.get(&folder).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {folder}"));
        (name, may.iter().cloned().collect())
    });
    crates.collect()
}

/// The edges between crates are those of ARCHITECTURE's table, no more and no fewer.
#[test]
fn crates_name_the_crates_in_the_table() {
    let documented = documented_edges();
    for (from, named) in edges() {
        // Tests that cross crates may name all of them.
        if from == "tests" {
            continue;
        }
        assert_eq!(named, documented[&from], "the crates that {from} names, and those in ARCHITECTURE.md");
    }
}

/// Engine and catalog stay below the surfaces, whatever the table says.
#[test]
fn lower_crates_do_not_name_higher_ones() {
    let edges = edges();
    for (from, to) in
        [("engine", "web"), ("catalog", "engine"), ("catalog", "config"), ("web", "engine"), ("web", "store")]
    {
        assert!(!edges[from].contains(to), "{from} names {to}");
    }
    for (from, named) in edges.iter().filter(|(from, _)| *from != "tests") {
        assert!(!named.contains("polliwog"), "{from} names polliwog");
    }
}

#[test]
fn a_poll_runs_through_optimised_crates_only() {
    assert_eq!(builds::unoptimised(&root()), Vec::<String>::new());
}

/// Otherwise a build of the tests after one of the program in the same profile would build dependencies again.
#[test]
fn the_program_and_its_tests_share_their_dependencies() {
    assert_eq!(builds::built_twice(&root()), Vec::<String>::new());
}

#[test]
fn each_crate_of_the_program_has_a_known_cost() {
    assert_eq!(builds::without_cost(&root()), Vec::<String>::new());
}

/// A project that `plugin new` makes has the SDK with another manifest.
#[test]
fn the_manifests_of_the_sdk_name_the_same_dependencies() {
    let named = |file: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let sections = text.split("\n[").filter(|section| section.lines().next().unwrap().ends_with("dependencies]"));
        let lines = sections.flat_map(|section| section.lines().skip(1)).filter(|line| line.contains('='));
        lines.map(|line| line.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
    };
    let own = named("sdk/Cargo.toml");
    assert!(own.contains("serde_json") && own.contains("regex-lite"), "{own:?}");
    assert_eq!(own, named("sdk/templates/rust/sdk.Cargo.toml"));
}

/// Otherwise `cargo test` would build empty test programs, and start rustdoc to find nothing.
#[test]
fn only_crates_with_tests_and_examples_are_built_for_them() {
    let packages_with = |marks: &[&str]| -> BTreeSet<PathBuf> {
        let is_marked = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines().any(|line| marks.iter().any(|mark| line.trim().starts_with(mark)))
        };
        let in_source = |file: &PathBuf| file.components().any(|part| part.as_os_str() == "src");
        let files = rust_files().into_iter().filter(|file| in_source(file) && is_marked(file));
        files.map(|file| file.ancestors().find(|folder| folder.join("Cargo.toml").exists()).unwrap().into()).collect()
    };
    let (tested, documented) = (packages_with(&["#[test]", "#[tokio::test"]), packages_with(&["/// ```", "//! ```"]));
    for package in metadata()["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let is_in = |packages: &BTreeSet<PathBuf>| packages.contains(manifest.parent().unwrap());
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            let what = format!("the {kind} {} of {}", target["name"], manifest.display());
            if ["lib", "bin"].contains(&kind) {
                assert_eq!(target["test"], is_in(&tested), "{what}: set test in its Cargo.toml");
            }
            if kind == "lib" {
                assert_eq!(target["doctest"], is_in(&documented), "{what}: set doctest in its Cargo.toml");
            }
        }
    }
}

/// A reader can understand the files of a crate one after the other.
#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles: Vec<String> = source_folders().iter().flat_map(|folder| circles::of(folder)).collect();
    assert_eq!(circles, Vec::<String>::new());
}

/// The folders with the sources of host crates and plugins.
fn source_folders() -> Vec<PathBuf> {
    let inner = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path().join("src"));
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let mut folders = [inner("host"), inner("plugins")].concat();
    folders.sort();
    folders
}

/// Every Rust file of the repository that people write.
fn rust_files() -> Vec<PathBuf> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !GENERATED.iter().any(|generated| path.ends_with(generated))
            {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    ["host", "plugins", "sdk", "tests"].into_iter().for_each(|folder| walk(&root().join(folder), &mut files));
    files
}

#[test]
fn files_have_at_most_500_lines() {
    for file in rust_files() {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines: split it by topic", file.display());
    }
}

/// rustfmt breaks code at this width and leaves comments as they are.
#[test]
fn comments_fit_the_width_of_the_code() {
    const WIDTH: usize = 120;
    for file in rust_files() {
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            // A table in a comment cannot be wrapped.
            let is_comment = line.trim_start().starts_with("//") && !line.contains('|') && !line.contains("http");
            let width = line.chars().count();
            assert!(!is_comment || width <= WIDTH, "{}:{} is {width} wide", file.display(), number + 1);
        }
    }
}

#[test]
fn texts_use_plain_terms() {
    assert_eq!(language::markers(&root()), Vec::<String>::new());
}

/// A reader searches for the message that a program printed.
#[test]
fn messages_quoted_in_documents_exist() {
    assert_eq!(language::invented_quotes(&root()), Vec::<String>::new());
}

/// Relative links in the documents lead to files that exist.
#[test]
fn links_in_documents_lead_somewhere() {
    let mut documents: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
            .map(|name| root().join(name))
            .into_iter()
            .chain([root().join("sdk/README.md")])
            .collect();
    for folder in ["docs", "docs/kinds"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<'])) {
            let file = target.split('#').next().unwrap();
            let path = document.parent().unwrap().join(file);
            assert!(path.exists(), "{} links to {target}, which does not exist", document.display());
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 200, "README.md has {lines} lines: move details to docs/");
}

#[test]
fn every_crate_takes_the_shared_lints_and_forbids_unsafe_code() {
    for package in metadata()["packages"].as_array().unwrap() {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{} does not take the workspace's lints",
            manifest.display()
        );
        let folder = manifest.parent().unwrap();
        let entry = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)).into_iter().find(|file| file.exists());
        let source = std::fs::read_to_string(entry.unwrap()).unwrap();
        let guarded = ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"].iter().any(|rule| source.contains(rule));
        assert!(guarded, "{} neither forbids nor denies unsafe code", folder.display());
    }
}

/// The code map lists every crate, and no folder that is gone.
#[test]
fn the_code_map_lists_what_exists() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for package in metadata()["packages"].as_array().unwrap() {
        let folder = PathBuf::from(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let folder = format!("`{}/`", folder.strip_prefix(root()).unwrap().display());
        assert!(map.contains(&folder), "ARCHITECTURE.md does not mention {folder}");
    }
    let mentioned =
        map.split('`').filter(|word| word.ends_with('/') && !word.contains(' ') && !word.starts_with(['/', '<']));
    for folder in mentioned {
        assert!(root().join(folder).is_dir(), "ARCHITECTURE.md mentions {folder}, which is not there");
    }
}

/// A second crypto provider panics at run time.
#[test]
fn there_is_one_crypto_provider() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let has = |name: &str| lock.contains(&format!("name = \"{name}\"\n"));
    assert!(has("ring"));
    for other in ["aws-lc-rs", "openssl-sys", "native-tls", "rustls-openssl"] {
        assert!(!has(other), "{other} is in Cargo.lock");
    }
}

/// The README's plugin is the SDK's example, which is compiled.
#[test]
fn the_readmes_plugin_is_one_that_is_compiled() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let sdk = std::fs::read_to_string(root().join("sdk/src/lib.rs")).unwrap();
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let documented: Vec<&str> = (sdk.lines())
        .skip_while(|line| *line != "//! ```")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//!").strip_prefix(' ').unwrap_or(""))
        .collect();
    let compiled = documented.join("\n");
    assert!(compiled.starts_with(shown.trim_end()), "the README shows\n{shown}\nand the SDK compiles\n{compiled}");
    assert!(shown.lines().count() < 30);
}
