//! Code that the plugins for Proxmox VE, Backup Server and Mail Gateway share.
//!
//! - [`connect`] finds the origin of a target that answers. [`Api`] sends requests to it.
//! - [`Error`] is the reason why a part could not be read, with the command or privilege that corrects it.
//! - [`Diagnostics`] collects fields of an unexpected type as warnings that name them.
//! - [`PollContext`] is the state of one poll. It reports parts that cannot be read as unknown, and schedules parts
//!   that are checked less often than at every poll.
//! - [`Memory`] is what one poll remembers for the next.
//! - [`Thresholds`] are limits of usage and age, [`Hysteresis`] keeps a value from flapping around one, [`Host`] is the
//!   usage of a machine, [`Ended`] the result of a task, and [`Patterns`] are names in settings.
//! - [`SortedMap`] is a map that is cheap to compile.
//! - [`hourly`] checks each node once an hour; [`certificates`] and [`subscription`] are such checks.
//!
//! The crate decides nothing about a single product, except for [`Product`]. It depends on the SDK only.

#![forbid(unsafe_code)]

mod ages;
mod api;
mod certificates;
mod context;
mod diagnostics;
mod error;
mod expiring;
mod format;
mod host;
mod hourly;
mod hysteresis;
mod inventory;
mod memory;
mod origins;
mod patterns;
mod product;
mod reply;
mod schedule;
mod sections;
mod setting;
mod sorted_map;
mod subscription;
mod task;
mod thresholds;
mod visibility;

pub use ages::AgeRule;
pub use api::{Answer, Api, Connected, connect};
pub use certificates::{CertificateLimits, certificate, certificates};
pub use context::{Part, PollContext, evaluated, run};
pub use diagnostics::Diagnostics;
pub use error::{Error, ErrorClass};
pub use expiring::{Expiring, ExpiringMap, LONG, now};
pub use format::{DAY, LATEST, bytes, count, item, list, moment, percent_encoded, seconds};
pub use host::{Host, HostLimits, Space, share};
pub use hourly::{Fact, hourly};
pub use hysteresis::{Evaluation, Hysteresis};
pub use memory::{Memory, PluginMemory};
pub use patterns::{Patterns, Selection, Unseen};
pub use product::Product;
pub use sections::Sections;
pub use sorted_map::SortedMap;
pub use subscription::subscription;
pub use task::{Ended, complaint};
pub use thresholds::{Remaining, ThresholdPair, Thresholds, Verdict, percent, worse, worst};
