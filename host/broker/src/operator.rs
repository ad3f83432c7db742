//! The operator of a fleet: counts what agents report, and assigns deployments to devices.
//!
//! One loop over one enum of inputs owns the [`Aggregator`]: records from the broker, heartbeats, definitions of
//! deployments, and the second. Readers take its lock for a moment.
//!
//! The operator can always read its memory again from the broker, and the agents send again whatever the broker loses.
//! Counters are kept while the broker is away or empty; devices become stale by their heartbeats alone.
//!
//! Several operators may run. All of them count, and take over each other's definitions from the broker, the newest
//! version of each; the one with the lease assigns.

mod assignments;
mod detail;
mod disagreements;
mod kept;
mod noticed;
mod phases;
mod plugins;
mod records;
mod requests;
mod shared;
mod state;
mod work;

use crate::bucket::definition;
use crate::connection::Connection;
use crate::leases::leases;
use crate::link::Link;
use detail::detail;
use fleet::wire::{Deployment, OfferedPlugin};
use fleet::{DeploymentView, DeviceDetail, DeviceFilter, DeviceView, Failures, FleetView, LinkState};
use kept::KEPT;
use model::{KeptPlace, KeptRecord, LogPage, Timestamp};
pub use noticed::Noticed;
use shared::Shared;
use state::State;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use work::Work;

/// A handle of the operator, for readers and for definitions.
#[derive(Clone)]
pub struct Operator {
    shared: Arc<Shared>,
}

impl Operator {
    /// Begins to connect, and returns the handle, the changes that the host stores, and the loop, which runs
    /// until it is dropped. `name` differs from those of other operators.
    ///
    /// # Errors
    /// If the URL is not valid.
    pub async fn connect(
        link: Link,
        (name, replicas): (String, usize),
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Noticed>, impl Future<Output = ()> + Send), String> {
        let connection = Connection::open(&link).await?;
        let (leases, competing) = leases(connection.clone(), name.clone(), link.seed);
        // It ends when the loop is dropped.
        tokio::spawn(competing);
        let standing = leases.standing.clone();
        let (notices, noticed) = mpsc::unbounded_channel();
        let state = Mutex::new(State::new());
        let (keys, defined, offered) = (link.keys, Notify::new(), Notify::new());
        let (began, began_at, places) = (Instant::now(), Mutex::new(now()), Mutex::default());
        let now = Box::new(now);
        let shared = Arc::new(Shared { name, connection, keys, state, now, began, began_at, places, defined, offered });
        let work = Work::new(shared.clone(), leases, notices);
        let storing = plugins::store(shared.clone(), standing, replicas);
        let work = async move {
            tokio::select! {
                () = work.run(replicas) => {}
                () = storing => {}
            }
        };
        Ok((Self { shared }, noticed, work))
    }

    /// Takes over a record that an earlier run read, before the loop runs.
    pub fn restore(&self, record: &KeptRecord, now: Timestamp) {
        if let Some(bucket) = KEPT.into_iter().find(|bucket| bucket.stream() == record.stream) {
            let found = (bucket, record.key.as_str(), &record.payload[..]);
            records::apply(&mut self.shared.state(), &self.shared.keys, found, now);
        }
    }

    /// Continues where an earlier run stopped reading, after all its records are restored.
    pub fn resume(&self, places: Vec<KeptPlace>) {
        if !places.is_empty() {
            self.shared.state().aggregator.match_devices();
        }
        *self.shared.places() = places;
    }

    /// Takes over a definition of a deployment, unless a later version is known.
    pub fn define(&self, name: &str, deployment: Deployment) {
        let mut state = self.shared.state();
        if state.define(name, deployment) {
            state.redefined.push(definition(name));
            drop(state);
            self.shared.defined.notify_one();
            self.shared.offered.notify_one();
        }
    }

    /// Offers these plugin files, instead of those before, to devices whose deployments need their kinds.
    pub fn offer(&self, plugins: Vec<(OfferedPlugin, PathBuf)>) {
        let mut state = self.shared.state();
        state.offer(plugins);
        if state.is_reoffered {
            drop(state);
            self.shared.defined.notify_one();
            self.shared.offered.notify_one();
        }
    }

    /// Returns the version of a deployment, also of one that is deleted; 0 if it never was.
    pub fn version(&self, name: &str) -> u64 {
        self.shared.state().version(name)
    }

    /// Returns whether the broker can be reached.
    pub fn link(&self) -> LinkState {
        self.shared.connection.state()
    }

    /// Returns the fleet as a whole.
    pub fn view(&self) -> FleetView {
        let state = self.shared.state();
        let (devices, stale) = state.aggregator.device_counts();
        FleetView {
            link: self.link(),
            is_complete: state.is_complete(),
            devices,
            stale,
            refused: state.refused.clone(),
            doubled: state.doubled(self.shared.seconds()),
            unassigned: state.unassigned.clone(),
            waits_for: state.waits_for.clone(),
            plugins: state.plugin_views(),
            kubernetes: None,
        }
    }

    /// Returns all deployments by name.
    pub fn deployments(&self) -> Vec<DeploymentView> {
        let state = self.shared.state();
        state.names().filter_map(|name| state.deployment(name)).collect()
    }

    /// Returns the deployments that failed as a whole, at most `limit` of them with what they are.
    pub fn failures(&self, limit: usize) -> Failures {
        self.shared.state().failures(limit)
    }

    /// Returns devices that are not heard, at most `limit`.
    pub fn silent(&self, limit: usize) -> Vec<DeviceView> {
        self.shared.state().aggregator.stale_devices(limit)
    }

    /// Returns a deployment; `None` if it is not defined.
    pub fn deployment(&self, name: &str) -> Option<DeploymentView> {
        self.shared.state().deployment(name)
    }

    /// Returns devices of a deployment with a phase, at most `limit`; stale devices have none.
    pub fn devices_of(&self, deployment: &str, limit: usize) -> Vec<DeviceView> {
        self.shared.state().aggregator.devices_of(deployment, |_, _| true, limit)
    }

    /// Returns the devices from a number on that are wanted, at most `limit`, and the number of the next one, if any.
    pub fn devices_from(&self, first: u32, filter: &DeviceFilter, limit: usize) -> (Vec<DeviceView>, Option<u32>) {
        self.shared.state().aggregator.devices_from(first, |device| filter.takes(device), limit)
    }

    /// Returns lines of a device's log, which the device answers: those after the line with a number, or the newest,
    /// at most `limit`. The answer may be delayed by `wait`, until there is a line. `None` if the id is unknown; the
    /// reason in words if the device does not answer.
    pub async fn log(&self, id: &str, of: (Option<u64>, u32), wait: Duration) -> Option<Result<LogPage, String>> {
        self.shared.state().aggregator.device_view(id)?;
        Some(self.shared.log_of(id, of, wait).await)
    }

    /// Returns what the API of a device answers to a read of a path: the status and the body. `None` if the id is
    /// unknown; the reason in words if the device does not answer.
    pub async fn read(&self, id: &str, path: String) -> Option<Result<(u16, String), String>> {
        self.shared.state().aggregator.device_view(id)?;
        Some(self.shared.read_of(id, path).await)
    }

    /// Returns the time of a second of the aggregator's clock.
    pub fn wall(&self, second: u32) -> Timestamp {
        self.shared.wall(second)
    }

    /// Returns a device with what it reports; `None` if its id is unknown. What the broker cannot give is missing, and
    /// the reason is part of the answer.
    pub async fn device(&self, id: &str) -> Option<DeviceDetail> {
        let (view, skew) = {
            let state = self.shared.state();
            (state.aggregator.device_view(id)?, state.skews.get(id).copied())
        };
        Some(detail(&self.shared, (view, skew)).await)
    }
}
