//! The interface to the host that the catalog serves.

use crate::{Refused, Served};
use model::{EventKind, Kind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A running host that polls with the plugins of the catalog.
pub trait Admit: Send + Sync {
    /// Makes a plugin serve a kind from now on; `None` leaves the kind without a plugin. Polls in flight end with the
    /// plugin with which they started. A configuration on disk that only this plugin fits is applied with it.
    ///
    /// # Errors
    /// If settings or secrets of a target of that kind do not fit the plugin: the reason in one sentence. The kind is
    /// then unchanged.
    fn admit(&self, kind: &Kind, served: Option<Arc<Served>>) -> impl Future<Output = Result<(), String>> + Send;

    /// Replaces the list of refused files, and the plugins that wait for a configuration that fits them.
    fn publish(&self, refused: Vec<Refused>, candidates: Vec<Arc<Served>>);

    /// Waits until the configuration was read again. Files that did not fit it may fit now, or serve already.
    fn reconfigured(&self) -> impl Future<Output = ()> + Send;

    /// Returns the kinds that have targets.
    fn kinds_in_use(&self) -> BTreeSet<Kind>;

    /// Records an event.
    fn record(&self, event: EventKind);
}
