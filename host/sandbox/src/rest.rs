//! Built-in plugins that rest: without their machine code, which most hosts do not use, until they are called.

use crate::fault::plugin_fault;
use crate::load::{map, not_mapped};
use crate::plugin::{Exports, Plugin};
use crate::refusal::Refusal;
use crate::run::Sandbox;
use model::Failure;
use std::sync::Arc;

impl Sandbox {
    /// Returns the exports of a plugin. Those of a built-in plugin that rests are mapped again.
    pub(crate) async fn exports(&self, plugin: &Plugin) -> Result<Arc<Exports>, Failure> {
        if let Some(exports) = plugin.exports() {
            return Ok(exports);
        }
        // One at a time: each unpacks all built-in plugins if the file is gone, and many polls may wait for one plugin.
        let _turn = self.waking.lock().await;
        if let Some(exports) = plugin.exports() {
            return Ok(exports);
        }
        let mapped = async {
            let gone = || Refusal::transient("not_loaded", "its machine code is not loaded");
            let compiled = self.unpacked(plugin.built_in().ok_or_else(gone)?, &Arc::default()).await?;
            let component = map(self.engine(), &compiled.path).map_err(|error| not_mapped(&error))?;
            let (_, interfaces) = self.check_interfaces(&component)?;
            self.link(&component, interfaces)
        };
        let exports = mapped.await.map_err(|refusal| plugin_fault("not_loaded", refusal.message))?;
        Ok(plugin.wake(exports))
    }
}
