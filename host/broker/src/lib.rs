//! The records of a fleet over a broker, NATS with JetStream: the agent that sends them, and the operator that reads
//! them.
//!
//! [`Agent`] runs in every host that reports, [`Operator`] in the one that counts. The records, and what follows from
//! them, are in crate `fleet`; the database and the targets of a host are behind [`AgentHost`].
//!
//! Invariant: the database of each agent is the truth, and the broker holds a copy that can be made again from it.
//! Nothing that an agent has stored is lost when the broker loses its disk, or is restored from a copy.

#![forbid(unsafe_code)]

mod accounts;
mod agent;
mod agent_host;
mod bucket;
mod connection;
mod description;
mod diagnosis;
mod feed;
mod jitter;
mod leases;
mod link;
mod operator;
mod record;
mod seal;

use std::time::Duration;

/// Two hosts have the same device id: one of them has ended if nothing was heard of it for this time.
const DOUBLED: Duration = Duration::from_secs(300);

pub use accounts::{OPERATOR, accounts, name as account_name};
pub use agent::{Agent, AgentLink};
pub use agent_host::{AgentHost, Granted, LeftAlerts, PluginState};
pub use description::Description;
pub use link::Link;
pub use operator::{Noticed, Operator};
pub use seal::{Key, Keys};
