//! Compiles the built-in plugins to machine code and lists them for `src/lib.rs`.

use sha2::{Digest, Sha256};
use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::exit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").expect("cargo sets TARGET for build scripts");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let (mut list, mut all) = (String::new(), Vec::new());
    for plugin in builtin::ALL {
        let code = machine_code::compile_for(&target, plugin.component).unwrap_or_else(|error| {
            println!(
                "cargo::error=the plugin {} cannot be compiled for {target}: {error:#}; if the target has another \
                 architecture than this machine, add --features all-arch",
                plugin.kind
            );
            exit(1)
        });
        let (digest, size) = (Sha256::digest(plugin.component), plugin.component.len());
        let place = (all.len(), all.len() + code.len());
        all.extend(code);
        writeln!(
            list,
            "    BuiltIn {{ kind: {:?}, digest: {digest:?}, size: {size}, archive: &ARCHIVE, place: {place:?} }},",
            plugin.kind
        )
        .expect("writing to a string never fails");
    }
    let archive = out.join("archive.zst");
    let packed = machine_code::pack(&all).expect("memory suffices for an archive of some megabytes");
    write(&archive, &packed);
    let source = format!(
        "/// The machine code of all built-in plugins.\n\
         static ARCHIVE: Archive = Archive {{ packed: include_bytes!({archive:?}), size: {} }};\n\
         /// All built-in plugins, sorted by kind.\n\
         pub static ALL: &[BuiltIn] = &[\n{list}];\n",
        all.len()
    );
    write(&out.join("code.rs"), source.as_bytes());
}

/// Writes a file. A full disk, for example, ends the build with one sentence.
fn write(path: &Path, content: &[u8]) {
    if let Err(error) = std::fs::write(path, content) {
        println!("cargo::error=cannot write {}: {error}", path.display());
        exit(1)
    }
}
