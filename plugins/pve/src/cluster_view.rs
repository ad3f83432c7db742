//! The state of the cluster that a poll uses to evaluate guests.

use crate::ha::Services;
use crate::nodes::Nodes;
use crate::tasks::Task;
use std::cell::Cell;
use std::collections::BTreeSet;

/// The state of the cluster at one poll.
pub(crate) struct ClusterView<'a> {
    pub nodes: &'a Nodes,
    pub services: &'a Services,
    pub tasks: &'a [Task],
    /// Nodes that have reported nothing about themselves for less than a minute.
    pub unresponsive: &'a BTreeSet<String>,
    /// The number of guests whose own tasks may still be requested in this poll.
    pub lookups: Cell<u8>,
}
