//! The configuration: an operator's text, checked in one pass that reports every problem with its place.
//!
//! The environment wins over settings that were changed while the host ran, these win over the file, and the file wins
//! over the defaults. A file must be valid without changed settings; see [`Written`].
//!
//! This crate reads the configuration's file and a target's CA file (in [`TlsConfig::build`]); it knows no command line
//! and no running host.

#![forbid(unsafe_code)]

mod checked;
mod document;
mod places;
mod reader;
mod reference;
mod target_config;
mod target_parts;
mod targets;
mod value;
mod written;

pub use checked::{Config, Limits, line, scheduler_values};
pub use document::{Document, Reading, Stamp, environment, read_text};
pub use places::{Places, data_dir, find};
pub use reader::{Overrides, misspelt, suggestion};
pub use reference::reference;
pub use target_config::{AlsoConfig, CHANGEABLE, Difference, SecretSource, TargetConfig, TlsConfig, setting};
pub use value::{parse_duration, show_duration};
pub use written::{Environment, Invalid, Written};

use std::fmt;

/// Something that is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `polliwog.toml:12`, or an environment variable.
    pub place: String,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

#[cfg(test)]
mod tests;
