//! What else a poll knows of the cluster when it judges guests.

use crate::ha::Services;
use crate::nodes::Nodes;
use crate::tasks::Task;
use std::cell::Cell;
use std::collections::BTreeSet;

/// What else is known of the cluster.
pub(crate) struct ClusterView<'a> {
    pub nodes: &'a Nodes,
    pub services: &'a Services,
    pub tasks: &'a [Task],
    /// Nodes that fell silent a moment ago.
    pub unresponsive: &'a BTreeSet<String>,
    /// How many guests' own tasks may be asked for at this poll.
    pub lookups: Cell<u8>,
}
