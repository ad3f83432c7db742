//! Plugins written as core modules in text: what no compiler would make, and versions that are made while a test runs.
//!
//! A text defines what is odd about the plugin, as fields of a module; everything that it leaves out is as it should be.
//! It may define the functions `$describe`, `$check`, `$poll` and `$realloc` (of the types of the same names), and find
//! there: `$memory`; at [`REPORT`] a whole answer of `poll` without dependencies; at [`DEPENDENCY`] a report with one
//! dependency, whose fields may be overwritten by data segments (they come later than ours).

use std::fmt::Write;
use std::path::Path;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where `describe`'s answer lies.
pub const DESCRIPTOR: u32 = 1024;
/// Where an answer of `poll` lies: a good one, without dependencies.
pub const REPORT: u32 = 4096;
/// Where an answer of `poll` lies that has one dependency; the dependency itself is 64 bytes on.
pub const DEPENDENCY: u32 = 4352;
/// Where our texts begin.
const TEXTS: u32 = 8192;
/// Where memory that is given out begins.
const HEAP: u32 = 131_072;

/// A component of polliwog's contract, of this kind and version, with what `text` defines.
///
/// # Panics
/// When the text is no module: this is for tests.
pub fn plugin(kind: &str, version: &str, text: &str) -> Vec<u8> {
    assembled(&mut wat::Parser::new(), (kind, version), text)
}

/// The same with DWARF, which says on which line of `KIND.wat` everything stands.
///
/// # Panics
/// When the text is no module: this is for tests.
pub fn plugin_with_lines(kind: &str, version: &str, text: &str) -> Vec<u8> {
    assembled(wat::Parser::new().generate_dwarf(wat::GenerateDwarf::Full), (kind, version), text)
}

fn assembled(parser: &mut wat::Parser, (kind, version): (&str, &str), text: &str) -> Vec<u8> {
    let module = module(kind, version, text);
    let file = format!("{kind}.wat");
    let core = parser.parse_str(Some(file.as_ref()), &module);
    let mut core = core.unwrap_or_else(|error| panic!("{kind}: {error}\n{module}"));
    let mut resolve = Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let (package, _) = resolve.push_dir(&wit).expect("the contract can be read");
    let world = resolve.select_world(&[package], Some("plugin")).expect("the contract has its world");
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).expect("the contract can be embedded");
    let mut encoder = ComponentEncoder::default();
    let encoder = encoder.validate(true).module(&core).expect("the module fits the contract");
    encoder.encode().unwrap_or_else(|error| panic!("{kind}: {error:#}"))
}

/// A component as its own text says it.
///
/// # Panics
/// When the text is none: this is for tests.
pub fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is a component")
}

fn module(kind: &str, version: &str, text: &str) -> String {
    // Imports come before everything else.
    let (imports, text): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("(import"));
    let text = &text.join("\n");
    let mut module = format!("(module\n{}\n", imports.join("\n"));
    let poll = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32) (result i32)";
    let _ = writeln!(
        module,
        "(type $describe (func (result i32)))
        (type $check (func (param i32 i32) (result i32)))
        (type $poll (func {poll}))
        (type $realloc (func (param i32 i32 i32 i32) (result i32)))"
    );
    for (field, default) in [
        ("(memory $memory", "(memory $memory 4)".to_owned()),
        ("(func $describe", format!("(func $describe (type $describe) i32.const {DESCRIPTOR})")),
        ("(func $check", format!("(func $check (type $check) i32.const {REPORT})")),
        ("(func $poll", format!("(func $poll (type $poll) i32.const {REPORT})")),
        ("(func $realloc", realloc()),
    ] {
        if !text.contains(field) {
            let _ = writeln!(module, "{default}");
        }
    }
    let prefix = "polliwog:poller/poller@0.1.0#";
    let _ = writeln!(
        module,
        "(export \"memory\" (memory $memory)) (export \"cabi_realloc\" (func $realloc))
        (export \"{prefix}describe\" (func $describe)) (export \"{prefix}check-settings\" (func $check))
        (export \"{prefix}poll\" (func $poll))"
    );
    module.push_str(&data(kind, version));
    module.push_str(text);
    module.push_str("\n)");
    module
}

/// Gives memory out and never takes it back.
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

/// The descriptor, an empty report, and a report with one dependency, with the texts that they point to.
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
        text(schema),
        vec![0; 8],
        30_000_u32.to_le_bytes().to_vec(),
        10_000_u32.to_le_bytes().to_vec(),
    ]
    .concat();
    let dependency = DEPENDENCY + 64;
    let report = [0_u32.to_le_bytes(), dependency.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    let name = text("dependency");
    let mut data = String::new();
    for (at, bytes) in [(DESCRIPTOR, descriptor), (DEPENDENCY, report), (dependency, name), (TEXTS, texts)] {
        let escaped = bytes.iter().fold(String::new(), |mut escaped, byte| {
            let _ = write!(escaped, "\\{byte:02x}");
            escaped
        });
        let _ = writeln!(data, "(data (i32.const {at}) \"{escaped}\")");
    }
    data
}
