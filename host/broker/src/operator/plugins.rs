//! Stores the plugin files that devices need at the broker, under their digests.

use super::shared::Shared;
use crate::bucket::{Bucket, LEADER, PART, plugin_part, plugin_parts};
use crate::leases::Standing;
use crate::record::last;
use async_nats::jetstream::stream::Stream;
use fleet::wire::OfferedPlugin;
use futures_util::TryStreamExt;
use model::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time between two comparisons with the broker, which may have lost them.
const CHECK: Duration = Duration::from_secs(5);

/// Stores what is missing while this operator assigns, and removes what no deployment needs.
pub(super) async fn store(shared: Arc<Shared>, standing: watch::Receiver<BTreeMap<String, Standing>>, replicas: usize) {
    let mut check = tokio::time::interval(CHECK);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = check.tick() => {}
            () = shared.offered.notified() => {}
        }
        let is_first = standing.borrow().get(LEADER).and_then(Standing::right).is_some();
        let needed = shared.state().needed_plugins();
        if is_first && !needed.is_empty() && shared.connection.state().is_connected {
            let unstored = store_all(&shared, needed, replicas).await;
            shared.state().unstored = unstored;
        }
    }
}

/// Returns why plugins are not stored, by their kinds.
async fn store_all(
    shared: &Shared,
    needed: Vec<(OfferedPlugin, PathBuf)>,
    replicas: usize,
) -> BTreeMap<String, String> {
    let context = &shared.connection.context;
    let prepared = async {
        let config = Bucket::Plugins.config(replicas);
        let made = context.get_or_create_stream(config).await;
        made.map_err(|error| format!("the stream {} cannot be made: {error}", Bucket::Plugins.stream()))?;
        let stream = context.get_stream_no_info(Bucket::Plugins.stream()).await.map_err(|error| error.to_string())?;
        let digests = needed.iter().map(|(plugin, _)| hex(&plugin.digest)).collect();
        remove_others(&stream, &digests).await.map(|()| stream)
    };
    let stream = match prepared.await {
        Ok(stream) => stream,
        Err(why) => return needed.into_iter().map(|(plugin, _)| (plugin.kind, why.clone())).collect(),
    };
    let mut unstored = BTreeMap::new();
    for (plugin, file) in needed {
        if let Err(why) = store_one(shared, &stream, (&plugin, &file)).await {
            unstored.insert(plugin.kind, why);
        }
    }
    unstored
}

async fn store_one(
    shared: &Shared,
    stream: &Stream<()>,
    (plugin, file): (&OfferedPlugin, &Path),
) -> Result<(), String> {
    let OfferedPlugin { digest, size, .. } = plugin;
    // The parts are written in order, so the last one says that all are there.
    if last(stream, Bucket::Plugins, &plugin_part(digest, plugin_parts(*size) - 1)).await?.is_some() {
        return Ok(());
    }
    let content = tokio::fs::read(file).await.map_err(|error| format!("{}: {error}", file.display()))?;
    let found: [u8; 32] = Sha256::digest(&content).into();
    if found != *digest {
        return Err(format!("{} has changed, and is offered again once it serves", file.display()));
    }
    for (part, bytes) in content.chunks(PART).enumerate() {
        let subject = Bucket::Plugins.subject(&plugin_part(digest, part));
        let sent = shared.connection.context.publish(subject, bytes.to_vec().into()).await;
        let stored = async { sent.map_err(|error| error.to_string())?.await.map_err(|error| error.to_string()) };
        stored.await.map_err(|why| format!("the broker does not store it: {why}"))?;
    }
    tracing::info!("the plugin for kind {} is at the broker, {size} bytes", plugin.kind);
    Ok(())
}

/// Removes the files with other digests.
async fn remove_others(stream: &Stream<()>, digests: &BTreeSet<String>) -> Result<(), String> {
    let filter = Bucket::Plugins.subject("*.0");
    let found = stream.info_with_subjects(filter).await.map_err(|error| error.to_string())?;
    let subjects: Vec<(String, usize)> = found.try_collect().await.map_err(|error| error.to_string())?;
    for (subject, _) in subjects {
        let digest = Bucket::Plugins.key(&subject).and_then(|key| key.split('.').next());
        if let Some(digest) = digest.filter(|digest| !digests.contains(*digest)) {
            let parts = Bucket::Plugins.subject(&format!("{digest}.*"));
            stream.purge().filter(parts).await.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
