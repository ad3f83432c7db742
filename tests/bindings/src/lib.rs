//! The files that are generated from the contract in `wit/`, and committed: the bindings of the SDK, and the page that
//! describes each item.
//!
//! `UPDATE=1 cargo test -p bindings` writes them. This package depends on nothing that the contract changes, so that it
//! builds while they are out of date.

#![forbid(unsafe_code)]
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod reference;
mod sdk;

use std::path::{Path, PathBuf};
use wit_parser::{PackageId, Resolve};

/// Returns the path of a file of the repository.
fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(of)
}

/// Reads the contract.
fn contract() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(path("wit")).unwrap();
    (resolve, package)
}

/// Compares a generated file with the committed one, or writes it.
fn check(file: &str, expected: &str) {
    let file = path(file);
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&file, expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{} is out of date: UPDATE=1 cargo test -p bindings", file.display());
}
