//! Fetches the plugins that the operator offers and this host lacks.

use crate::agent_host::{AgentHost, PluginState};
use crate::bucket::{Bucket, plugin_part, plugin_parts};
use crate::record::last;
use async_nats::jetstream::Context;
use fleet::wire::OfferedPlugin;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// New deployments wait this long for their plugins. A target without a plugin would fail for a moment.
const PATIENCE: Duration = Duration::from_secs(15);

/// The plugins of the last assignment.
pub(super) struct Plugins<H> {
    host: Arc<H>,
    fetching: Option<JoinHandle<()>>,
    /// Why the last attempt failed.
    problem: Arc<Mutex<Option<String>>>,
    /// The plugins that do not serve yet, and the time since which they are the same.
    awaited: Option<(Vec<OfferedPlugin>, Instant)>,
}

impl<H: AgentHost> Plugins<H> {
    pub(super) fn new(host: Arc<H>) -> Self {
        Self { host, fetching: None, problem: Arc::default(), awaited: None }
    }

    /// Fetches what the host lacks, unless that goes on already. Returns whether the deployments should wait for it.
    pub(super) async fn prepare(&mut self, offered: &[OfferedPlugin], context: &Context) -> bool {
        let states = {
            let (host, offered) = (self.host.clone(), offered.to_vec());
            let states = move || offered.into_iter().map(|plugin| (host.plugin(&plugin), plugin)).collect::<Vec<_>>();
            tokio::task::spawn_blocking(states).await.unwrap_or_default()
        };
        let missing = states.iter().filter(|(state, _)| *state == PluginState::Missing);
        let missing: Vec<OfferedPlugin> = missing.map(|(_, plugin)| plugin.clone()).collect();
        let awaited = states.into_iter().filter(|(state, _)| *state != PluginState::Settled);
        let awaited: Vec<OfferedPlugin> = awaited.map(|(_, plugin)| plugin).collect();
        if missing.is_empty() {
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = None;
        } else if self.fetching.as_ref().is_none_or(JoinHandle::is_finished) {
            self.fetching =
                Some(tokio::spawn(fetch(self.host.clone(), context.clone(), missing, self.problem.clone())));
        }
        if self.awaited.as_ref().is_none_or(|(known, _)| *known != awaited) {
            self.awaited = Some((awaited, Instant::now()));
        }
        self.awaited.as_ref().is_some_and(|(awaited, since)| !awaited.is_empty() && since.elapsed() < PATIENCE)
    }

    /// Why the last attempt failed; `None` if everything is there.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn fetch<H: AgentHost>(
    host: Arc<H>,
    context: Context,
    missing: Vec<OfferedPlugin>,
    problem: Arc<Mutex<Option<String>>>,
) {
    let mut found = None;
    for plugin in missing {
        let kind = plugin.kind.clone();
        let added = match read(&context, &plugin).await {
            Ok(content) => {
                let host = host.clone();
                let added = tokio::task::spawn_blocking(move || host.add_plugin(&plugin, &content)).await;
                added.unwrap_or_else(|_| Err("the host is ending".to_owned()))
            }
            Err(why) => Err(why),
        };
        match added {
            Ok(()) => tracing::info!("the plugin for kind {kind} came from the operator of the fleet"),
            Err(why) => {
                let why = format!("the plugin for kind {kind}, which the operator offers, could not be fetched: {why}");
                found.get_or_insert(why);
            }
        }
    }
    let mut problem = problem.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = found.as_ref().filter(|why| problem.as_ref() != Some(*why)) {
        tracing::warn!("{why}");
    }
    *problem = found;
}

/// Reads the file of a plugin, and compares its digest.
async fn read(context: &Context, plugin: &OfferedPlugin) -> Result<Vec<u8>, String> {
    let stream = context.get_stream_no_info(Bucket::Plugins.stream()).await.map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    for part in 0..plugin_parts(plugin.size) {
        let found = last(&stream, Bucket::Plugins, &plugin_part(&plugin.digest, part)).await?;
        let (payload, _) = found.ok_or("the operator has not stored it at the broker yet")?;
        content.extend_from_slice(&payload);
    }
    let digest: [u8; 32] = Sha256::digest(&content).into();
    if digest == plugin.digest { Ok(content) } else { Err("what the broker has is another file".to_owned()) }
}
