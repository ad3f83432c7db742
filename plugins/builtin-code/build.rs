//! Compiles the built-in plugins to machine code and lists them for `src/lib.rs`.

use sha2::{Digest, Sha256};
use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::exit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").expect("cargo sets TARGET for build scripts");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let mut list = String::from("&[\n");
    for plugin in builtin::ALL {
        let code = machine_code::compile_for(&target, plugin.component).unwrap_or_else(|error| {
            println!(
                "cargo::error=the plugin {} cannot be compiled for {target}: {error:#}; if the target has another \
                 architecture than this machine, add --features all-arch",
                plugin.kind
            );
            exit(1)
        });
        let file = out.join(format!("{}.code", plugin.kind));
        std::fs::write(&file, code).expect("OUT_DIR is writable");
        let (digest, size) = (Sha256::digest(plugin.component), plugin.component.len());
        writeln!(
            list,
            "    BuiltIn {{ kind: {:?}, digest: {digest:?}, size: {size}, packed: include_bytes!({file:?}) }},",
            plugin.kind
        )
        .expect("writing to a string never fails");
    }
    list.push_str("]\n");
    std::fs::write(out.join("code.rs"), list).expect("OUT_DIR is writable");
}
