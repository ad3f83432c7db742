//! The state of each deployment on this host, for the operator of the fleet.
//!
//! It follows from the known state of the deployment's targets, which is ahead of the database, and is written in the
//! transaction of the change that led to it.

use super::{Driver, Tracked};
use config::AssignedDeployment;
use model::{DeploymentReport, FleetChange, FleetRecord, Phase, Status, TargetId, Timestamp};
use std::collections::BTreeMap;

impl Driver {
    /// Returns the report about the deployment of a target if it changed. The texts of some errors change with each
    /// poll, so a changed text alone counts only if something `else` is written.
    pub(super) fn report_of(&mut self, target: &TargetId, else_written: Else) -> Option<DeploymentReport> {
        if self.deployments.assigned.is_empty() {
            return None;
        }
        let name = self.deployments.of(target)?.clone();
        self.changed_report(&name, self.wiring.clock.wall(), else_written)
    }

    /// Takes over the deployments of a new configuration, and reports what changed.
    pub(super) fn deploy(&mut self, assigned: BTreeMap<String, AssignedDeployment>) {
        self.deployments.assigned = assigned;
        self.report_deployments();
    }

    /// Reports every deployment whose state changed without a poll: those that are new, changed or withdrawn.
    pub(super) fn report_deployments(&mut self) {
        let at = self.wiring.clock.wall();
        let reported = self.deployments.reported.keys();
        let names: Vec<String> = self.deployments.assigned.keys().chain(reported).cloned().collect();
        for name in names {
            if let Some(report) = self.changed_report(&name, at, Else::Written) {
                let record = FleetChange::Record(FleetRecord::Report(report));
                let (writer, reported) = (self.wiring.store.writer(), self.wiring.reported.clone());
                drop(writer.fleet(record));
                // The agent reads the database: it must not look before the record is there.
                writer.publish(Box::new(move |_| reported.notify_one()));
            }
        }
    }

    fn changed_report(&mut self, name: &str, at: Timestamp, else_written: Else) -> Option<DeploymentReport> {
        let report = self.report(name, at);
        let same = |held: &&DeploymentReport| {
            let is_same_text = else_written == Else::Nothing || held.error == report.error;
            is_same_text && (held.phase, held.counts, held.term) == (report.phase, report.counts, report.term)
        };
        if self.deployments.reported.get(name).filter(same).is_some() {
            return None;
        }
        self.deployments.reported.insert(name.to_owned(), report.clone());
        Some(report)
    }

    fn report(&self, name: &str, at: Timestamp) -> DeploymentReport {
        let (deployment, phase) = (name.to_owned(), Phase::Removed);
        let mut report = DeploymentReport { deployment, phase, counts: [0; 4], at, error: None, term: 0 };
        let Some(AssignedDeployment { term, targets }) = self.deployments.assigned.get(name) else { return report };
        (report.phase, report.term) = (Phase::Succeeded, *term);
        for target in targets {
            let id = TargetId::new(&target.id).ok();
            let state = match (&target.problem, id.and_then(|id| self.targets.get(&id))) {
                (Some(why), _) => PartState::Failed(why.clone()),
                (None, Some(tracked)) => self.part(tracked, &mut report.counts),
                (None, None) => PartState::Failed("the target is not polled on this host".to_owned()),
            };
            match state {
                PartState::Failed(why) => {
                    report.phase = Phase::Failed;
                    report.error.get_or_insert_with(|| format!("{}: {why}", target.id));
                }
                PartState::Pending if report.phase == Phase::Succeeded => report.phase = Phase::Pending,
                PartState::Pending | PartState::Succeeded => {}
            }
        }
        report
    }

    /// The state of one target. Adds its dependencies to the counts.
    fn part(&self, tracked: &Tracked, counts: &mut [u32; 4]) -> PartState {
        let target = &tracked.target;
        let Some(status) = self.scheduler.status(target.id()) else { return PartState::Pending };
        let known = target.known();
        let present = known.dependencies.iter().filter(|dependency| dependency.record.missing_since.is_none());
        let mut critical = None;
        for dependency in present {
            let reported = &dependency.record.reported;
            let slot = match reported.status {
                Status::Ok => 0,
                Status::Warning => 1,
                Status::Critical => 2,
                Status::Unknown => 3,
            };
            counts[slot] += 1;
            if reported.status == Status::Critical && !reported.skipped {
                critical.get_or_insert_with(|| match &reported.error_message {
                    Some(why) => format!("{} is critical: {why}", reported.name),
                    None => format!("{} is critical", reported.name),
                });
            }
        }
        if !status.enabled {
            // The owner of this host paused it.
            return PartState::Succeeded;
        }
        match (&known.failure, critical) {
            _ if status.place.lacks_plugin() => PartState::Failed(format!(
                "no plugin serves kind {} on this host: add its file there, or write plugins = true in [fleet], so that \
                     the host takes it from the operator, if that has it",
                target.config.kind
            )),
            (Some(failure), _) if status.unreachable => PartState::Failed(failure.message.clone()),
            (None, _) if status.unreachable => PartState::Failed("the polls fail".to_owned()),
            (_, Some(why)) => PartState::Failed(why),
            _ if status.schedule.last_success.is_none() => PartState::Pending,
            _ => PartState::Succeeded,
        }
    }
}

/// Whether the step writes something besides the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Else {
    Written,
    Nothing,
}

/// The state of one target of a deployment.
enum PartState {
    Pending,
    Succeeded,
    Failed(String),
}
