//! The built-in plugins, compiled for wasm32-wasip2 by the build script and embedded as bytes.
//!
//! They are ordinary plugins: the host has no special path for any of them.

#![forbid(unsafe_code)]

/// A built-in plugin.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The kind that the plugin serves.
    pub kind: &'static str,
    /// The bytes of the component.
    pub component: &'static [u8],
}

/// All built-in plugins, sorted by kind. They are statics, because each crate that uses a constant has its own copy of
/// it.
pub static ALL: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));
