//! `plugin`: for those who write plugins, and for those who run them.

pub(crate) mod inspect;
pub(crate) mod list;
