//! Finds devices that were not heard for a time, without a scan over all of them.

/// A wheel of seconds. Each device is in one slot: that of the second in which it must be checked next. A heartbeat
/// does not move it; when its slot comes, it is either late or gets a later slot.
pub(super) struct Wheel {
    slots: Vec<Vec<u32>>,
    /// The second up to which all slots were checked.
    now: u32,
}

impl Wheel {
    /// A wheel for devices that are late after this number of seconds.
    pub(super) fn new(now: u32, patience: u32) -> Self {
        // One slot more, so that a device heard now does not land in the slot of now.
        Self { slots: vec![Vec::new(); patience as usize + 1], now }
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    fn slot(&mut self, second: u32) -> &mut Vec<u32> {
        let count = self.slots.len();
        &mut self.slots[second as usize % count]
    }

    /// Schedules the check of a device for a second after now.
    pub(super) fn check_at(&mut self, device: u32, second: u32) {
        self.slot(second).push(device);
    }

    /// Moves on by one second, at most to `until`. Returns the devices to check; `None` at the end.
    pub(super) fn turn(&mut self, until: u32) -> Option<Vec<u32>> {
        if self.now >= until {
            return None;
        }
        // A longer jump would check the same slots again.
        self.now = (self.now + 1).max(until.saturating_sub(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        let now = self.now;
        Some(std::mem::take(self.slot(now)))
    }
}
