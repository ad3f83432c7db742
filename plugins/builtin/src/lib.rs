//! The built-in plugins, compiled for wasm32-wasip2 by the build script and embedded as bytes.
//!
//! They are ordinary plugins: the host has no special path for any of them.

#![forbid(unsafe_code)]

/// A plugin that comes with the host.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The kind it serves.
    pub kind: &'static str,
    /// The component.
    pub component: &'static [u8],
}

/// All of them, by kind.
pub const ALL: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));
