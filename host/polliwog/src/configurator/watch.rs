//! Looking at the configuration's file and at those that it names.

use super::Configurator;
use crate::common::{Document, Stamp};
use config::{Config, Problem, TargetConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at. Looking works on every file system, unlike being told.
const LOOK: Duration = Duration::from_secs(1);
/// A file that is gone for so many looks is no longer being replaced by an editor.
const GONE: u32 = 5;

impl Configurator {
    /// Reads the file again whenever it, or one that it names, has changed and stood still for a look, and at once when it is
    /// asked to by SIGHUP. `named`: those, as they were before they were read.
    pub(crate) async fn watch(self: Arc<Self>, mut named: Named, mut hangup: Signal, ending: CancellationToken) {
        let Document { path: Some(path), stamp, name, .. } = self.state.lock().await.document.clone() else { return };
        let (mut taken, mut before, mut gone, mut another) = (stamp, stamp, 0, false);
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(()) = hangup.recv() => {
                    tracing::info!("SIGHUP: {name} is read again");
                    (taken, another) = (Stamp::of(&path), false);
                    if let Some(found) = self.reload().await {
                        named = found;
                    }
                    continue;
                }
                () = ending.cancelled() => return,
            }
            // On a thread of its own: a file system that hangs holds up nothing else.
            let file = path.clone();
            let look = move || (Stamp::of(&file), named.have_changed(), named);
            let looked = tokio::select! {
                looked = tokio::task::spawn_blocking(look) => looked,
                () = ending.cancelled() => return,
            };
            let Ok((now, changed, looked)) = looked else { return };
            (named, another) = (looked, another || changed);
            gone = if now.is_none() { gone + 1 } else { 0 };
            if gone == GONE {
                let message =
                    "the file is gone; the host goes on as it was, and cannot start again without it".to_owned();
                self.refuse(&mut *self.state.lock().await, &[Problem { place: name.clone(), message }]);
                taken = None;
            }
            if now.is_some() && now == before && (now != taken || another) {
                (taken, another) = (now, false);
                if let Some(found) = self.reload().await {
                    named = found;
                }
            }
            before = now;
        }
    }
}

/// The files that a configuration names.
pub(crate) struct Named(BTreeMap<PathBuf, Looks>);

/// What a file was like when it was taken up, and at the last look.
#[derive(Clone, Copy)]
struct Looks {
    taken: Option<Stamp>,
    last: Option<Stamp>,
}

impl Named {
    /// As they are now. To be asked before they are read.
    pub(crate) fn by(config: &Config) -> Self {
        let files = config.targets.iter().flat_map(TargetConfig::files);
        let looks = |path: &Path| {
            let now = Stamp::of(path);
            (path.to_owned(), Looks { taken: now, last: now })
        };
        Self(files.map(looks).collect())
    }

    /// Looks at them: whether one has changed and stood still for a look. It is taken up then.
    fn have_changed(&mut self) -> bool {
        let mut changed = false;
        for (path, Looks { taken, last }) in &mut self.0 {
            let now = Stamp::of(path);
            if now != *taken && now == *last {
                (*taken, changed) = (now, true);
            }
            *last = now;
        }
        changed
    }
}
