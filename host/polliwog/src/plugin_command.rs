//! `plugin`: for those who write plugins, and for those who run them.

pub(crate) mod accept;
pub(crate) mod bench;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod new;
pub(crate) mod project;
pub(crate) mod recording;
pub(crate) mod test;
pub(crate) mod watch;
