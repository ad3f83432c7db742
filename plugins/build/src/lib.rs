//! Builds components from a build script.
//!
//! A nested cargo for wasm32-wasip2 builds the components of a caller. Its target directory is
//! `<target>/plugins`, which all callers and profiles share, so that nothing is compiled twice. If the target
//! wasm32-wasip2 is missing, the build adds it with rustup and prints a warning. If that fails, the error contains the
//! command to run.
//!
//! `POLLIWOG_PREBUILT_PLUGINS` names a directory of prebuilt components (`<name>.wasm`) to use instead.

#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "wasm32-wasip2";
const PREBUILT: &str = "POLLIWOG_PREBUILT_PLUGINS";
/// Variables of the outer build that the inner build must not inherit.
const OUTER_ONLY: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "LLVM_PROFILE_FILE",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
];

/// The components to build.
pub enum Components<'a> {
    /// These packages.
    Packages(&'a [&'a str]),
    /// Every example of a package of the workspace, each a `cdylib`.
    Examples {
        /// The folder of the package.
        folder: &'a str,
        /// The features with which they are built.
        features: &'a str,
        /// The noun in messages.
        noun: &'a str,
        /// The names.
        names: &'a [&'a str],
    },
}

/// Builds components and returns their names and files.
///
/// `up` is the path from the caller's package to the workspace's folder. `sources` are the source files and folders of
/// the components, relative to the workspace.
pub fn build(up: &str, components: &Components<'_>, sources: &[&str]) -> Vec<(String, PathBuf)> {
    // Read the variable at run time, because the checkout may have moved since the build script was compiled.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let root = &package.join(up);
    println!("cargo::rerun-if-env-changed={PREBUILT}");
    let (Components::Packages(names) | Components::Examples { names, .. }) = components;
    if let Some(dir) = env::var_os(PREBUILT).map(PathBuf::from) {
        return names.iter().map(|name| ((*name).to_owned(), existing(dir.join(format!("{name}.wasm"))))).collect();
    }
    for source in sources.iter().chain(&["Cargo.lock", "Cargo.toml", "sdk", "wit"]) {
        println!("cargo::rerun-if-changed={}", existing(root.join(source)).display());
    }
    add_target();
    let out = match components {
        Components::Packages(packages) => build_packages(root, packages),
        Components::Examples { folder, features, noun, .. } => {
            announce(&format!("{} {noun} for WebAssembly, about half a minute", names.len()));
            build_examples(&root.join(folder), features, noun)
        }
    };
    let file = |name: &str| existing(out.join(format!("{}.wasm", name.replace('-', "_"))));
    names.iter().map(|name| ((*name).to_owned(), file(name))).collect()
}

/// Writes a file of a build script. A full disk, for example, ends the build with one sentence.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    if let Err(error) = fs::write(path, content) {
        fail(&format!("cannot write {}: {error}", path.display()));
    }
}

/// Builds each package as a component, and nothing else. Their manifests do not ask for a component, because cargo
/// optimises a library at link time only if it has no second form, which tests and the fuzzer need.
fn build_packages(root: &Path, packages: &[&str]) -> PathBuf {
    announce(&format!("{} plugins for WebAssembly, about a minute", packages.len()));
    for package in packages {
        let mut cargo = cargo("rustc", root);
        cargo.args(["-p", package, "--crate-type", "cdylib"]);
        run(cargo, package);
    }
    out()
}

/// Builds all examples of a package. There are many and they run only briefly, so they need no optimisation. They use
/// the same profile, because a separate profile would build the dependencies again.
fn build_examples(package: &Path, features: &str, noun: &str) -> PathBuf {
    let mut cargo = cargo("build", package);
    cargo.args(["--examples", "--features", features]);
    for (setting, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
        cargo.env(format!("CARGO_PROFILE_PLUGIN_{setting}"), value);
    }
    run(cargo, noun);
    out().join("examples")
}

fn cargo(command: &str, directory: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let Outer { profile, target_dir } = outer();
    cargo.current_dir(directory).args([command, "--profile", profile, "--locked", "--target", TARGET]);
    cargo.arg("--target-dir").arg(target_dir);
    for name in OUTER_ONLY {
        cargo.env_remove(name);
    }
    // Flags of a configuration file are for the outer target, for example its linker. This variable overrides them.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "");
    cargo
}

fn run(mut cargo: Command, subject: &str) {
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("building {subject} failed ({status}); see the compiler's messages above")),
        Err(error) => fail(&format!("cargo could not be started to build {subject}: {error}")),
    }
}

/// Shows a line of progress. Cargo shows the output of a build script only after its end, so the line goes to cargo's
/// own standard error, if that is a terminal or a pipe. Cargo would overwrite it in a file.
fn announce(work: &str) {
    let Ok(mut output) = fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/2", parent_id())) else { return };
    if output.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return;
    }
    // The present line of a terminal may be cargo's progress bar.
    let clear = if output.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = output.write_all(format!("{clear}    Building {work}\n").as_bytes());
}

/// Returns the folder of the built components.
fn out() -> PathBuf {
    let Outer { profile, target_dir } = outer();
    target_dir.join(TARGET).join(profile)
}

/// The settings of the outer build that decide where components are built.
struct Outer {
    /// The profile for components.
    profile: &'static str,
    /// The target directory for components: `plugins` in that of the outer build.
    target_dir: PathBuf,
}

fn outer() -> Outer {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let folder = out.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "build"));
    let Some(folder) = folder.and_then(Path::parent) else { no_target_dir(&out) };
    let Some(target_dir) = folder.parent() else { no_target_dir(&out) };
    // A build for a named target has another folder for it. Both builds use the same plugins.
    let is_named = target_dir.file_name() == env::var_os("TARGET").as_deref();
    let target_dir = if is_named { target_dir.parent().unwrap_or(target_dir) } else { target_dir };
    let is_dist = folder.file_name().is_some_and(|name| name == "dist");
    Outer { profile: if is_dist { "plugin-dist" } else { "plugin" }, target_dir: target_dir.join("plugins") }
}

fn no_target_dir(out: &Path) -> ! {
    fail(&format!("cannot determine the target directory from {}", out.display()))
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
