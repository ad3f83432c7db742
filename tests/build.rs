//! Compiles the guests and lists them for the tests.

use plugin_build::{Components, build, write};
use std::fmt::Write;
use std::path::PathBuf;

/// The guests that are written as text, with their files.
fn texts() -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed=guests/wat");
    let folder = std::fs::canonicalize("guests/wat").expect("the guests are there");
    let mut texts: Vec<(String, PathBuf)> = std::fs::read_dir(folder)
        .expect("the guests are there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
        .collect();
    texts.sort();
    texts
}

/// A macro that calls another one with every guest: what is made of them names each, or does not compile.
fn each(compiled: &[&str], texts: &[(String, PathBuf)]) -> String {
    let mut all = String::from("macro_rules! each_guest {\n    ($call:ident) => {\n        $call! {\n");
    for name in compiled {
        let word = name.replace('-', "_");
        all.push_str(&format!("            {word} {name:?} compiled(guests::{});\n", word.to_uppercase()));
    }
    for (name, _) in texts {
        let word = name.replace('-', "_");
        all.push_str(&format!("            {word} {name:?} written(guests::{}_TEXT);\n", word.to_uppercase()));
    }
    all.push_str("        }\n    };\n}\npub(crate) use each_guest;\n");
    all
}

fn main() {
    let mut names: Vec<String> = std::fs::read_dir("guests/examples")
        .expect("the guests are there")
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let texts = texts();
    let mut list = String::new();
    let guests = Components::Examples { folder: "tests/guests", features: "component", noun: "guests", names: &names };
    for (name, file) in build("..", &guests, &["tests/guests"]) {
        let constant = name.replace('-', "_").to_uppercase();
        writeln!(list, "/// The guest `{name}`.\npub const {constant}: &[u8] = include_bytes!({file:?});")
            .expect("writing to a string never fails");
    }
    let examples = ["counter", "log_in", "notifier", "queue_depth", "signed_webhook"];
    let examples = Components::Examples { folder: "sdk", features: "", noun: "examples of the SDK", names: &examples };
    for (name, file) in build("..", &examples, &[]) {
        let constant = name.to_uppercase();
        writeln!(
            list,
            "/// The example `{name}` of the SDK.\npub const SDK_{constant}: &[u8] = include_bytes!({file:?});"
        )
        .expect("writing to a string never fails");
    }
    for (name, file) in &texts {
        let constant = name.replace('-', "_").to_uppercase();
        writeln!(list, "/// The guest `{name}`, as text.\npub const {constant}_TEXT: &str = include_str!({file:?});")
            .expect("writing to a string never fails");
    }
    list.push_str(&each(&names, &texts));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    write(&out.join("guests.rs"), list);
}
