//! Backups that Proxmox VE makes itself: which guests are in no job, and how the last runs ended.

mod coverage;
mod runs;

use crate::Look;
use crate::nodes::Nodes;
use crate::resources::Guest;
use proxmox::Part;
use std::time::Duration;

const PART: Part<'_> = ("backup/coverage", &["backup/"]);
const RHYTHM: &str = "backup";
/// How often it is looked at. Backups run daily.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// `cluster`: its name, or that of the node that stands alone.
pub(crate) fn report(look: &mut Look, guests: &[Guest], nodes: &Nodes, cluster: &str) {
    for (name, _) in nodes.iter().filter(|(_, node)| node.is_offline()) {
        look.lose(format!("backup/node/{name}"), format!("nobody can see it: its node {name} is offline"));
    }
    if !look.is_due(RHYTHM) {
        return look.report.keep(PART.1[0]);
    }
    let (covered, jobs) =
        if look.settings.backups.coverage { coverage::report(look, guests, cluster) } else { (true, Vec::new()) };
    let runs = !look.settings.backups.runs || runs::report(look, guests, nodes, &jobs);
    look.looked(RHYTHM, if covered && runs { PERIOD } else { AGAIN });
}

/// Whether it needs no backup.
fn excluded(look: &Look, guest: &Guest) -> bool {
    look.settings.backups.exclude.match_any(guest.names().iter().map(String::as_str))
}
