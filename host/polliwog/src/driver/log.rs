//! What the log says of events: those after which somebody may have to do something, and their ends.

use crate::plugins::PluginSet;
use model::{Event, EventKind, Failure};

/// Of a target's events, and why its poll failed where that brought them about.
pub(super) fn of_target(events: &[Event], failure: Option<&Failure>) {
    let why = failure.map(|failure| format!(": {} ({})", failure.message, failure.code)).unwrap_or_default();
    let has = |is: fn(&EventKind) -> bool| events.iter().any(|event| is(&event.kind));
    for event in events {
        match &event.kind {
            // A dead letter's breaker opens and closes as well; one line is enough.
            EventKind::CircuitOpen { .. } if has(|kind| matches!(kind, EventKind::DeadLetter { .. })) => {}
            EventKind::CircuitClose { .. } if has(|kind| matches!(kind, EventKind::Revived { .. })) => {}
            EventKind::CircuitOpen { target, failures } => {
                tracing::warn!("{target} failed {failures} times in a row and is left alone for a while{why}");
            }
            EventKind::DeadLetter { target, .. } => {
                tracing::warn!("{target} is a dead letter: it is polled rarely until it answers{why}");
            }
            EventKind::CircuitClose { target } | EventKind::Revived { target } => {
                tracing::info!("{target} is polled again as it was");
            }
            _ => {}
        }
    }
}

/// Of an event of no one target.
pub(super) fn of_plugin(kind: &EventKind, plugins: &PluginSet) {
    if let EventKind::PluginQuarantined { plugin, targets } = kind {
        let source = plugins.get(plugin).map_or("no plugin", |served| &served.source);
        tracing::warn!(
            "{source} is in quarantine: the latest polls of {targets} targets of kind {plugin}, one after another, ended in \
             faults of its own; it is tried every 5 min, and when its file changes (`polliwog plugin list` says why)"
        );
    }
}
