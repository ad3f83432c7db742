//! The types of one poll.

use crate::memory;
use crate::settings::Settings;
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::SortedMap;

/// The state of one poll.
pub(crate) type PollContext = proxmox::PollContext<Settings, memory::Memory>;

pub(crate) type Memory = proxmox::Memory<memory::Memory>;

/// Privileges by path, and whether each is propagated.
pub(crate) type Permissions = SortedMap<String, SortedMap<String, Field<Flag>>>;
