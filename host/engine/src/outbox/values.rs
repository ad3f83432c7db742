//! The values that plugins store for channels.

use super::Outbox;
use crate::target::RuntimeTarget;
use model::{AlertChange, PluginValues};

impl Outbox {
    /// Keeps the values that a plugin stores for a channel.
    pub(super) fn keep(&self, channel: &RuntimeTarget, values: Option<PluginValues>) {
        let Some(values) = values else { return };
        channel.known().values = values.clone();
        let (name, kind) = (channel.id().to_string(), channel.config.kind.clone());
        self.write_changes(vec![AlertChange::Values { channel: name, kind, values }], Vec::new(), || {});
    }

    /// Forgets what a plugin stored for a channel that is not configured any more.
    pub(crate) fn forget_values(&self, channel: &str) {
        let change = AlertChange::ForgetValues(channel.to_owned());
        self.write_changes(vec![change], Vec::new(), || {});
    }
}
