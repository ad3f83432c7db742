//! `plugin`: commands for authors of plugins, and for operators.

pub(crate) mod accept;
pub(crate) mod bench;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod new;
pub(crate) mod project;
pub(crate) mod recording;
pub(crate) mod retry;
pub(crate) mod send;
pub(crate) mod test;
pub(crate) mod watch;
