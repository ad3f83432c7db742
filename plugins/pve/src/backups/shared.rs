//! Functions that the checks of backups share.

use crate::context::PollContext;
use crate::resources::Guest;
use proxmox::Part;

/// The part of the report that these checks fill.
pub(super) const PART: Part<'_> = ("backup/coverage", &["backup/"]);

/// Whether a guest needs no backup.
pub(super) fn excluded(context: &PollContext, guest: &Guest<'_>) -> bool {
    guest.is_in(&context.settings.backups.exclude)
}
