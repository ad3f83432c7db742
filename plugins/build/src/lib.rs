//! Builds components from a build script.
//!
//! One nested `cargo build` for wasm32-wasip2 builds all components of a caller. Its target directory is
//! `<target>/plugins`, which all callers and profiles share, so that nothing is compiled twice. If the target
//! wasm32-wasip2 is missing, the build adds it with rustup and prints a warning. If that fails, the error contains the
//! command to run.
//!
//! `POLLIWOG_PREBUILT_PLUGINS` names a directory of prebuilt components (`<name>.wasm`) to use instead.

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "wasm32-wasip2";
const PREBUILT: &str = "POLLIWOG_PREBUILT_PLUGINS";
/// Variables of the outer build that the inner build must not inherit.
const OUTER_ONLY: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "LLVM_PROFILE_FILE",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
];

/// The packages to build.
pub enum What<'a> {
    /// These packages, each a `cdylib`.
    Packages(&'a [&'a str]),
    /// Every example of this package, each a `cdylib`.
    ExamplesOf(&'a str, &'a [&'a str]),
}

/// Builds the components and returns their names and files.
///
/// `up` is the path from the caller's package to the workspace's folder. `sources` are the source files and folders of
/// the components, relative to the workspace.
pub fn components(up: &str, what: &What<'_>, sources: &[&str]) -> Vec<(String, PathBuf)> {
    // Read the variable at run time, because the checkout may have moved since the build script was compiled.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let root = &package.join(up);
    println!("cargo::rerun-if-env-changed={PREBUILT}");
    let names = match what {
        What::Packages(names) | What::ExamplesOf(_, names) => names,
    };
    if let Some(dir) = env::var_os(PREBUILT).map(PathBuf::from) {
        return names.iter().map(|name| ((*name).to_owned(), existing(dir.join(format!("{name}.wasm"))))).collect();
    }
    for source in sources.iter().chain(&["Cargo.lock", "Cargo.toml", "sdk", "wit"]) {
        println!("cargo::rerun-if-changed={}", existing(root.join(source)).display());
    }
    add_target();
    let out = build(root, what);
    let file = |name: &&str| match what {
        What::Packages(_) => out.join(format!("{}.wasm", name.replace('-', "_"))),
        What::ExamplesOf(..) => out.join("examples").join(format!("{}.wasm", name.replace('-', "_"))),
    };
    names.iter().map(|name| ((*name).to_owned(), existing(file(name)))).collect()
}

fn build(root: &Path, what: &What<'_>) -> PathBuf {
    let target_dir = outer_target_dir().join("plugins");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--profile", "plugin", "--locked", "--target", TARGET, "--target-dir"]);
    cargo.arg(&target_dir);
    match what {
        What::Packages(names) => cargo.args(names.iter().flat_map(|name| ["-p", name])),
        What::ExamplesOf(package, _) => cargo.args(["-p", package, "--examples"]),
    };
    for name in OUTER_ONLY {
        cargo.env_remove(name);
    }
    if matches!(what, What::ExamplesOf(..)) {
        // There are many examples and they run only briefly, so they need no optimisation. They use the same profile,
        // because a separate profile would build the dependencies again.
        cargo.envs(
            [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")]
                .map(|(setting, value)| (format!("CARGO_PROFILE_PLUGIN_{setting}"), value)),
        );
    }
    match cargo.status() {
        Ok(status) if status.success() => target_dir.join(TARGET).join("plugin"),
        Ok(status) => fail(&format!("building the plugins failed ({status}); see the compiler's messages above")),
        Err(error) => fail(&format!("cargo could not be started to build the plugins: {error}")),
    }
}

/// Returns the target directory of the outer build.
fn outer_target_dir() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let profile = out.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "build"));
    match profile.and_then(Path::parent).and_then(Path::parent) {
        Some(target) => target.to_owned(),
        None => fail(&format!("cannot determine the target directory from {}", out.display())),
    }
}

fn add_target() {
    if has_target() {
        return;
    }
    println!("cargo::warning=the target {TARGET} is missing; adding it with `rustup target add {TARGET}`");
    let added = Command::new("rustup").args(["target", "add", TARGET]).status().is_ok_and(|status| status.success());
    if !added || !has_target() {
        fail(&format!("the target {TARGET} is missing and rustup could not add it; run: rustup target add {TARGET}"));
    }
}

fn has_target() -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    output.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    })
}

fn existing(path: PathBuf) -> PathBuf {
    if path.exists() { path } else { fail(&format!("{} does not exist", path.display())) }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
