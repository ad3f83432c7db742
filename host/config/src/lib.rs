//! The configuration: what was written, checked in one pass that reports every problem with its place.
//!
//! The environment wins over settings that were changed while the host ran, these over the file, the file over the
//! defaults.
//!
//! This crate reads and checks text. It opens no file but a target's CA file (in [`TlsConfig::build`]), and it knows no command
//! line and no running host.

#![forbid(unsafe_code)]

mod checked;
mod places;
mod reader;
mod targets;
mod value;

pub use checked::{Config, Invalid, Limits, line, scheduler_values};
pub use places::{Places, data_dir, find};
pub use reader::{Overrides, Source, misspelt, suggestion};
pub use targets::{AlsoConfig, CHANGEABLE, SecretSource, TargetConfig, TlsConfig, setting};
pub use value::{parse_duration, show_duration};

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
