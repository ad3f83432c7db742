//! The metrics of a fleet: of this host as an agent, and as an operator.

use super::series::{Emit, register, register_value};
use crate::fleet::Fleet;
use ::fleet::{Aggregate, LinkState};
use model::{Phase, SampleKind};
use prometheus_client::registry::Registry;
use std::sync::Arc;

pub(super) fn register_all(states: &mut Registry, fleet: &dyn Fleet) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        register_value(states, SampleKind::Gauge, &format!("polliwog_fleet_{name}"), help, value);
    };
    let is_well = |link: &LinkState| f64::from(u8::from(link.is_connected && link.problem.is_none()));
    let (agent, operator) = (fleet.agent(), fleet.operator());
    // A host that is both has one connection for each; the metric is that of the worse.
    let links = agent.iter().map(|agent| &agent.link).chain(operator.iter().map(|operator| &operator.link));
    let broker = links.map(is_well).fold(1.0, f64::min);
    gauge("broker_up", "1 while the broker works for this host, 0 while it cannot be reached or refuses", broker);
    if let Some(agent) = agent {
        let help = "Reports and descriptions that the broker has not acknowledged";
        gauge("queued_records", help, f64::from(agent.queued));
    }
    let Some(operator) = operator else { return };
    gauge("devices", "Devices of the fleet", operator.devices as f64);
    gauge("stale_devices", "Devices that were not heard for 5 minutes", operator.stale as f64);
    gauge("unassigned_devices", "Devices that did not receive their deployments", operator.unassigned.len() as f64);
    let is_waiting = operator.waits_for.is_some();
    let help = "1 while this operator assigns deployments to devices, 0 while another one does";
    gauge("assigning", help, f64::from(u8::from(!is_waiting)));
    if let Some(cluster) = &operator.kubernetes {
        let help = "1 while deployments are taken from Kubernetes, 0 while it cannot be reached or refuses";
        gauge("kubernetes_up", help, f64::from(u8::from(cluster.problem.is_none())));
    }
    let refused = operator.refused.0 as f64;
    let (name, help) = ("polliwog_fleet_refused_records", "Records of devices that were refused");
    register_value(states, SampleKind::Counter, name, help, refused);
    deployments(states, fleet);
}

fn deployments(states: &mut Registry, fleet: &dyn Fleet) {
    type Count = fn(&Aggregate) -> u32;
    const COUNTS: [(&str, Count); 5] = [
        ("pending", |counted| counted.pending),
        ("succeeded", |counted| counted.succeeded),
        ("failed", |counted| counted.failed),
        ("unreported", |counted| counted.unreported),
        ("stale", |counted| counted.stale),
    ];
    let all = Arc::new(fleet.deployments());
    let of_whole = all.clone();
    let devices = move |emit: &mut Emit<'_>| {
        all.iter().try_for_each(|deployment| {
            COUNTS.iter().try_for_each(|(state, count)| {
                emit(&[("deployment", &deployment.name), ("state", state)], f64::from(count(&deployment.aggregate)))
            })
        })
    };
    let help = "Devices that a deployment chooses, by their state";
    register(states, SampleKind::Gauge, "polliwog_fleet_deployment_devices", help, devices);
    let whole = move |emit: &mut Emit<'_>| {
        of_whole.iter().try_for_each(|deployment| {
            let is_failed = deployment.phase() == Phase::Failed;
            emit(&[("deployment", &deployment.name)], f64::from(u8::from(is_failed)))
        })
    };
    let help = "1 while a deployment has failed as a whole, otherwise 0";
    register(states, SampleKind::Gauge, "polliwog_fleet_deployment_failed", help, whole);
}
