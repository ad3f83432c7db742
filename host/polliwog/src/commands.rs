//! The commands, one file each.

pub(crate) mod alerts;
pub(crate) mod apply;
pub(crate) mod breaker;
pub(crate) mod channel;
pub(crate) mod check;
pub(crate) mod dead_letter;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod plugin;
pub(crate) mod poll;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod setup;
pub(crate) mod silence;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod targets;
pub(crate) mod token;
