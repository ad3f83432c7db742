//! Plugins written as core modules in text: for behaviour that no compiler generates, and for versions that a test
//! creates while it runs.
//!
//! A text defines the unusual fields of a module; defaults are added for all others. It may define the functions
//! `$describe`, `$check`, `$migrate`, `$poll` and `$realloc` (with the types of the same names). It may use `$memory`,
//! which has an empty report of `poll` at [`REPORT`] and a report with one dependency at [`DEPENDENCY`]. Data segments
//! of the text may overwrite their fields, because they come after the defaults.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The address of the result of `describe`.
pub const DESCRIPTOR: u32 = 1024;
/// The address of the place of the schema in the descriptor: its address and its length.
pub const SCHEMA: u32 = DESCRIPTOR + 64;
/// The address of the version of the settings in the descriptor.
pub const SETTINGS_VERSION: u32 = SCHEMA + 8;
/// The address of a result of `migrate-settings`: that it is one, and the address and the length of an empty object.
pub const MIGRATED: u32 = 5120;
/// The address of a valid result of `poll` without dependencies.
pub const REPORT: u32 = 4096;
/// The address of a result of `poll` with one dependency. The dependency itself is 128 bytes later.
pub const DEPENDENCY: u32 = 4352;
/// The address of the default texts.
const TEXTS: u32 = 8192;
/// The start of the memory that `$realloc` allocates.
const HEAP: u32 = 131_072;

/// Builds a component of Polliwog's contract with this kind and version and the fields of `text`.
///
/// # Panics
/// If the text is not a valid module, because this is for tests.
pub fn plugin(kind: &str, version: &str, text: &str) -> Vec<u8> {
    assembled(&mut wat::Parser::new(), kind, &module(kind, version, text), &contract())
}

/// Like [`plugin`], for the contract in a folder and its version.
///
/// # Panics
/// If the text is not a valid module of that contract, because this is for tests.
pub fn plugin_of(contract: &Path, contract_version: &str, text: &str) -> Vec<u8> {
    let module = module("changed", "1.0.0", text).replace("@0.1.0", &format!("@{contract_version}"));
    assembled(&mut wat::Parser::new(), "changed", &module, contract)
}

/// The folder of the contract.
fn contract() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")
}

/// Like [`plugin`], with DWARF debug information that refers to the lines of `KIND.wat`.
///
/// # Panics
/// If the text is not a valid module, because this is for tests.
pub fn plugin_with_lines(kind: &str, version: &str, text: &str) -> Vec<u8> {
    let parser = &mut wat::Parser::new();
    assembled(parser.generate_dwarf(wat::GenerateDwarf::Full), kind, &module(kind, version, text), &contract())
}

fn assembled(parser: &mut wat::Parser, kind: &str, module: &str, contract: &Path) -> Vec<u8> {
    let file = format!("{kind}.wat");
    let core = parser.parse_str(Some(file.as_ref()), module);
    let mut core = core.unwrap_or_else(|error| panic!("{kind}: {error}\n{module}"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(contract).expect("the contract can be read");
    let world = resolve.select_world(&[package], Some("poller-plugin")).expect("the contract has its world");
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).expect("the contract can be embedded");
    let mut encoder = ComponentEncoder::default();
    let encoder = encoder.validate(true).module(&core).expect("the module fits the contract");
    encoder.encode().unwrap_or_else(|error| panic!("{kind}: {error:#}"))
}

/// Converts the text of a whole component.
///
/// # Panics
/// If the text is not a valid component, because this is for tests.
pub fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is a component")
}

fn module(kind: &str, version: &str, text: &str) -> String {
    // Imports must come first.
    let (imports, text): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("(import"));
    let text = &text.join("\n");
    let mut module = format!("(module\n{}\n", imports.join("\n"));
    let _ = writeln!(
        module,
        "(type $describe (func (result i32)))
        (type $check (func (param i32 i32) (result i32)))
        (type $migrate (func (param i32 i32 i32) (result i32)))
        (type $poll (func (param i32) (result i32)))
        (type $realloc (func (param i32 i32 i32 i32) (result i32)))"
    );
    for (field, default) in [
        ("(memory $memory", "(memory $memory 4)".to_owned()),
        ("(func $describe", format!("(func $describe (type $describe) i32.const {DESCRIPTOR})")),
        ("(func $check", format!("(func $check (type $check) i32.const {REPORT})")),
        ("(func $migrate", format!("(func $migrate (type $migrate) i32.const {MIGRATED})")),
        ("(func $poll", format!("(func $poll (type $poll) i32.const {REPORT})")),
        ("(func $realloc", realloc()),
    ] {
        if !text.contains(field) {
            let _ = writeln!(module, "{default}");
        }
    }
    let (definition, poller) = ("polliwog:plugin/definition@0.1.0#", "polliwog:plugin/poller@0.1.0#");
    let _ = writeln!(
        module,
        "(export \"memory\" (memory $memory)) (export \"cabi_realloc\" (func $realloc))
        (export \"{definition}describe\" (func $describe)) (export \"{definition}check-settings\" (func $check))
        (export \"{definition}migrate-settings\" (func $migrate))
        (export \"{poller}poll\" (func $poll))"
    );
    module.push_str(&data(kind, version));
    module.push_str(text);
    module.push_str("\n)");
    module
}

/// An allocator that never frees memory.
fn realloc() -> String {
    format!(
        "(global $heap (mut i32) (i32.const {HEAP}))
        (func $realloc (type $realloc) (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
            (global.set $heap (i32.add (local.get $at) (local.get 3)))
            (block $fits
                (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                (drop (memory.grow (i32.add (i32.div_u (local.get 3) (i32.const 65536)) (i32.const 1)))))
            local.get $at)"
    )
}

/// Returns data segments with the descriptor, an empty report, a report with one dependency, and their texts.
fn data(kind: &str, version: &str) -> String {
    let mut texts = Vec::new();
    let mut text = |text: &str| {
        let at = TEXTS + u32::try_from(texts.len()).expect("our texts are short");
        texts.extend_from_slice(text.as_bytes());
        [at.to_le_bytes(), u32::try_from(text.len()).expect("our texts are short").to_le_bytes()].concat()
    };
    let schema = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
    let descriptor: Vec<u8> = [
        text(kind),
        text(kind),
        text(version),
        text("A test program"),
        // No homepage, licence and schemes.
        vec![0; 12 + 12 + 8],
        text(schema),
        1_u32.to_le_bytes().to_vec(),
        // No secrets.
        vec![0; 8],
        [1, 30_000, 10_000].map(u32::to_le_bytes).concat(),
        // No later attributes.
        vec![0; 8],
    ]
    .concat();
    let dependency = DEPENDENCY + 128;
    let report = [0_u32.to_le_bytes(), dependency.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    let name = text("dependency");
    let migrated = [0_u32.to_le_bytes().to_vec(), text("{}")].concat();
    let mut data = String::new();
    for (at, bytes) in
        [(DESCRIPTOR, descriptor), (DEPENDENCY, report), (dependency, name), (MIGRATED, migrated), (TEXTS, texts)]
    {
        let escaped = bytes.iter().fold(String::new(), |mut escaped, byte| {
            let _ = write!(escaped, "\\{byte:02x}");
            escaped
        });
        let _ = writeln!(data, "(data (i32.const {at}) \"{escaped}\")");
    }
    data
}
