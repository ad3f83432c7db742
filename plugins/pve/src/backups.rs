//! Backups that Proxmox VE makes itself: which guests are in no job, and how the last runs ended.

mod coverage;
mod runs;

use crate::PollContext;
use crate::nodes::Nodes;
use crate::resources::Guest;
use proxmox::Part;
use std::time::Duration;

const PART: Part<'_> = ("backup/coverage", &["backup/"]);
const CHECK: &str = "backup";
/// How often it is looked at. Backups run daily.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// `cluster`: its name, or that of the node that stands alone.
pub(crate) fn report(context: &mut PollContext, guests: &[Guest], nodes: &Nodes, cluster: &str) {
    for (name, _) in nodes.iter().filter(|(_, node)| node.is_offline()) {
        context.mark_unknown(format!("backup/node/{name}"), format!("nobody can see it: its node {name} is offline"));
    }
    if !context.is_due(CHECK) {
        return context.report.keep(PART.1[0]);
    }
    let (covered, jobs) =
        if context.settings.backups.coverage { coverage::report(context, guests, cluster) } else { (true, Vec::new()) };
    let runs = !context.settings.backups.runs || runs::report(context, guests, nodes, &jobs);
    context.checked(CHECK, if covered && runs { PERIOD } else { AGAIN });
}

/// Whether it needs no backup.
fn excluded(context: &PollContext, guest: &Guest) -> bool {
    context.settings.backups.exclude.match_any(guest.names().iter().map(String::as_str))
}
