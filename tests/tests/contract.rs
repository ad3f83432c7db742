//! Which changes of the contract let the components of others load. A component of a changed contract stands for a host
//! with one: types match only if they are equal, in both directions.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use egress::Egress;
use sandbox::{Compiler, Config, Sandbox};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

/// A change of the contract.
struct Change {
    /// The name of the kind of change.
    what: &'static str,
    /// The file, a text in it, and the text that replaces it.
    edit: (&'static str, &'static str, &'static str),
    /// The version of the changed contract.
    version: &'static str,
    /// The text of the plugin.
    plugin: &'static str,
    /// A part of the refusal; `None` if the plugin loads.
    refused: Option<&'static str>,
}

impl Change {
    const fn new(what: &'static str, edit: (&'static str, &'static str, &'static str)) -> Self {
        Self { what, edit, version: "0.1.0", plugin: "", refused: None }
    }

    const fn refused(self, why: &'static str) -> Self {
        Self { refused: Some(why), ..self }
    }
}

/// Uses the import `log.write`.
const LOGS: &str = "(import \"polliwog:plugin/log@0.1.0\" \"write\" (func $write (param i32 i32 i32)))";
/// Uses a function that hosts of this version do not have.
const FLUSHES: &str = "(import \"polliwog:plugin/log@0.1.0\" \"flush\" (func $flush))";

const CHANGES: [Change; 15] = [
    Change::new("none", ("log.wit", "interface log", "interface log")),
    Change::new("a new function that is not used", ("log.wit", "interface log {", "interface log { flush: func();")),
    Change::new("a new type", ("log.wit", "interface log {", "interface log { record place { line: u32 }")),
    Change::new(
        "a new interface",
        ("log.wit", "@since(version = 0.1.0)", "interface later { go: func(); } @since(version = 0.1.0)"),
    ),
    Change {
        version: "0.1.7",
        ..Change::new("a later version without changes", ("package.wit", "@0.1.0;", "@0.1.7;"))
    },
    Change {
        plugin: FLUSHES,
        ..Change::new("a new function that is used", ("log.wit", "interface log {", "interface log { flush: func();"))
    }
    .refused("flush"),
    Change { version: "0.2.0", ..Change::new("a new minor version", ("package.wit", "@0.1.0;", "@0.2.0;")) }
        .refused("built for polliwog:plugin@0.2, but this host supports 0.1"),
    Change::new(
        "a field of a record, at its end",
        ("poller.wit", "runs-on: list<string>,", "runs-on: list<string>, more: option<string>,"),
    )
    .refused("types differ"),
    Change::new("a field less", ("poller.wit", "runs-on: list<string>,", "")).refused("types differ"),
    Change::new("a case of an enum", ("types.wit", "unknown,\n    }", "unknown,\n        worse,\n    }"))
        .refused("types differ"),
    Change::new(
        "a case of a variant",
        ("types.wit", "misconfigured(failure),", "misconfigured(failure),\n        other(failure),"),
    )
    .refused("types differ"),
    Change::new("a flag", ("poller.wit", "independent,", "independent,\n        more,")).refused("types differ"),
    Change::new(
        "a parameter",
        ("definition.wit", "migrate-settings: func(version: u32,", "migrate-settings: func(version: s32,"),
    )
    .refused("types differ"),
    Change::new(
        "a result",
        (
            "definition.wit",
            "check-settings: func(settings: json) -> list<settings-problem>",
            "check-settings: func(settings: json) -> option<settings-problem>",
        ),
    )
    .refused("types differ"),
    Change {
        plugin: LOGS,
        ..Change::new("a case of an enum of an import", ("log.wit", "error,\n    }", "error,\n        fatal,\n    }"))
    }
    .refused("does not match the contract"),
];

/// Writes the changed contract to a folder.
fn write(change: &Change, folder: &Path) {
    let (file, text, instead) = change.edit;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")).unwrap() {
        let path = entry.unwrap().path();
        let content = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap();
        let content = if name == file {
            assert!(content.contains(text), "{}: {text:?} is not in {file}", change.what);
            content.replacen(text, instead, 1)
        } else {
            content
        };
        fs::write(folder.join(name), content).unwrap();
    }
}

#[tokio::test]
async fn only_additions_that_a_component_does_not_use_let_it_load() {
    let config = Config { instance_slots: 4, lanes: NonZeroUsize::MIN, ..Config::default() };
    let compiler = Compiler::temporary((env!("CARGO_BIN_EXE_compile"), &[]), [7; 32], 2).unwrap();
    let sandbox = Sandbox::new(config, compiler, &Egress::new(egress::Config::default())).unwrap();
    for change in &CHANGES {
        let folder = tempfile::tempdir().unwrap();
        write(change, folder.path());
        let component = tests::wat::plugin_of(folder.path(), change.version, change.plugin);
        let loaded = sandbox.load(&component).await.map_err(|refusal| refusal.message);
        match (change.refused, loaded) {
            (None, loaded) => assert!(loaded.is_ok(), "{}: {loaded:?}", change.what),
            (Some(why), Ok(_)) => panic!("{}: it loads, but should be refused: {why}", change.what),
            (Some(why), Err(said)) => assert!(said.contains(why), "{}: {said}", change.what),
        }
    }
}
