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
mod logs;
mod noticed;
mod state;

use crate::bucket::{Bucket, LEADER, META, assigned, definition, of_definition, of_heartbeat, of_shard, resync};
use crate::connection::Connection;
use crate::feed::{Fed, feed};
use crate::leases::{Leases, Standing, leases};
use crate::link::Link;
use crate::record::{Answer, answer};
use crate::seal::Keys;
use assignments::{Assignments, Draft, Outcome, hash, meaning, owner, write};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use detail::detail;
use fleet::names::{of_info_key, of_state_key};
use fleet::wire::{Assignment, Deployment, DeploymentState, DeviceInfo, HeartbeatPayload, Lease, decode};
use fleet::{Applied, DeploymentView, DeviceDetail, DeviceFilter, DeviceView, FleetView, Input};
use futures_util::StreamExt;
use model::{EventKind, LogPage, Timestamp};
pub use noticed::Noticed;
use noticed::Phases;
use state::State;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Records that wait for the loop.
const WAITING: usize = 10_000;
/// After this number of heartbeats in a row that do not agree with what is held, the agent has to send all its records.
const DISAGREEMENTS: u8 = 3;
/// A clock of a device that differs by more than this is shown.
const SKEW: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A handle of the operator, for readers and for definitions.
#[derive(Clone)]
pub struct Operator {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    keys: Keys,
    state: Mutex<State>,
    began: Instant,
    /// Notified after a change of the deployments.
    defined: Notify,
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
        let (leases, competing) = leases(connection.clone(), name, link.seed);
        // It ends when the loop is dropped.
        tokio::spawn(competing);
        let (notices, noticed) = mpsc::unbounded_channel();
        let state = Mutex::new(State::new());
        let (keys, defined) = (link.keys, Notify::new());
        let shared = Arc::new(Shared { connection, keys, state, began: Instant::now(), defined });
        let work = Work {
            shared: shared.clone(),
            now: Box::new(now),
            leases,
            term: None,
            notices,
            phases: Phases::default(),
            assignments: Assignments::default(),
            unsigned: None,
            disagreeing: HashMap::new(),
        };
        Ok((Self { shared }, noticed, work.run(replicas)))
    }

    /// Takes over a definition of a deployment, unless a later version is known.
    pub fn define(&self, name: &str, deployment: Deployment) {
        let mut state = self.shared.state();
        if state.define(name, deployment) {
            state.redefined.push(definition(name));
            drop(state);
            self.shared.defined.notify_one();
        }
    }

    /// Returns the version of a deployment, also of one that is deleted; 0 if it never was.
    pub fn version(&self, name: &str) -> u64 {
        self.shared.state().version(name)
    }

    /// Returns the fleet as a whole.
    pub fn view(&self) -> FleetView {
        let state = self.shared.state();
        let (devices, stale) = state.aggregator.device_counts();
        FleetView {
            link: self.shared.connection.state(),
            is_complete: state.is_complete(),
            devices,
            stale,
            refused: state.refused.clone(),
            unassigned: state.unassigned.clone(),
            waits_for: state.waits_for.clone(),
            kubernetes: None,
        }
    }

    /// Returns all deployments by name.
    pub fn deployments(&self) -> Vec<DeploymentView> {
        let state = self.shared.state();
        state.names().filter_map(|name| state.deployment(name)).collect()
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
        Some(logs::read(&self.shared.connection.client, id, of, wait).await)
    }

    /// Returns the seconds since a second of the aggregator's clock.
    pub fn ago(&self, second: u32) -> u32 {
        self.shared.seconds().saturating_sub(second)
    }

    /// Returns a device with what it reports; `None` if its id is unknown. What the broker cannot give is missing.
    pub async fn device(&self, id: &str) -> Option<DeviceDetail> {
        let (view, skew) = {
            let state = self.shared.state();
            (state.aggregator.device_view(id)?, state.skews.get(id).copied())
        };
        Some(detail(&self.shared.connection.context, &self.shared.keys, (view, skew)).await)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX)
    }
}

/// The loop's own state.
struct Work {
    shared: Arc<Shared>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    leases: Leases,
    /// The term under which this operator assigned last; `None` while it waits.
    term: Option<u64>,
    notices: mpsc::UnboundedSender<Noticed>,
    phases: Phases,
    assignments: Assignments,
    /// The text by which agents know the stream of states, while it is not written.
    unsigned: Option<String>,
    /// How often in a row the heartbeat of a device did not agree.
    disagreeing: HashMap<String, u8>,
}

impl Work {
    async fn run(mut self, replicas: usize) {
        let (into, mut fed) = mpsc::channel(WAITING);
        let (shared, connection) = (self.shared.clone(), self.shared.connection.clone());
        let mut feeds = tokio::task::JoinSet::new();
        for bucket in Bucket::ALL {
            feeds.spawn(feed(connection.clone(), bucket, replicas, into.clone()));
        }
        let mut heartbeats = loop {
            match connection.client.subscribe("heartbeat.*").await {
                Ok(heartbeats) => break heartbeats,
                Err(_) => tokio::time::sleep(SECOND).await,
            }
        };
        let (done, mut written) = mpsc::channel::<Vec<Outcome>>(1);
        let mut is_writing = false;
        let mut second = tokio::time::interval(SECOND);
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                Some(fed) = fed.recv() => self.fed(fed).await,
                Some(message) = heartbeats.next() => self.heard(&message.subject, &message.payload).await,
                // The assignments below follow.
                () = shared.defined.notified() => {}
                _ = self.leases.standing.changed() => self.lease_changed(),
                Some(results) = written.recv() => {
                    is_writing = false;
                    self.assigned(results).await;
                }
                _ = second.tick() => {
                    self.tick();
                    self.sign().await;
                }
                else => return,
            }
            if !is_writing {
                let drafts = self.next_assignments();
                is_writing = !drafts.is_empty();
                if is_writing {
                    let (context, done) = (connection.context.clone(), done.clone());
                    // The loop ends with the host.
                    tokio::spawn(async move { drop(done.send(write(context, drafts).await).await) });
                }
            }
        }
    }

    /// A second has passed: devices may be stale now, and changes of the last second are shown.
    fn tick(&mut self) {
        let seconds = self.shared.seconds();
        let mut state = self.shared.state();
        state.aggregator.tick(seconds);
        let changed = state.aggregator.drain();
        let stale = state.aggregator.take_restaled().into_iter().map(|(device, is_stale)| match is_stale {
            true => EventKind::FleetDeviceStale { device },
            false => EventKind::FleetDeviceHeard { device },
        });
        let phases = self.phases.changes(&state, changed.into_iter().map(|patch| patch.deployment));
        for event in phases.into_iter().chain(stale) {
            // The host stores it, unless it is ending.
            let _ = self.notices.send(Noticed::Happened(event));
        }
    }

    async fn fed(&mut self, fed: Fed) {
        match fed {
            Fed::Attached(bucket, incarnation) => {
                if bucket == Bucket::State {
                    self.unsigned = Some(incarnation);
                    self.sign().await;
                }
                if bucket == Bucket::Assignments {
                    self.assignments.forget();
                }
                if bucket == Bucket::Leases {
                    // Before the stream is there, a read of the lease is not answered, and would cost its whole time.
                    self.leases.want(BTreeSet::from([LEADER.to_owned()]));
                }
                self.shared.connection.set_problem(None);
            }
            Fed::Record(bucket, key, payload, revision) => self.record(bucket, &key, &payload, revision),
            Fed::CaughtUp(bucket) => {
                {
                    let mut state = self.shared.state();
                    match bucket {
                        Bucket::Info => {
                            state.caught.info = true;
                            state.aggregator.match_devices();
                        }
                        Bucket::State => state.caught.state = true,
                        Bucket::Leases => state.caught.leases = true,
                        Bucket::Assignments => state.caught.assignments = true,
                    }
                }
                if bucket == Bucket::Assignments {
                    self.recheck_all();
                }
                // Every later change is one that happened while this operator counted.
                self.tick();
            }
            Fed::Failed(bucket, why) => {
                if bucket == Bucket::Assignments {
                    // Its revisions are not known until it is read again.
                    self.shared.state().caught.assignments = false;
                }
                if self.shared.connection.state().is_connected {
                    self.shared.connection.set_problem(Some(why));
                }
            }
        }
    }

    /// Writes the text by which agents know the stream, if it is not there. Agents wait until then: it is tried again
    /// each second.
    async fn sign(&mut self) {
        let Some(incarnation) = self.unsigned.clone() else { return };
        let message = PublishMessage::build().payload(incarnation.into()).expected_last_subject_sequence(0);
        let subject = Bucket::State.subject(META);
        let Ok(sent) = self.shared.connection.context.send_publish(subject, message).await else { return };
        match answer(sent).await {
            // An earlier operator may have written it.
            Answer::Stored(_) | Answer::Other(1..) => self.unsigned = None,
            Answer::Other(0) => {}
            Answer::Unknown(why) => tracing::debug!("the broker does not store the sign of the stream: {why}"),
        }
    }

    fn record(&mut self, bucket: Bucket, key: &str, payload: &Bytes, revision: u64) {
        let now = (self.now)();
        let (mut state, keys, subject) = (self.shared.state(), &self.shared.keys, bucket.subject(key));
        match bucket {
            Bucket::Info => match of_info_key(key).map(|id| (id, keys.read::<DeviceInfo>((id, &subject), payload))) {
                Some((device, Ok(info))) => {
                    let (stamp, floor, labels) = (info.stamp(), info.floor, Some(&info.labels));
                    state.aggregator.apply(&Input::Info { device, stamp, floor, labels });
                }
                Some((_, Err(why))) => state.refuse(key, why),
                None => state.refuse(key, "this is not the key of a device"),
            },
            Bucket::State if key == META => {}
            Bucket::State => match of_state_key(key).map(|(id, name)| (id, name, keys.read((id, &subject), payload))) {
                Some((device, deployment, Ok(found))) => {
                    let found: DeploymentState = found;
                    let applied = state.aggregator.apply(&Input::State {
                        device,
                        deployment,
                        stamp: found.stamp(),
                        phase: found.phase.into(),
                        at: found.at().min(now),
                        error: found.error.as_deref(),
                        term: found.term,
                    });
                    if applied == Applied::Refused {
                        state.refuse(key, "the device reports too many deployments that it was not assigned");
                    }
                }
                Some((_, _, Err(why))) => state.refuse(key, why),
                None => state.refuse(key, "this is not the key of a state"),
            },
            Bucket::Assignments => {
                drop(state);
                self.written(key, payload, revision);
            }
            Bucket::Leases if key == LEADER => {}
            Bucket::Leases => match (of_shard(key), decode::<Lease>(payload)) {
                (Some(deployment), Ok(lease)) => state.lease(deployment, lease),
                (_, Err(why)) => state.refuse(key, why),
                (None, _) => state.refuse(key, "this is not the key of a lease"),
            },
        }
    }

    /// An operator wrote a definition or an assignment; this one may have been it.
    fn written(&mut self, key: &str, payload: &Bytes, revision: u64) {
        let mut state = self.shared.state();
        let opened = match self.shared.keys.open((owner(key), &Bucket::Assignments.subject(key)), payload) {
            Ok(opened) => opened,
            // It is replaced by what this operator knows.
            Err(why) => {
                self.assignments.note(key, !hash(payload), revision);
                self.assignments.recheck([key.to_owned()]);
                return state.refuse(key, why);
            }
        };
        let Some(name) = of_definition(key) else {
            let hash = decode::<Assignment>(opened).map_or_else(|_| hash(opened), |found| meaning(&found));
            if self.assignments.note(key, hash, revision) {
                self.assignments.recheck([key.to_owned()]);
            }
            return;
        };
        self.assignments.note(key, hash(opened), revision);
        match decode::<Deployment>(opened) {
            Ok(found) if state.define(name, found.clone()) => {
                tracing::info!("another operator changed the deployment {name}");
                // The host stores it, unless it is ending.
                let _ = self.notices.send(Noticed::Defined(name.to_owned(), found));
            }
            Ok(_) => {}
            Err(why) => state.refuse(key, why),
        }
        // If this host has a later one, it replaces that.
        self.assignments.recheck([key.to_owned()]);
    }

    /// The lease of the operators changed, or was renewed.
    fn lease_changed(&mut self) {
        let standing = self.leases.standing.borrow_and_update().get(LEADER).cloned();
        let term = standing.as_ref().and_then(Standing::right);
        let waits_for = standing.filter(|_| term.is_none()).map(|standing| standing.owner);
        let is_new = term.is_some() && self.term != term;
        self.term = term;
        let known = std::mem::replace(&mut self.shared.state().waits_for, waits_for.clone());
        if let Some(other) = waits_for.filter(|_| known.is_none()) {
            tracing::info!("the operator {other} assigns deployments to devices; this one waits, and counts");
        }
        if is_new {
            tracing::info!("this operator assigns deployments to devices from now on");
            self.recheck_all();
        }
    }

    /// Compares everything that this operator writes with the broker.
    fn recheck_all(&mut self) {
        let state = self.shared.state();
        let (all, _) = state.aggregator.devices_from(0, |_| true, usize::MAX);
        let keys = all.into_iter().map(|view| view.device).chain(state.names().map(|name| definition(name)));
        self.assignments.recheck(keys);
    }

    async fn heard(&mut self, subject: &str, payload: &Bytes) {
        let Some(device) = of_heartbeat(subject) else { return };
        let now = (self.now)();
        let applied = {
            let mut state = self.shared.state();
            let beat: HeartbeatPayload = match self.shared.keys.read((device, subject), payload) {
                Ok(beat) => beat,
                Err(why) => return state.refuse(subject, why),
            };
            let skew = beat.at.saturating_sub(now.as_millis());
            if skew.unsigned_abs() > SKEW.as_millis() as u64 {
                state.skews.insert(device.to_owned(), skew);
            } else {
                state.skews.remove(device);
            }
            let applied = state.aggregator.apply(&Input::Heartbeat { device, digest: beat.digest });
            // Records on their way make a difference that says nothing.
            if beat.dirty > 0 && applied == Applied::Differs { Applied::Same } else { applied }
        };
        if !matches!(applied, Applied::Differs | Applied::Refused) {
            self.disagreeing.remove(device);
            return;
        }
        let count = self.disagreeing.entry(device.to_owned()).or_default();
        *count += 1;
        if *count >= DISAGREEMENTS {
            self.disagreeing.remove(device);
            tracing::info!("the records of device {device} differ from those that it sent; it has to send all");
            let _ = self.shared.connection.client.publish(resync(device), Bytes::new()).await;
        }
    }

    /// The next records to write; none while it is not known what the broker holds.
    fn next_assignments(&mut self) -> Vec<Draft> {
        // The lease may have lapsed while this process was stopped.
        let right = self.leases.standing.borrow().get(LEADER).and_then(Standing::right);
        let mut state = self.shared.state();
        if !state.caught.info || !state.caught.assignments {
            return Vec::new();
        }
        self.assignments.recheck(std::mem::take(&mut state.redefined));
        self.assignments.recheck(state.aggregator.take_reassigned());
        let keys = &self.shared.keys;
        self.assignments.next(|key| {
            let (record, hash) = state.record(key, right)?;
            Some((keys.seal((owner(key), &Bucket::Assignments.subject(key)), record), hash))
        })
    }

    async fn assigned(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            let device = &outcome.key;
            if self.assignments.settle(&outcome) {
                if of_definition(device).is_none() {
                    // A lost message delays the device until its next check.
                    let _ = self.shared.connection.client.publish(assigned(device), Bytes::new()).await;
                }
            } else if let Answer::Unknown(why) = &outcome.answer {
                self.shared.state().unassigned.insert(device.clone(), why.clone());
            }
        }
    }
}
