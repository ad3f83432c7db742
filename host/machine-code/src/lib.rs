//! Generates the machine code of plugins.
//!
//! The same code is used in two places: in the child process that compiles a plugin file, and in the build script of
//! the built-in plugins. So both generate code that the engine of a host accepts.

#![forbid(unsafe_code)]

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use wasmtime::{Config, Engine, Result, WasmBacktraceDetails};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

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
    /// The archive that has the result of [`compile_for`] for the component.
    pub archive: &'static Archive,
    /// The first byte of the machine code in the unpacked archive, and the one after the last.
    pub place: (usize, usize),
}

/// The machine code of all built-in plugins, compressed by [`pack`]. Together it has less than half of the size that it
/// has one by one, because most plugins share libraries.
#[derive(Debug)]
pub struct Archive {
    /// The compressed code.
    pub packed: &'static [u8],
    /// The size of the unpacked code in bytes.
    pub size: usize,
}

/// An archive that is unpacked when it is first needed, for as many plugins as use this.
#[derive(Debug, Default)]
pub struct Unpacked(Mutex<Option<Arc<Vec<u8>>>>);

impl Unpacked {
    /// Writes the machine code of a plugin.
    ///
    /// # Errors
    /// If it cannot be written, or if the archive is damaged.
    pub fn write(&self, plugin: &BuiltIn, mut output: impl io::Write) -> io::Result<()> {
        let all = {
            let mut unpacked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match &*unpacked {
                Some(all) => all.clone(),
                None => {
                    let all = Arc::new(zstd::bulk::decompress(plugin.archive.packed, plugin.archive.size)?);
                    unpacked.insert(all).clone()
                }
            }
        };
        let (begin, end) = plugin.place;
        output.write_all(all.get(begin..end).ok_or(io::ErrorKind::InvalidData)?)
    }
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

/// Compiles a component for any CPU of a target such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
/// If the component is not valid, or if this program cannot generate code for the target.
pub fn compile_for(target: &str, component: &[u8]) -> Result<Vec<u8>> {
    let mut config = config(Backtrace::Functions);
    config.target(target)?;
    Engine::new(&config)?.precompile_component(component)
}

/// Compresses machine code of several plugins for an [`Archive`].
///
/// # Errors
/// If memory is short.
pub fn pack(code: &[u8]) -> io::Result<Vec<u8>> {
    /// 12 makes an archive that is 2 % smaller in twice the time.
    const LEVEL: i32 = 9;
    /// Plugins share code at any distance: the window has 2^27 bytes, the most that a decoder accepts as it is.
    const WINDOW: u32 = 27;
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
    compressor.set_parameter(CParameter::WindowLog(WINDOW))?;
    compressor.compress(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_taken_out_of_an_archive() {
        let code: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let leaked = |bytes: Vec<u8>| -> &'static [u8] { bytes.leak() };
        let archive = |packed, size| -> &'static Archive { Box::leak(Box::new(Archive { packed, size })) };
        let plugin = |archive, place| BuiltIn { kind: "a", digest: [0; 32], size: 0, archive, place };
        let whole = archive(leaked(pack(&code).unwrap()), code.len());
        let unpacked = Unpacked::default();
        for (begin, end) in [(0, 7), (7, code.len())] {
            let mut output = Vec::new();
            unpacked.write(&plugin(whole, (begin, end)), &mut output).unwrap();
            assert_eq!(output, code[begin..end]);
        }
        assert!(unpacked.write(&plugin(whole, (7, code.len() + 1)), io::sink()).is_err());
        let damaged = archive(leaked(whole.packed[..whole.packed.len() / 2].to_vec()), code.len());
        assert!(Unpacked::default().write(&plugin(damaged, (0, 7)), io::sink()).is_err());
    }
}
