//! Many hosts as one: the records that agents publish, and their aggregation by an operator. Pure: this crate has no
//! network, clock or database.
//!
//! - [`Aggregator`] counts, for each deployment, the matching devices by phase. It is a function of the records that
//!   arrived, in any order and any number of times: a record is a register that the newest [`Stamp`] wins, and counters
//!   follow from the register's previous value. No event counts alone.
//! - [`Selector`] chooses the devices of a deployment by their [`Labels`], as in Kubernetes.
//! - [`wire`] defines the bytes of each record; [`names`](mod@names) the ids that may be part of a subject.
//!
//! Invariant: after any sequence of inputs, the counters of a deployment are those that a recount over the newest
//! records gives (`tests/aggregator`).

#![forbid(unsafe_code)]

mod aggregate;
mod aggregator;
mod definition;
pub mod labels;
pub mod names;
mod selector;
mod stamp;
mod view;
pub mod wire;

pub use aggregate::{Aggregate, Applied, Happened, Input, Patch};
pub use aggregator::{Aggregator, DeviceView, LEGROOM, PREFETCHED, STALE_AFTER};
pub use definition::{read_deployment, read_stored, show_deployment, stored};
pub use labels::{InvalidLabel, Labels};
pub use model::Phase;
pub use selector::{Requirement, Selector};
pub use stamp::{Stamp, digest};
pub use view::{
    AgentView, DeploymentView, DeviceDetail, DeviceFilter, Failures, FleetView, KubernetesState, LinkState, PluginView,
};
