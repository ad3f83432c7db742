//! Generates the machine code of plugins.
//!
//! The same code is used in two places: in the child process that compiles a plugin file, and in the build script of
//! the built-in plugins. So both generate code that the engine of a host accepts.

#![forbid(unsafe_code)]

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use std::io::{self, Read};
use wasmtime::{Config, Engine, Result, WasmBacktraceDetails};

/// The details in the message of a trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backtrace {
    /// The functions on the stack, if the plugin has a name section.
    #[default]
    Functions,
    /// The functions with their files and lines, if the plugin carries DWARF. No limit bounds the time to read it, so
    /// use this only for trusted plugins.
    SourceLines,
}

impl Backtrace {
    /// Returns [`Self::SourceLines`] if the component carries DWARF line tables.
    #[must_use]
    pub fn of(component: &[u8]) -> Self {
        match memchr::memmem::find(component, b".debug_line") {
            Some(_) => Self::SourceLines,
            None => Self::Functions,
        }
    }
}

/// A built-in plugin, compiled when this program was built.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The kind that the plugin serves.
    pub kind: &'static str,
    /// The SHA-256 of the component.
    pub digest: [u8; 32],
    /// The size of the component in bytes.
    pub size: usize,
    /// The result of [`compile_for`] for the component.
    pub packed: &'static [u8],
}

/// Returns the engine's configuration. Instances are created on demand; a pool does not change the machine code.
#[must_use]
pub fn config(backtrace: Backtrace) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).concurrency_support(false).wasm_memory64(false);
    // The default depends on an environment variable, so set it explicitly.
    config.wasm_backtrace_details(match backtrace {
        Backtrace::Functions => WasmBacktraceDetails::Disable,
        Backtrace::SourceLines => WasmBacktraceDetails::Enable,
    });
    config
}

/// Compiles a component for the CPU of this machine.
///
/// # Errors
/// If the component is not valid.
pub fn compile(component: &[u8], backtrace: Backtrace) -> Result<Vec<u8>> {
    Engine::new(&config(backtrace))?.precompile_component(component)
}

/// Compiles a component for any CPU of a target such as `x86_64-unknown-linux-gnu`, and compresses the machine code.
///
/// # Errors
/// If the component is not valid, or if this program cannot generate code for the target.
pub fn compile_for(target: &str, component: &[u8]) -> Result<Vec<u8>> {
    let mut config = config(Backtrace::Functions);
    config.target(target)?;
    let code = Engine::new(&config)?.precompile_component(component)?;
    let mut packed = Vec::new();
    DeflateEncoder::new(code.as_slice(), Compression::best()).read_to_end(&mut packed)?;
    Ok(packed)
}

/// Writes the machine code that [`compile_for`] compressed.
///
/// # Errors
/// If it cannot be written, or if `packed` is damaged.
pub fn unpack(packed: &[u8], mut output: impl io::Write) -> io::Result<()> {
    io::copy(&mut DeflateDecoder::new(packed), &mut output).map(drop)
}
