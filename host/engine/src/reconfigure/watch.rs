//! Watching the configuration's file and the files that it names.

use super::Reconfigurer;
use super::named_files::NamedFiles;
use crate::prepare::Files;
use config::{Document, Problem, Stamp};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

/// The interval of the checks. Checking works on every file system, unlike events.
const INTERVAL: Duration = Duration::from_secs(1);
/// A file that is missing at this many checks is not being replaced by an editor.
const GONE: u32 = 5;

/// The state of the configuration's file between checks.
struct Watched {
    /// When it was last applied.
    applied: Option<Stamp>,
    /// At the last check.
    before: Option<Stamp>,
    /// Checks in a row that did not find it.
    missing: u32,
    /// Named files that changed since the last reload.
    changed: HashSet<PathBuf>,
}

impl Reconfigurer {
    /// Applies the file whenever it, or a file that it names, changed and has been stable for one check, and at once on
    /// SIGHUP. `named`: the files that it names, as they were before they were read.
    pub async fn watch(self: Arc<Self>, mut named: NamedFiles, mut hangup: Signal, ending: CancellationToken) {
        let Document { path: Some(path), stamp, name, .. } = self.state.lock().await.document.clone() else { return };
        let mut watched = Watched { applied: stamp, before: stamp, missing: 0, changed: HashSet::new() };
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(()) = hangup.recv() => {
                    tracing::info!("SIGHUP: {name} is read again");
                    watched.applied = Stamp::of(&path);
                    watched.changed.clear();
                    named = self.reload(Files::All).await.unwrap_or(named);
                    continue;
                }
                () = ending.cancelled() => return,
            }
            // On a separate thread: a file system that hangs delays nothing else.
            let file = path.clone();
            let check = move || (Stamp::of(&file), named.changed(), named);
            let checked = tokio::select! {
                checked = tokio::task::spawn_blocking(check) => checked,
                () = ending.cancelled() => return,
            };
            let Ok((now, changed, checked)) = checked else { return };
            named = checked;
            watched.changed.extend(changed);
            watched.missing = if now.is_none() { watched.missing + 1 } else { 0 };
            if watched.missing == GONE {
                let message =
                    "the file is gone; the host keeps its running configuration, and cannot start again without it";
                let problem = Problem { place: name.clone(), message: message.to_owned() };
                self.refuse(&mut *self.state.lock().await, &[problem]);
                watched.applied = None;
            }
            let is_stable = now.is_some() && now == watched.before;
            if is_stable && (now != watched.applied || !watched.changed.is_empty()) {
                // A file of the configuration that changed may name other files, or the same ones that were unreadable
                // before.
                let files = match now == watched.applied {
                    true => Files::Changed(std::mem::take(&mut watched.changed)),
                    false => Files::All,
                };
                watched.applied = now;
                watched.changed.clear();
                named = self.reload(files).await.unwrap_or(named);
            }
            watched.before = now;
        }
    }
}
