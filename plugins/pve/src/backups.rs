//! Backups that Proxmox VE makes itself: guests in no backup job, and the results of the last runs.

mod coverage;
mod runs;
mod shared;

use crate::context::PollContext;
use crate::nodes::{Node, Nodes};
use crate::resources::Guest;
use std::time::Duration;

const CHECK: &str = "backup";
/// How often backups are checked. They run daily.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// The families of the last runs.
const RUNS: [&str; 2] = ["backup/node/", "backup/guest/"];
/// A check that could not read everything runs again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// `cluster` is the name of the cluster, or of a standalone node.
pub(crate) fn report(context: &mut PollContext, guests: &[Guest<'_>], nodes: &Nodes, cluster: &str) {
    let wanted = |node: &Node| node.wanted && context.settings.backups.runs;
    let offline: Vec<&String> =
        nodes.iter().filter(|(_, node)| node.is_offline() && wanted(node)).map(|(name, _)| name).collect();
    for name in offline {
        context
            .mark_unknown(format!("backup/node/{name}"), format!("it cannot be checked: its node {name} is offline"));
    }
    if !context.is_due(CHECK) {
        return context.report.keep(shared::PART.1[0]);
    }
    let settings = &context.settings.backups;
    for (is_checked, families) in [(settings.coverage, &[shared::PART.0][..]), (settings.runs, &RUNS)] {
        families.iter().filter(|_| !is_checked).for_each(|family| context.report.remove(*family));
    }
    let (covered, jobs) =
        if context.settings.backups.coverage { coverage::report(context, guests, cluster) } else { (true, Vec::new()) };
    let runs = !context.settings.backups.runs || runs::report(context, guests, nodes, &jobs);
    context.checked(CHECK, if covered && runs { PERIOD } else { AGAIN });
}
