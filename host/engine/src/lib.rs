//! Runs a host: the loop that polls, the targets as they run, reconfiguration, and what others may read and hear.
//!
//! - [`Driver`] is one loop over one enum of messages; nothing else moves the scheduler.
//! - [`ReadModel`] holds the committed state of every target; reading never goes through the loop.
//! - [`Bus`] announces events to listeners.
//! - [`Outbox`] sends notifications to channels.
//! - [`Reconfigurer`] applies changes of the configuration file, of settings and of plugins to a running host.
//! - [`Health`] ends the process if one of its essential threads ends or hangs.
//! - [`Log`] writes the log without blocking.
//! - [`Clock`] is the only module that reads the wall clock and randomness.
//!
//! This crate knows no HTTP and no command line: `polliwog` wires it to those.
//!
//! Invariant: a transition is on disk before the read model shows it and before the bus announces it.

#![forbid(unsafe_code)]

mod alerts;
mod bus;
mod clock;
mod deployments;
mod driver;
mod examine;
mod inspect;
mod log_ring;
mod mailbox;
mod message;
mod outbox;
mod prepare;
mod process_log;
mod read_model;
mod readings;
mod reconfigure;
mod restore;
mod sample;
mod schedule_time;
mod secrets;
mod sessions;
mod settings_versions;
mod target;
mod watchdog;

pub use alerts::{AlertRules, Alerting};
pub use bus::Bus;
pub use clock::{Clock, random_bytes, seconds};
pub use driver::{Driver, Wiring};
pub use examine::Examiner;
pub use inspect::{Findings, inspect};
pub use mailbox::{Inbox, Mailbox, channel};
pub use message::{Command, Explained, Finished, Message, Reconfigured};
pub use outbox::Outbox;
pub use prepare::{Files, Prepared, Targets};
pub use process_log::{Log, LogLines};
pub use read_model::ReadModel;
pub use readings::{Measured, readings};
pub use reconfigure::{Candidate, DORMANT, Fit, Initial, NamedFiles, Parts, Reconfigurer, Validator, changes, misfit};
pub use restore::{Restored, keep_recent, restore};
pub use sample::sample_notification;
pub use schedule_time::to_monotonic;
pub use secrets::read_secret;
pub use target::{RuntimeTarget, collector_access, runtime_target, warn_about};
pub use watchdog::Health;
