//! An agent: sends what its host knows, and receives its deployments.
//!
//! The host's database is the truth; the broker holds a copy that can be made again from it. The agent sends the newest
//! record of each key whenever the broker has not acknowledged it, so an hour without a broker costs as many messages
//! as keys changed. Every write is conditional on the key's revision: a delayed write never replaces a newer one.
//!
//! The agent notices a broker that lost records: another stream, or the last acknowledged state or the description is
//! no longer there. Then it sends everything again.
//!
//! Invariant: nothing is withdrawn because the broker does not have it. Deployments stay until a newer assignment lacks
//! them.

mod alerts;
mod answers;
mod plugins;
mod writer;

use crate::DOUBLED;
use crate::agent_host::{AgentHost, Granted};
use crate::bucket::{Bucket, META, heartbeat, of_agent, shard};
use crate::connection::Connection;
use crate::description::Description;
use crate::jitter::Jitter;
use crate::leases::{Leases, Standing, leases};
use crate::link::Link;
use crate::record::{Answer, answer, last};
use crate::seal::Keys;
use alerts::AlertRecords;
use answers::Answers;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use fleet::names::{info_key, state_key};
use fleet::wire::{Assignment, DeploymentState, DeviceInfo, HeartbeatPayload, Record, encode, fitting};
use fleet::{LinkState, Stamp, digest};
use futures_util::StreamExt;
use model::{Acknowledged, FleetChange, FleetPlace, FleetRecord, QueuedRecord};
use plugins::Plugins;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use writer::{Writer, writer};

/// The time between two heartbeats, with jitter of a tenth.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// After a connection, a second heartbeat follows the first after this time: after an outage of the broker, the
/// operator may connect later than this device, and not hear the first. Longer than the delay between its attempts.
const SECOND_HEARTBEAT: Duration = Duration::from_secs(8);
/// The time between two checks of what the broker holds, besides those after each connection.
const CHECK: Duration = Duration::from_secs(30);
/// An assignment of an earlier term is superseded within this time, or it is applied.
const SUPERSEDED: Duration = Duration::from_secs(20);
/// The time that the broker has for the first read of the stream's identity, and the longest time that it has.
const FIRST_READ: Duration = Duration::from_millis(500);
const LONGEST_READ: Duration = Duration::from_secs(5);
/// The delay before a failed step is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The delay before a further check of the broker doubles from [`RETRY`] to this, with jitter, so that a broker that
/// has just started is not asked by all agents each second.
const LONGEST_RETRY: Duration = Duration::from_secs(8);
/// The number of records that are sent before their acknowledgements are awaited.
const WINDOW: u32 = 256;

/// Shown if a broker that was prepared once gives no records.
const UNREADABLE: &str = "the broker gives no records of the fleet: it hangs, or lost them and waits for an operator, or its accounts \
                          changed and it must be restarted";
/// Shown if the broker was never prepared.
const UNPREPARED: &str = "no operator has prepared the broker yet: `polliwog fleet status` there says why";

/// A running agent.
pub struct Agent<H> {
    host: Arc<H>,
    description: Description,
    connection: Connection,
    keys: Keys,
    jitter: Jitter,
    leases: Leases,
    plugins: Plugins<H>,
    /// Whether deployments wait for their plugins.
    is_preparing: bool,
    /// The last assignment that was received.
    assignment: Option<Assignment>,
    /// Since when the broker holds an assignment of an earlier term.
    earlier_since: Option<Instant>,
    /// The time that the broker has for the next read of the stream's identity.
    read_within: Duration,
    /// The deployments that the host polls, and those that it stands by for; `None` before the first assignment.
    granted: Option<(Vec<Granted>, Vec<String>)>,
    /// The alerts of the deployments that this device polls under a lease.
    alert_records: AlertRecords<H>,
    /// When another host was last seen to report as this device, and what is said about it.
    doubled: Option<(Instant, String)>,
}

/// For readers: whether the agent reaches its broker.
#[derive(Clone)]
pub struct AgentLink(Connection);

impl AgentLink {
    /// Returns whether the broker can be reached, and the latest problem.
    pub fn state(&self) -> LinkState {
        self.0.state()
    }
}

impl<H: AgentHost> Agent<H> {
    /// Begins to connect.
    ///
    /// # Errors
    /// If the URL is not valid.
    pub async fn connect(host: Arc<H>, description: Description, link: Link) -> Result<Self, String> {
        let connection = Connection::open(&link).await?;
        let jitter = Jitter::new(link.seed);
        let (leases, competing) = leases(connection.clone(), description.device.clone(), link.seed);
        // It ends when the agent is dropped.
        tokio::spawn(competing);
        let (device, standing) = (description.device.clone(), leases.standing.clone());
        let alert_records = AlertRecords::new(host.clone(), connection.clone(), device, standing);
        Ok(Self {
            plugins: Plugins::new(host.clone()),
            is_preparing: false,
            host,
            description,
            connection,
            keys: link.keys,
            jitter,
            leases,
            assignment: None,
            earlier_since: None,
            read_within: FIRST_READ,
            granted: None,
            alert_records,
            doubled: None,
        })
    }

    /// Returns a handle for readers.
    pub fn link(&self) -> AgentLink {
        AgentLink(self.connection.clone())
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) {
        let device = self.description.device.clone();
        let mut asked = loop {
            match self.connection.client.subscribe(of_agent(&device)).await {
                Ok(asked) => break asked,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        let mut connected = self.connection.connected();
        let host = self.host.clone();
        let answers = Answers::new(host.clone(), self.connection.client.clone(), (device, self.keys.clone()));
        let (mut check_at, mut beat_at) = (Instant::now(), Instant::now());
        let (mut is_checked, mut is_first_beat) = (false, true);
        // A new connection does not reset it: after an outage of the broker, all agents connect at once.
        let mut failures = 0;
        loop {
            let now = Instant::now();
            let is_due = check_at <= now;
            let may_send = if is_due { self.checked().await } else { is_checked };
            is_checked = may_send && self.send_queued().await;
            let polled = self.granted.as_ref().map_or(&[][..], |(granted, _)| granted);
            if may_send {
                self.alert_records.keep(polled).await;
            }
            if is_due && is_checked {
                check_at = Instant::now() + if self.is_preparing { RETRY } else { CHECK };
                failures = 0;
            } else if is_due || may_send != is_checked {
                failures += 1;
                check_at = Instant::now() + self.jitter.delay((RETRY, LONGEST_RETRY), failures);
            }
            if beat_at <= now && self.connection.state().is_connected {
                self.beat().await;
                let pause = if std::mem::take(&mut is_first_beat) { SECOND_HEARTBEAT } else { HEARTBEAT };
                beat_at = Instant::now() + pause.mul_f64(self.jitter.between(0.9, 1.0));
            }
            tokio::select! {
                () = tokio::time::sleep_until(check_at.min(beat_at.max(now + RETRY))) => {}
                () = host.recorded().notified() => {}
                _ = connected.changed() => {
                    (check_at, beat_at, is_first_beat) = (Instant::now(), Instant::now(), true);
                }
                _ = self.leases.standing.changed() => {
                    if let Err(why) = self.grant().await {
                        tracing::error!("the deployments of this device could not be applied: {why}");
                        check_at = Instant::now() + RETRY;
                    }
                }
                Some(message) = asked.next() => {
                    if answers.answer(&message.subject, &message.payload) {
                        continue;
                    }
                    if message.subject.ends_with(".resync") {
                        tracing::info!("the operator asked for all records of this device");
                        self.send_again(None).await;
                    }
                    check_at = Instant::now();
                }
            }
        }
    }

    /// Runs a blocking step of the host.
    async fn blocking<T: Send + 'static>(
        &self,
        step: impl FnOnce(&H) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let host = self.host.clone();
        let done = tokio::task::spawn_blocking(move || step(&host)).await;
        done.unwrap_or_else(|_| Err("the host is ending".to_owned()))
    }

    /// Checks what the broker holds; shows why that failed. Returns whether records may be sent.
    async fn checked(&mut self) -> bool {
        let checked = self.check().await;
        if !self.connection.state().is_connected {
            return false;
        }
        let is_ready = checked.is_ok();
        // An assignment that cannot be read or applied does not stop the reports.
        let problem = match checked {
            Ok(()) => self.receive().await.err(),
            Err(why) => Some(why),
        };
        // A device id that is used twice stays a problem, although everything works.
        self.doubled = self.doubled.take().filter(|(at, _)| at.elapsed() < DOUBLED);
        let doubled = self.doubled.as_ref().map(|(_, why)| why.clone());
        self.connection.set_problem(problem.or(doubled).or(self.alert_records.problem.clone()));
        is_ready
    }

    async fn check(&mut self) -> Result<(), String> {
        let place = self.place().await?;
        let states = self.stream(Bucket::State).await?;
        let unreadable = if place.incarnation.is_some() { UNREADABLE } else { UNPREPARED };
        // The broker does not answer a read of a stream that does not exist yet: the first reads do not wait for long.
        let read = tokio::time::timeout(self.read_within, last(&states, Bucket::State, META)).await;
        self.read_within = if read.is_ok() { FIRST_READ } else { (self.read_within * 2).min(LONGEST_READ) };
        let meta = match read.unwrap_or_else(|_| Err("the broker does not answer".to_owned())) {
            Ok(Some((payload, _))) => String::from_utf8_lossy(&payload).into_owned(),
            Ok(None) => return Err(unreadable.to_owned()),
            // Without the stream, the broker does not answer.
            Err(why) => return Err(format!("{unreadable}; {why}")),
        };
        let described = self.look_for_others(&place, &meta).await?;
        if place.incarnation.as_ref() != Some(&meta) {
            if place.incarnation.is_some() {
                tracing::warn!("the broker of the fleet is another one, or lost its records: everything is sent again");
            }
            // The terms of operators may begin again.
            self.assignment = None;
            self.send_again(Some(meta)).await;
            return Ok(());
        }
        // The streams of descriptions and of states may be restored from copies of different age.
        let mut is_lost = place.described.is_some_and(|known| described != Some(known));
        if let Some((deployment, revision)) = &place.top {
            let key = state_key(&self.description.device, deployment);
            let found = last(&states, Bucket::State, &key).await?;
            is_lost |= found.is_none_or(|(_, held)| held != *revision);
        }
        if is_lost {
            tracing::warn!(
                "the broker of the fleet has other records of this device than it acknowledged: everything is sent again"
            );
            self.send_again(Some(meta)).await;
        }
        Ok(())
    }

    async fn place(&self) -> Result<FleetPlace, String> {
        self.blocking(|host| host.place()).await?.ok_or_else(|| "the host did not begin as an agent".to_owned())
    }

    async fn stream(&self, bucket: Bucket) -> Result<Stream<()>, String> {
        self.connection.context.get_stream_no_info(bucket.stream()).await.map_err(|error| error.to_string())
    }

    async fn send_again(&self, incarnation: Option<String>) {
        let known = self.place().await.ok().and_then(|place| place.incarnation);
        let Some(incarnation) = incarnation.or(known) else { return };
        if let Err(why) = self.blocking(move |host| host.change(FleetChange::SendAgain(incarnation))).await {
            tracing::error!("the records for the fleet could not be marked: {why}");
        }
    }

    /// Continues after the records of this device that are newer than any from here: the database is new or restored,
    /// or another host has the same id. Returns the revision of the device's description.
    async fn look_for_others(&mut self, place: &FleetPlace, meta: &str) -> Result<Option<u64>, String> {
        let stream = self.stream(Bucket::Info).await?;
        let device = &self.description.device;
        let Some((payload, revision)) = last(&stream, Bucket::Info, &info_key(device)).await? else { return Ok(None) };
        // A forged description is replaced by the own one.
        let info = self.keys.read::<DeviceInfo>((device, &Bucket::Info.subject(&info_key(device))), &payload);
        let Ok(DeviceInfo { stamp: (theirs, _), .. }) = info else { return Ok(Some(revision)) };
        let is_same_broker = place.incarnation.as_deref() == Some(meta);
        let writer = writer(place, is_same_broker, (theirs, revision));
        if writer == Writer::Known {
            return Ok(Some(revision));
        }
        if writer == Writer::Another {
            let problem = format!(
                "the broker has records of another host as device {device:?}: give each host its own [fleet] device, because \
                 they replace each other's reports"
            );
            self.doubled = Some((Instant::now(), problem));
        }
        self.blocking(move |host| host.change(FleetChange::Outdo(theirs))).await?;
        Ok(Some(revision))
    }

    /// Applies the assignment of this device if it changed.
    async fn receive(&mut self) -> Result<(), String> {
        let stream = self.stream(Bucket::Assignments).await?;
        let device = &self.description.device;
        let Some((payload, _)) = last(&stream, Bucket::Assignments, device).await? else { return Ok(()) };
        let read = self.keys.read::<Assignment>((device, &Bucket::Assignments.subject(device)), &payload);
        let assignment = read.map_err(|why| format!("the assignment of deployments: {why}"))?;
        // An operator that was stopped may write again before it notices that another one acts, which then replaces
        // it. If none does, the broker was restored from a copy, and the terms have begun again.
        let is_earlier = self.assignment.as_ref().is_some_and(|known| assignment.term < known.term);
        if is_earlier && self.earlier_since.get_or_insert_with(Instant::now).elapsed() < SUPERSEDED {
            tracing::warn!("the assignment is from an earlier operator; another one is awaited");
            return Ok(());
        }
        self.earlier_since = None;
        let wanted = assignment.deployments.iter().filter(|assigned| assigned.is_once);
        self.alert_records.end(|name| wanted.clone().any(|assigned| assigned.name == name)).await;
        self.leases.want(wanted.map(|assigned| shard(&assigned.name)).collect());
        self.is_preparing = self.plugins.prepare(&assignment.plugins, &self.connection.context).await;
        self.assignment = Some(assignment);
        self.grant().await?;
        self.plugins.problem().map_or(Ok(()), Err)
    }

    /// Applies the deployments that this device polls: those that it was assigned, without those whose lease another
    /// device has.
    async fn grant(&mut self) -> Result<(), String> {
        let Some(assignment) = self.assignment.as_ref().filter(|_| !self.is_preparing) else { return Ok(()) };
        let (mut granted, mut standby) = (Vec::new(), Vec::new());
        {
            let standing = self.leases.standing.borrow_and_update();
            for assigned in &assignment.deployments {
                let right = || standing.get(&shard(&assigned.name)).and_then(Standing::right);
                match if assigned.is_once { right() } else { Some(0) } {
                    Some(term) => granted.push(Granted { assigned: assigned.clone(), term }),
                    None => standby.push(assigned.name.clone()),
                }
            }
        }
        let all = (granted, standby);
        if self.granted.as_ref() != Some(&all) {
            let (granted, standby) = all.clone();
            self.host.assign(granted, standby).await?;
            self.granted = Some(all);
        }
        Ok(())
    }

    /// Sends records until none is queued. Returns whether the broker took part.
    async fn send_queued(&self) -> bool {
        loop {
            let queued = match self.blocking(|host| host.queued(WINDOW)).await {
                Ok(queued) if queued.is_empty() => return true,
                Ok(queued) => queued,
                Err(why) => {
                    tracing::error!("the records for the fleet cannot be read: {why}");
                    return false;
                }
            };
            match self.send(queued).await {
                Ok(true) => {}
                Ok(false) => return false,
                Err(why) => {
                    tracing::debug!("sending to the broker of the fleet: {why}");
                    return false;
                }
            }
        }
    }

    /// Sends records, all at once and one for each key, and stores the acknowledgements. Returns whether all were
    /// acknowledged or can be sent again at once.
    async fn send(&self, queued: Vec<QueuedRecord>) -> Result<bool, String> {
        let floor = self.place().await?.floor;
        let (mut answers, mut is_complete) = (Vec::new(), true);
        let mut pending = Vec::with_capacity(queued.len());
        for queued in queued {
            let (subject, payload) = match self.message(&queued, floor) {
                Ok(message) => message,
                Err(why) => {
                    is_complete = false;
                    self.connection.set_problem(Some(format!("a record cannot be sent: {why}")));
                    continue;
                }
            };
            let message = PublishMessage::build()
                .payload(payload.into())
                .expected_last_subject_sequence(queued.revision.unwrap_or_default());
            let sent = self.connection.context.send_publish(subject, message).await.map_err(|e| e.to_string())?;
            pending.push((queued, sent));
        }
        for (queued, sent) in pending {
            match answer(sent).await {
                Answer::Stored(revision) => answers.push(acknowledged(&queued, revision, true)),
                Answer::Other(revision) => {
                    // If a revision was known, the broker lost records, or another host writes them.
                    is_complete &= queued.revision.is_none();
                    answers.push(acknowledged(&queued, revision, false));
                }
                Answer::Unknown(why) => {
                    is_complete = false;
                    // While there is no connection, that is the reason.
                    if self.connection.state().is_connected {
                        self.connection.set_problem(Some(format!("the broker does not store a record: {why}")));
                    }
                }
            }
        }
        self.blocking(move |host| host.change(FleetChange::Acknowledged(answers))).await?;
        Ok(is_complete)
    }

    /// The subject and the bytes of a record.
    fn message(&self, queued: &QueuedRecord, floor: u32) -> Result<(String, Vec<u8>), String> {
        let device = &self.description.device;
        let (epoch, counter) = queued.stamp;
        let (bucket, key, bytes) = match &queued.record {
            FleetRecord::Description(_) => {
                let record = self.description.record(Stamp { epoch, counter }, floor);
                (Bucket::Info, info_key(device), encoded(&record))
            }
            FleetRecord::Report(report) => {
                let record = DeploymentState {
                    stamp: queued.stamp,
                    phase: report.phase.into(),
                    counts: report.counts,
                    at: report.at.as_millis(),
                    error: report.error.as_deref().map(|error| fitting(error).to_owned()),
                    term: report.term,
                };
                (Bucket::State, state_key(device, &report.deployment), encoded(&record))
            }
        };
        let subject = bucket.subject(&key);
        let bytes = self.keys.seal((device, &subject), bytes?);
        Ok((subject, bytes))
    }

    async fn beat(&self) {
        let Ok(place) = self.place().await else { return };
        let part = |(deployment, (epoch, counter)): &(String, (u32, u32))| {
            digest(deployment, Stamp { epoch: *epoch, counter: *counter })
        };
        let payload = HeartbeatPayload {
            epoch: place.epoch,
            at: self.host.now().as_millis(),
            dirty: place.queued,
            digest: place.acknowledged.iter().map(part).fold(0, u64::wrapping_add),
        };
        let Ok(bytes) = encoded(&payload) else { return };
        let device = &self.description.device;
        let subject = heartbeat(device);
        let bytes = self.keys.seal((device, &subject), bytes);
        // A lost heartbeat is followed by the next.
        let _ = self.connection.client.publish(subject, bytes.into()).await;
    }
}

fn encoded<R: Record>(record: &R) -> Result<Vec<u8>, String> {
    encode(record).map_err(|error| error.to_string())
}

fn acknowledged(queued: &QueuedRecord, revision: u64, is_stored: bool) -> Acknowledged {
    Acknowledged { deployment: queued.record.deployment().to_owned(), stamp: queued.stamp, revision, is_stored }
}
