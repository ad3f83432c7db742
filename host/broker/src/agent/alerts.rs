//! The alerts of deployments that one device polls at a time. The device that polls keeps a record of those that
//! receivers may have open; the next one continues them.
//!
//! A record is written under a lease, conditional on its revision. The device that has taken the lease reads the record
//! and writes it before it changes anything, so that a write of the earlier device that is still on its way fails.

use crate::agent_host::{AgentHost, Granted, LeftAlerts};
use crate::bucket::{Bucket, shard};
use crate::connection::Connection;
use crate::leases::Standing;
use crate::record::{Answer, answer, last};
use async_nats::jetstream::message::PublishMessage;
use fleet::wire::{OpenAlert, OpenAlerts, decode, encode};
use model::LastPoller;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time that the host has to continue alerts.
const DURABLE: Duration = Duration::from_secs(30);

/// The records of the deployments that this device polls under a lease.
pub(super) struct AlertRecords<H> {
    host: Arc<H>,
    connection: Connection,
    device: String,
    standing: watch::Receiver<BTreeMap<String, Standing>>,
    held: BTreeMap<String, Held>,
    /// The deployments whose record could not be used, with the term in which this host continued without it.
    alone: BTreeMap<String, u64>,
    /// Why records could not be read or written, if so.
    pub problem: Option<String>,
}

/// The record of a deployment at the broker.
struct Held {
    /// The term of the lease under which it is written.
    term: u64,
    revision: u64,
    /// Its alerts; `None` if they are not known, or of an earlier term.
    written: Option<Vec<OpenAlert>>,
    /// The alerts of targets that this device does not poll, for the next one.
    others: Vec<OpenAlert>,
}

impl<H: AgentHost> AlertRecords<H> {
    pub(super) fn new(
        host: Arc<H>,
        connection: Connection,
        device: String,
        standing: watch::Receiver<BTreeMap<String, Standing>>,
    ) -> Self {
        Self { host, connection, device, standing, held: BTreeMap::new(), alone: BTreeMap::new(), problem: None }
    }

    /// Continues the alerts of deployments that this device began to poll, and records those that are open.
    pub(super) async fn keep(&mut self, granted: &[Granted]) {
        let is_held = |granted: &&Granted| granted.term > 0 && self.right(&granted.assigned.name) == Some(granted.term);
        let terms: BTreeMap<String, u64> =
            granted.iter().filter(is_held).map(|granted| (granted.assigned.name.clone(), granted.term)).collect();
        self.held.retain(|deployment, held| terms.get(deployment) == Some(&held.term));
        self.alone.retain(|deployment, term| terms.get(deployment) == Some(term));
        let mut problem = None;
        if !terms.is_empty() {
            for (deployment, term) in terms {
                if !self.held.contains_key(&deployment) {
                    problem = problem.or(self.take_over(deployment, term).await.err());
                }
            }
            problem = self.record_all().await.err().or(problem);
        }
        if problem.is_some() && problem != self.problem {
            tracing::warn!("{}", problem.as_deref().unwrap_or_default());
        }
        self.problem = problem;
    }

    /// Records that no alert is open any more for deployments that this device polls and is no longer assigned: it
    /// notifies of their end. Otherwise the next device would continue alerts that are over.
    pub(super) async fn end(&mut self, is_assigned: impl Fn(&str) -> bool) {
        let is_over = |name: &&String| !is_assigned(name) && self.right(name).is_some();
        let over: Vec<String> = self.held.keys().filter(is_over).cloned().collect();
        for deployment in over {
            if let Err(why) = self.record(&deployment, Vec::new()).await {
                tracing::warn!("{why}");
            }
            self.held.remove(&deployment);
        }
    }

    /// The term under which this device may poll a deployment now.
    fn right(&self, deployment: &str) -> Option<u64> {
        self.standing.borrow().get(&shard(deployment)).and_then(Standing::right)
    }

    /// Continues the alerts that the last device left. If the record cannot be used, this host continues what it knows
    /// itself, and the record is tried again.
    async fn take_over(&mut self, deployment: String, term: u64) -> Result<(), String> {
        let taken = self.take_over_record(deployment.clone(), term).await;
        if taken.is_err() && self.alone.insert(deployment.clone(), term) != Some(term) {
            let left = LeftAlerts { deployment, alerts: Vec::new(), by: LastPoller::Unknown };
            self.hand_in(left).await?;
        }
        taken
    }

    /// Lets the host continue alerts. Returns those that it cannot continue.
    async fn hand_in(&self, left: LeftAlerts) -> Result<Vec<OpenAlert>, String> {
        let taken = tokio::time::timeout(DURABLE, self.host.take_over(left)).await;
        taken.map_err(|_| "the database does not take the alerts of another device".to_owned())?
    }

    /// Continues the alerts of the record, and writes it in this term.
    async fn take_over_record(&mut self, deployment: String, term: u64) -> Result<(), String> {
        let (record, revision) = self.read(&deployment).await?;
        let is_damaged = record.is_none() && revision > 0;
        let owner = record.as_ref().map_or_else(|| self.device.clone(), |record| record.owner.clone());
        let alerts = record.map(|record| record.alerts).unwrap_or_default();
        let by = match owner == self.device {
            _ if is_damaged => LastPoller::Unknown,
            true => LastPoller::ThisDevice,
            false => LastPoller::Another,
        };
        // The owner stays until this host has continued them.
        let fence = OpenAlerts { owner, term, alerts: alerts.clone() };
        let written = put(&self.connection, &deployment, (fence, 0), revision).await?;
        // Another device wrote meanwhile: it is read again.
        let Some(revision) = written else { return Ok(()) };
        let count = alerts.len();
        let others = self.hand_in(LeftAlerts { deployment: deployment.clone(), alerts, by }).await?;
        if count > 0 && by == LastPoller::Another {
            let continued = count.saturating_sub(others.len());
            tracing::info!("{continued} alerts of the deployment {deployment} that another device left go on");
        }
        self.held.insert(deployment, Held { term, revision, written: None, others });
        Ok(())
    }

    /// Returns the record of a deployment with its revision.
    async fn read(&self, deployment: &str) -> Result<(Option<OpenAlerts>, u64), String> {
        let stream = self.connection.context.get_stream_no_info(Bucket::Alerts.stream()).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some((payload, revision)) = last(&stream, Bucket::Alerts, deployment).await? else { return Ok((None, 0)) };
        let record = decode(&payload).inspect_err(|why| {
            tracing::warn!("the alerts of the deployment {deployment} that another device left: {why}");
        });
        Ok((record.ok(), revision))
    }

    async fn record_all(&mut self) -> Result<(), String> {
        let host = self.host.clone();
        let read = tokio::task::spawn_blocking(move || host.open_alerts()).await;
        let mut open = read.unwrap_or_else(|_| Err("the host is ending".to_owned()))?;
        let mut result = Ok(());
        for deployment in self.held.keys().cloned().collect::<Vec<_>>() {
            let open = open.remove(&deployment).unwrap_or_default();
            result = self.record(&deployment, open).await.and(result);
        }
        result
    }

    /// Writes the record of a deployment if it changed.
    async fn record(&mut self, deployment: &str, mut open: Vec<OpenAlert>) -> Result<(), String> {
        let Some(held) = self.held.get(deployment) else { return Ok(()) };
        open.extend(held.others.iter().cloned());
        let (record, revision) = (self.of(held.term, open), held.revision);
        if held.written.as_ref() == Some(&record.0.alerts) {
            return Ok(());
        }
        let alerts = record.0.alerts.clone();
        let written = put(&self.connection, deployment, record, revision).await;
        let known = match &written {
            // The answer to an earlier write was lost, or this device was stopped and another one polls.
            Ok(None) => Some(self.read(deployment).await?),
            _ => None,
        };
        let Some(held) = self.held.get_mut(deployment) else { return Ok(()) };
        match (written, known) {
            (Ok(Some(revision)), _) => (held.revision, held.written) = (revision, Some(alerts)),
            (Ok(None), Some((record, revision))) => {
                if record.is_some_and(|record| record.term > held.term) {
                    self.held.remove(deployment);
                } else {
                    (held.revision, held.written) = (revision, None);
                }
            }
            (Ok(None), None) => {}
            (Err(why), _) => {
                held.written = None;
                return Err(why);
            }
        }
        Ok(())
    }

    /// The record of these alerts, and the number of those that do not fit into it.
    fn of(&self, term: u64, alerts: Vec<OpenAlert>) -> (OpenAlerts, usize) {
        OpenAlerts::fitting(&self.device, term, alerts)
    }
}

/// Returns the revision; `None` if the record has another one than this device knows.
async fn put(
    connection: &Connection,
    deployment: &str,
    (record, omitted): (OpenAlerts, usize),
    revision: u64,
) -> Result<Option<u64>, String> {
    if omitted > 0 {
        tracing::warn!(
            "the deployment {deployment} has so many alerts that another device would not continue {omitted} of them"
        );
    }
    let payload = encode(&record).map_err(|error| error.to_string())?;
    let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(revision);
    let refused = |why: String| {
        format!(
            "the alerts of the deployment {deployment} are not at the broker, so that no other device continues them: {why}"
        )
    };
    let sent = connection.context.send_publish(Bucket::Alerts.subject(deployment), message).await;
    match answer(sent.map_err(|error| refused(error.to_string()))?).await {
        Answer::Stored(revision) => Ok(Some(revision)),
        Answer::Other(_) => Ok(None),
        Answer::Unknown(why) => Err(refused(why)),
    }
}
