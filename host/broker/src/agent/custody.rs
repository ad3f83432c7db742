//! The alerts of deployments that one device polls at a time. The device that polls keeps a record of those that are
//! open; the next one continues them.
//!
//! A record is written under a lease, conditional on its revision, and read once by the device that has taken the
//! lease. So a device that was stopped cannot replace what the next one wrote.

use crate::agent_host::{AgentHost, Granted};
use crate::bucket::{Bucket, open_alerts, shard};
use crate::connection::Connection;
use crate::leases::Standing;
use crate::record::{Answer, answer, last};
use async_nats::jetstream::message::PublishMessage;
use fleet::wire::{OpenAlert, OpenAlerts, decode, encode};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The records of the deployments that this device polls under a lease.
pub(super) struct Custody<H> {
    host: Arc<H>,
    connection: Connection,
    device: String,
    standing: watch::Receiver<BTreeMap<String, Standing>>,
    known: BTreeMap<String, Known>,
}

/// The record of a deployment at the broker.
struct Known {
    /// The term of the lease under which it was read.
    term: u64,
    revision: u64,
    alerts: Vec<OpenAlert>,
}

impl<H: AgentHost> Custody<H> {
    pub(super) fn new(
        host: Arc<H>,
        (connection, device): (Connection, String),
        standing: watch::Receiver<BTreeMap<String, Standing>>,
    ) -> Self {
        Self { host, connection, device, standing, known: BTreeMap::new() }
    }

    /// Continues the alerts of deployments that this device began to poll, and records those that are open.
    ///
    /// # Errors
    /// If the broker or the database does not answer; the reason in words.
    pub(super) async fn keep(&mut self, granted: &[Granted]) -> Result<(), String> {
        let is_held = |granted: &&Granted| granted.term > 0 && self.right(&granted.assigned.name) == Some(granted.term);
        let held: BTreeMap<String, u64> =
            granted.iter().filter(is_held).map(|granted| (granted.assigned.name.clone(), granted.term)).collect();
        self.known.retain(|deployment, known| held.get(deployment) == Some(&known.term));
        for (deployment, term) in held {
            if !self.known.contains_key(&deployment) {
                let known = self.take_over(&deployment, term).await?;
                self.known.insert(deployment.clone(), known);
            }
            let (host, name) = (self.host.clone(), deployment.clone());
            let open = tokio::task::spawn_blocking(move || host.open_alerts(&name)).await;
            self.record(&deployment, open.unwrap_or_else(|_| Err("the host is ending".to_owned()))?).await?;
        }
        Ok(())
    }

    /// Records that no alert is open any more for deployments that this device polls and is no longer assigned: it
    /// notifies of their end. Otherwise the next device would continue alerts that are over.
    pub(super) async fn end(&mut self, is_assigned: impl Fn(&str) -> bool) {
        let is_over = |name: &&String| !is_assigned(name) && self.right(name).is_some();
        let over: Vec<String> = self.known.keys().filter(is_over).cloned().collect();
        for deployment in over {
            if let Err(why) = self.record(&deployment, Vec::new()).await {
                tracing::warn!("{why}");
            }
        }
    }

    /// The term under which this device may poll a deployment now.
    fn right(&self, deployment: &str) -> Option<u64> {
        self.standing.borrow().get(&shard(deployment)).and_then(Standing::right)
    }

    /// Continues the alerts that the last device left.
    async fn take_over(&self, deployment: &str, term: u64) -> Result<Known, String> {
        let stream = self.connection.context.get_stream_no_info(Bucket::Leases.stream()).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some((payload, revision)) = last(&stream, Bucket::Leases, &open_alerts(deployment)).await? else {
            return Ok(Known { term, revision: 0, alerts: Vec::new() });
        };
        let alerts = match decode::<OpenAlerts>(&payload) {
            Ok(OpenAlerts { alerts, .. }) => alerts,
            Err(why) => {
                tracing::warn!("the alerts of the deployment {deployment} that another device left: {why}");
                Vec::new()
            }
        };
        if !alerts.is_empty() {
            tracing::info!("the deployment {deployment} has {} alerts that are open already", alerts.len());
            self.host.take_over(alerts.clone()).await?;
        }
        Ok(Known { term, revision, alerts })
    }

    /// Writes the record of a deployment if it changed.
    async fn record(&mut self, deployment: &str, open: Vec<OpenAlert>) -> Result<(), String> {
        let Some(known) = self.known.get_mut(deployment) else { return Ok(()) };
        let (record, omitted) = OpenAlerts::fitting((&self.device, known.term), open);
        if record.alerts == known.alerts {
            return Ok(());
        }
        if omitted > 0 {
            tracing::warn!(
                "the deployment {deployment} has so many alerts that another device would not continue {omitted} of them"
            );
        }
        match put(&self.connection, deployment, &record, known.revision).await? {
            Some(revision) => (known.revision, known.alerts) = (revision, record.alerts),
            // Another device has written it, or an answer was lost: it is read again.
            None => drop(self.known.remove(deployment)),
        }
        Ok(())
    }
}

/// Returns the revision; `None` if the record has another one than this device knows.
async fn put(
    connection: &Connection,
    deployment: &str,
    record: &OpenAlerts,
    revision: u64,
) -> Result<Option<u64>, String> {
    let payload = encode(record).map_err(|error| error.to_string())?;
    let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(revision);
    let refused =
        |why: String| format!("the alerts of the deployment {deployment} are not stored at the broker: {why}");
    let sent = connection.context.send_publish(Bucket::Leases.subject(&open_alerts(deployment)), message).await;
    match answer(sent.map_err(|error| refused(error.to_string()))?).await {
        Answer::Stored(revision) => Ok(Some(revision)),
        Answer::Other(_) => Ok(None),
        Answer::Unknown(why) => Err(refused(why)),
    }
}
