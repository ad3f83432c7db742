//! The loop of an operator.

use super::assignments::{Assignments, Draft, Outcome, hash, meaning, owner, write};
use super::disagreements::Disagreements;
use super::kept::{EVERY, Kept};
use super::noticed::{Noticed, log};
use super::records::apply;
use super::shared::Shared;
use crate::bucket::{
    Bucket, LEADER, META, assigned, definition, is_mark, of_definition, of_heartbeat, of_shard, resync,
};
use crate::feed::{Fed, feed};
use crate::leases::{Leases, Standing};
use crate::record::{Answer, answer};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use fleet::wire::{Assignment, Deployment, HeartbeatPayload, Lease, decode};
use fleet::{Applied, Input, PREFETCHED};
use futures_util::StreamExt;
use model::EventKind;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Records that wait for the loop.
const WAITING: usize = 10_000;
/// A clock of a device that differs by more than this is shown.
const SKEW: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// The loop's own state.
pub(super) struct Work {
    shared: Arc<Shared>,
    leases: Leases,
    /// The term under which this operator assigned last; `None` while it waits.
    term: Option<u64>,
    notices: mpsc::UnboundedSender<Noticed>,
    assignments: Assignments,
    kept: Kept,
    /// The text by which agents know the stream of states, while it is not written.
    unsigned: Option<String>,
    disagreements: Disagreements,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>, leases: Leases, notices: mpsc::UnboundedSender<Noticed>) -> Self {
        Self {
            kept: Kept::new(&shared.name),
            shared,
            leases,
            term: None,
            notices,
            assignments: Assignments::default(),
            unsigned: None,
            disagreements: Disagreements::default(),
        }
    }

    /// Runs until the connection ends.
    pub(super) async fn run(mut self, replicas: usize) {
        let (into, mut fed) = mpsc::channel(WAITING);
        let (shared, connection) = (self.shared.clone(), self.shared.connection.clone());
        let mut feeds = tokio::task::JoinSet::new();
        for bucket in Bucket::FOLLOWED {
            let shared = shared.clone();
            let place = move || shared.place(&bucket.stream());
            feeds.spawn(feed(connection.clone(), (bucket, replicas), place, into.clone()));
        }
        let heartbeats = loop {
            match connection.client.subscribe("heartbeat.*").await {
                Ok(heartbeats) => break heartbeats,
                Err(_) => tokio::time::sleep(SECOND).await,
            }
        };
        // As many as records, so that they do not wait for too long while there are many of those.
        let mut heartbeats = heartbeats.ready_chunks(PREFETCHED);
        let (done, mut written) = mpsc::channel::<Vec<Outcome>>(1);
        let mut is_writing = false;
        let mut taken = Vec::with_capacity(PREFETCHED);
        let mut second = tokio::time::interval(SECOND);
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                1.. = fed.recv_many(&mut taken, PREFETCHED) => {
                    let ids = taken.iter().filter_map(Fed::device_of_state);
                    shared.state().aggregator.prefetch(ids);
                    for fed in taken.drain(..) {
                        self.fed(fed).await;
                    }
                }
                Some(some) = heartbeats.next() => {
                    for message in some {
                        self.heard(&message.subject, &message.payload).await;
                    }
                }
                // The assignments below follow.
                () = shared.defined.notified() => {
                    if std::mem::take(&mut self.shared.state().is_reoffered) {
                        self.recheck_all();
                    }
                }
                _ = self.leases.standing.changed() => self.lease_changed(),
                Some(results) = written.recv() => {
                    is_writing = false;
                    self.assigned(results).await;
                }
                _ = second.tick() => {
                    self.tick();
                    self.sign().await;
                    self.mark().await;
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

    pub(super) fn record(&mut self, bucket: Bucket, key: &str, payload: &Bytes, revision: u64) {
        match bucket {
            Bucket::State if key == META => {}
            Bucket::Info | Bucket::State => {
                let (now, record) = ((self.shared.now)(), (bucket, key, &payload[..]));
                if (is_mark(key) || apply(&mut self.shared.state(), &self.shared.keys, record, now))
                    && let Some(read) = self.kept.read(bucket, key, payload, revision)
                {
                    self.shared.keep_place(&read);
                    // The host stores it, unless it is ending.
                    let _ = self.notices.send(read);
                }
            }
            Bucket::Assignments => self.written(key, payload, revision),
            Bucket::Leases if key == LEADER => {}
            Bucket::Leases => {
                let mut state = self.shared.state();
                match (of_shard(key), decode::<Lease>(payload)) {
                    (Some(deployment), Ok(lease)) => state.lease(deployment, lease),
                    (_, Err(why)) => state.refuse(key, why),
                    (None, _) => state.refuse(key, "this is not the key of a lease"),
                }
            }
            // They are not followed.
            Bucket::Alerts | Bucket::Plugins => {}
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
            Ok(found) => {
                // The host does not store that one is deleted: each start reads it again.
                let is_news = state.version(name) > 0 || !found.is_deleted();
                if state.define(name, found.clone()) && is_news {
                    tracing::info!("another operator changed the deployment {name}");
                    // The host stores it, unless it is ending.
                    let _ = self.notices.send(Noticed::Defined(name.to_owned(), found));
                }
            }
            Err(why) => state.refuse(key, why),
        }
        // If this host has a later one, it replaces that.
        self.assignments.recheck([key.to_owned()]);
    }

    /// Writes the marks of this operator where records were read that are not kept.
    pub(super) async fn mark(&mut self) {
        let seconds = self.shared.seconds();
        if !seconds.is_multiple_of(EVERY) || !self.shared.connection.state().is_connected {
            return;
        }
        // The clock may be set back; the seconds since the start tell the marks apart then.
        let text = format!("{} {seconds}", (self.shared.now)().as_millis());
        for (subject, text) in self.kept.marks(&text) {
            // One that is lost is followed by another.
            let _ = self.shared.connection.client.publish(subject, text.into()).await;
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
        let now = (self.shared.now)();
        let is_connected = self.shared.connection.state().is_connected;
        // Nothing is heard of them while the broker is away.
        let doubled = if is_connected { state.newly_doubled(seconds) } else { Vec::new() };
        let happened = state.changed_phases(changed.into_iter().map(|patch| patch.deployment), now);
        drop(state);
        let happened: Vec<EventKind> = happened.into_iter().chain(stale).collect();
        for (device, is_doubled) in doubled {
            match is_doubled {
                true => tracing::warn!("several hosts report as device {device}: give each another [fleet] device"),
                false => tracing::info!("several hosts no longer report as device {device}"),
            }
        }
        log(&happened, is_connected);
        for event in happened {
            // The host stores it, unless it is ending.
            let _ = self.notices.send(Noticed::Happened(event));
        }
    }

    async fn fed(&mut self, fed: Fed) {
        if fed.is_interruption() {
            self.disagreements.forget();
        }
        match fed {
            Fed::Attached(bucket, incarnation) => {
                self.kept.attached(bucket, &incarnation);
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
                self.kept.caught_up(bucket);
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
                        // They are not followed.
                        Bucket::Alerts | Bucket::Plugins => {}
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
        let now = (self.shared.now)();
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
            state.beat(device, beat.epoch, self.shared.seconds());
            let applied = state.aggregator.apply(&Input::Heartbeat { device, digest: beat.digest });
            // Records on their way make a difference that says nothing.
            if beat.dirty > 0 && applied == Applied::Differs { Applied::Same } else { applied }
        };
        if !matches!(applied, Applied::Differs | Applied::Refused) {
            self.disagreements.end(device);
        } else if self.disagreements.note(device, self.shared.seconds()) {
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
