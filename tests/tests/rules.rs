//! Rules of the repository that no compiler checks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The walls between the rooms: who may name whom, and nobody else.
#[test]
fn rooms_name_only_whom_they_may() {
    let plugins = ["plugin-http", "plugin-mapping", "plugin-proactive-deps"];
    let mut allowed: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("model", vec![]),
        ("scheduler", vec!["model"]),
        ("egress", vec!["model"]),
        ("sandbox", vec!["model", "egress"]),
        ("store", vec!["model"]),
        // The settings types of those whose settings an operator writes.
        ("config", vec!["model", "scheduler", "egress", "sandbox", "store"]),
        ("web", vec!["model"]),
        ("demo", vec!["model"]),
        ("polliwog", vec!["model", "scheduler", "egress", "sandbox", "store", "config", "web", "demo", "builtin"]),
        ("polliwog-sdk", vec![]),
        ("plugin-build", vec![]),
        ("builtin", vec!["plugin-build"]),
        ("guests", vec!["polliwog-sdk"]),
        // What three plugins share; it sees no more of the system than they do.
        ("proxmox", vec!["polliwog-sdk"]),
    ]);
    allowed.extend(plugins.map(|plugin| (plugin, vec!["polliwog-sdk"])));
    allowed.extend(["plugin-pbs", "plugin-pmg", "plugin-pve"].map(|plugin| (plugin, vec!["polliwog-sdk", "proxmox"])));
    for (from, named) in edges() {
        // What crosses rooms may name everything.
        if from == "tests" {
            continue;
        }
        let may =
            allowed.get(from.as_str()).unwrap_or_else(|| panic!("{from} is a new room: say here whom it may name"));
        for to in named {
            assert!(may.contains(&to.as_str()), "{from} names {to}, which is a wall");
        }
    }
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

/// A reader finds every room in the code map, and nothing that is gone.
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

/// What the README shows as a newcomer's plugin is compiled as the SDK's own example; both are the same text.
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
