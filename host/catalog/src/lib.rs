//! The plugin catalog: decides which plugin file serves which kind.
//!
//! - [`PluginWatcher`] loads the built-in plugins and those of a directory, and watches the directory while the host
//!   runs. It passes every change to an [`Admit`], which checks the plugin against the targets of its kind.
//! - [`PluginSet`] is the result at one moment: a plugin for each kind, and the files that were refused.
//! - [`Trust`] decides whether a file may take over a kind that has targets.
//! - [`add_file`] and [`remove_file`] change the directory for users without access to it.
//! - [`compiler`] is the child process that compiles plugins; [`installation_key`] authenticates its code.
//!
//! This crate depends on neither targets nor configuration; the caller passes the values that it needs.

#![forbid(unsafe_code)]

mod admit;
mod compiler;
mod directory;
mod files;
mod registry;
mod served_record;
mod set;
mod trust;
mod usage;
mod watcher;

pub use admit::Admit;
pub use compiler::{CompilerError, compiler, installation_key};
pub use directory::read;
pub use files::{FileError, add_file, remove_file};
pub use set::{BUILT_IN, PluginSet, Refused, Served};
pub use trust::Trust;
pub use usage::UsageCounter;
pub use watcher::{Location, PluginWatcher, Uncompiled};
