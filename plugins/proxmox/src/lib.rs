//! What the plugins for Proxmox VE, Backup Server and Mail Gateway have in common: asking, reading, and saying what is wrong.
//!
//! - [`Api`]: which of a target's origins answers, and requests to it.
//! - [`Trouble`]: why there is no answer, in a sentence with the command or privilege that mends it.
//! - [`Notes`]: fields that hold something else than they should become warnings that name them.
//! - [`Look`]: one poll under way, what its report says of a part that could not be read, and what is looked at less often
//!   than at every poll.
//! - [`Ended`]: how a task ended. [`Limits`]: how full is too full, how old is too old. [`Host`]: how busy and full
//!   a machine is. [`Patterns`]: what is meant by name.
//! - [`hourly`]: what each node is asked for once an hour; [`certificates`] and [`subscription`], which are alike everywhere.
//! - [`Memory`]: what one poll keeps for the next. [`Grades`]: what is past a limit, which is so until it is clearly not.
//!
//! It decides nothing about any one product, beyond what [`Product`] says. It depends on the SDK only.

#![forbid(unsafe_code)]

mod ages;
mod api;
mod certificates;
mod grades;
mod host;
mod hourly;
mod judge;
mod look;
mod memory;
mod notes;
mod origins;
mod patterns;
mod remembered;
mod rhythm;
mod roll;
mod subscription;
mod task;
mod trouble;
mod visibility;
mod words;

pub use ages::AgeRule;
pub use api::{Answer, Api, Connected, connect};
pub use certificates::{CertificateLimits, certificate, certificates};
pub use grades::{Grade, Graded, Grades};
pub use host::{Host, HostLimits, Space, share};
pub use hourly::{Fact, hourly};
pub use judge::{Limits, Remaining, Verdict, percent, worse};
pub use look::{Look, Part, judged};
pub use memory::{LONG, Memory, PluginMemory};
pub use notes::Notes;
pub use patterns::{Patterns, Unseen};
pub use remembered::{Expiring, ExpiringMap, Section};
pub use subscription::subscription;
pub use task::Ended;
pub use trouble::{Product, Trouble};
pub use words::{bytes, count, list, moment, percent_encoded, seconds};
