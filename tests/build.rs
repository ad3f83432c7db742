//! Compiles the guests and lists them for the tests.

use plugin_build::{What, components};
use std::fmt::Write;
use std::path::PathBuf;

fn main() {
    let mut names: Vec<String> = std::fs::read_dir("guests/examples")
        .expect("the guests are there")
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut list = String::new();
    for (name, file) in components("..", &What::ExamplesOf("guests", &names), &["tests/guests"]) {
        let constant = name.replace('-', "_").to_uppercase();
        writeln!(list, "/// The guest `{name}`.\npub const {constant}: &[u8] = include_bytes!({file:?});")
            .expect("writing to a string never fails");
    }
    writeln!(list, "/// Every guest's name.\npub const NAMES: &[&str] = &{names:?};")
        .expect("writing to a string never fails");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    std::fs::write(out.join("guests.rs"), list).expect("OUT_DIR can be written to");
}
