//! The types of one poll.

use crate::memory;
use crate::settings::Settings;

/// The state of one poll.
pub(crate) type PollContext = proxmox::PollContext<Settings, memory::Memory>;

pub(crate) type Memory = proxmox::Memory<memory::Memory>;
