//! The plugin files of this host in a fleet: those that it offers as an operator, and takes as an agent.

use broker::{Operator, PluginState};
use catalog::{BUILT_IN, Served};
use engine::Reconfigurer;
use fleet::wire::{LARGEST_PLUGIN, OfferedPlugin};
use model::Kind;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time between two comparisons, which is also that between two scans of the plugin directory.
const LOOK: Duration = Duration::from_secs(1);

/// Offers the files that serve kinds here, until it is dropped.
pub(crate) async fn offer(operator: Operator, reconfigurer: Arc<Reconfigurer>) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        operator.offer(offered(&reconfigurer));
    }
}

/// The files that serve kinds here.
pub(crate) fn offered(reconfigurer: &Reconfigurer) -> Vec<(OfferedPlugin, PathBuf)> {
    reconfigurer.plugins().served().filter_map(|served| of_file(served)).collect()
}

fn of_file(served: &Served) -> Option<(OfferedPlugin, PathBuf)> {
    let size = u32::try_from(served.plugin.size()?).ok().filter(|size| *size <= LARGEST_PLUGIN)?;
    let kind = served.plugin.descriptor().kind.to_string();
    let plugin = OfferedPlugin { kind, digest: served.plugin.digest(), size };
    (served.source != BUILT_IN).then(|| (plugin, PathBuf::from(&served.source)))
}

/// The plugin directory of an agent that takes plugins.
pub(crate) struct Taken {
    pub(crate) reconfigurer: Arc<Reconfigurer>,
    pub(crate) directory: PathBuf,
}

impl Taken {
    /// Whether the plugin serves its kind or can: one of this host's own takes precedence.
    pub(crate) fn state(&self, plugin: &OfferedPlugin) -> PluginState {
        let Ok(kind) = Kind::new(&plugin.kind) else { return PluginState::Settled };
        let file = self.directory.join(file(&kind));
        if let Some(served) = self.reconfigurer.plugins().get(&kind)
            && (served.plugin.digest() == plugin.digest || Path::new(&served.source) != file)
        {
            return PluginState::Settled;
        }
        let has = |content: Vec<u8>| Sha256::digest(content)[..] == plugin.digest[..];
        let is_present = std::fs::read(file).is_ok_and(has);
        if is_present { PluginState::Present } else { PluginState::Missing }
    }

    /// Adds the file. The watcher of the directory judges it like any other.
    pub(crate) fn add(&self, plugin: &OfferedPlugin, content: &[u8]) -> Result<(), String> {
        let kind = Kind::new(&plugin.kind).map_err(|error| error.to_string())?;
        catalog::add_file(&self.directory, &file(&kind), content).map_err(|error| error.to_string())
    }
}

/// The file of a kind whose plugin the operator offers.
fn file(kind: &Kind) -> String {
    format!("fleet-{kind}.wasm")
}
