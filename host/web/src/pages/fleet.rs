//! The pages of the fleet: its deployments and devices, one deployment, one device, and this host as an agent.

use super::parts::{age, encoded};
use super::shell::{Live, Place, failure, live, problems};
use crate::chart::duration;
use crate::fleet::Fleet;
use crate::state::Shared;
use ::fleet::wire::ModeWire;
use ::fleet::{
    AgentView, Aggregate, DeploymentView, DeviceFilter, DeviceView, Failures, FleetView, Happened, show_deployment,
};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{DeploymentReport, Phase};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The maximum number of devices on one page.
const LISTED: usize = 200;
/// The maximum number of devices that are grouped by a label.
const GROUPED: usize = 20_000;
/// The milliseconds between two refreshes.
const REFRESH: u32 = 2000;

/// The choice of devices, as in the address.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    text: String,
    /// `failed`, `stale`, or empty for all.
    #[serde(default)]
    state: String,
    /// The label by which devices are counted.
    #[serde(default)]
    label: String,
    /// The number of the first device.
    #[serde(default)]
    from: u32,
}

impl Wanted {
    fn filter(&self) -> DeviceFilter {
        DeviceFilter { text: self.text.clone(), stale: self.state == "stale", failed: self.state == "failed" }
    }

    fn query(&self, from: u32) -> String {
        let parts = [("text", self.text.clone()), ("state", self.state.clone()), ("label", self.label.clone())];
        let from = [("from", from.to_string())].into_iter().filter(|_| from > 0);
        let parts: Vec<_> = parts.into_iter().filter(|(_, value)| !value.is_empty()).chain(from).collect();
        serde_urlencoded::to_string(parts).unwrap_or_default()
    }
}

pub(super) async fn page(State(shared): State<Shared>, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Response {
    let content = format!("/fragments/fleet?{}", wanted.query(wanted.from));
    let page =
        Live { title: "Fleet", place: Some(Place::Fleet), content: &content, every: Some(REFRESH), ..Live::default() };
    live(&shared, &headers, &page, &content_of(&shared, &wanted)).into_response()
}

pub(super) async fn fragment(State(shared): State<Shared>, Query(wanted): Query<Wanted>) -> Markup {
    content_of(&shared, &wanted)
}

fn content_of(shared: &Shared, wanted: &Wanted) -> Markup {
    let Some(fleet) = shared.host.fleet() else {
        return html! {
            (problems(shared))
            p { "This host is in no fleet. In a fleet, one host assigns targets to many others and counts their states: add "
                code { "[fleet]" } " to " (shared.host.settings_file()) " and start the host again." }
        };
    };
    html! {
        (problems(shared))
        @if let Some(view) = fleet.operator() {
            (overview(shared, fleet, &view))
            (deployments(&fleet.deployments()))
            (devices(fleet, wanted))
        }
        @if let Some(agent) = fleet.agent() { (as_agent(shared, &agent)) }
    }
}

/// The state of the fleet as a whole: its problems first.
fn overview(shared: &Shared, fleet: &dyn Fleet, view: &FleetView) -> Markup {
    let Failures { deployments, failed, .. } = fleet.failures(0);
    html! {
        @if let Some(problem) = &view.link.problem {
            p.problem role="alert" {
                strong { "Fleet: " } (problem) ", for " (age(shared.host.now().before(view.link.lasts)))
                @if view.link.is_connected { ". Counters may be old." } @else { ". Counters are those of the last connection." }
            }
        }
        @if view.link.problem.is_none() && !view.is_complete {
            p.problem role="status" { "The records of the fleet are being read. Counters are too low until then." }
        }
        @if let Some(other) = &view.waits_for {
            p.note { "The operator " strong { (other) } " assigns deployments to devices. This one counts, and takes over if that one is not heard." }
        }
        @if let Some(cluster) = &view.kubernetes {
            @if let Some(why) = &cluster.problem {
                p.problem role="alert" { strong { "Kubernetes: " } (why) ". The deployments stay as they were." }
            } @else {
                p.note { (cluster.resources) " deployments are taken from Kubernetes: change them there." }
            }
        }
        @if view.refused.0 > 0 {
            p.problem role="alert" { (view.refused.0) " records were refused; the last one: " (view.refused.1.as_deref().unwrap_or_default()) }
        }
        @for device in view.doubled.iter().take(5) {
            p.problem role="alert" { "Several hosts report as device " a href={ "/fleet/devices/" (encoded(device)) } { (device) } ": give each another " code { "[fleet] device" } ", because they replace each other's reports." }
        }
        @for (device, why) in view.unassigned.iter().take(5) {
            p.problem role="alert" { "The deployments of " (device) " could not be sent to it: " (why) }
        }
        @for plugin in &view.plugins {
            @if let Some(why) = &plugin.problem {
                p.problem role="alert" { "Devices cannot fetch the plugin for kind " (plugin.kind) ": " (why) }
            } @else {
                p.note { "Devices that take plugins fetch the one for kind " (plugin.kind) " from here." }
            }
        }
        p.summary {
            (counted(view.devices, "device")) ", "
            @if view.stale > 0 { a href="/fleet?state=stale" { strong { (view.stale) " not heard for 5 minutes" } } } @else { "0 not heard for 5 minutes" }
            "; " (counted(deployments, "deployment")) ", "
            @if failed > 0 { strong { (failed) " failed" } } @else { "none failed" } "."
        }
    }
}

fn deployments(all: &[DeploymentView]) -> Markup {
    html! {
        section #deployments.target {
            h2 { "Deployments" }
            @if all.is_empty() {
                p { "No deployment exists. " code { "polliwog fleet apply FILE" } " makes one: a set of targets for every device whose labels match." }
            } @else {
                div.scroll { table.numbers {
                    thead { tr {
                        th scope="col" { "Deployment" } th scope="col" { "State" } th scope="col" { "Devices" } th scope="col" { "Succeeded" }
                        th scope="col" { "Failed" } th scope="col" { "Pending" } th scope="col" { "Unreported" } th scope="col" { "Stale" }
                        th scope="col" { "Last error" }
                    } }
                    tbody { @for deployment in all { (row(deployment)) } }
                } }
            }
        }
    }
}

fn row(deployment: &DeploymentView) -> Markup {
    let Aggregate { matched, pending, succeeded, failed, unreported, stale, .. } = &deployment.aggregate;
    html! {
        tr {
            th scope="row" { a href={ "/fleet/deployments/" (encoded(&deployment.name)) } { (deployment.name) } }
            td { (tag(Some(deployment.phase()))) @if let Some(since) = deployment.since { " for " (age(since)) } }
            td.number { (matched) } td.number { (succeeded) } td.number { (failed) } td.number { (pending) }
            td.number { (unreported) } td.number { (stale) }
            td { (reason(&deployment.aggregate)) }
        }
    }
}

/// Why a device fails now, or the latest failure.
fn reason(counted: &Aggregate) -> Markup {
    html! {
        @if let Some(error) = counted.reason() { @if counted.failed == 0 { "earlier: " } (happened(error)) }
    }
}

fn happened(change: &Happened) -> Markup {
    html! {
        a href={ "/fleet/devices/" (encoded(&change.device)) } { (change.device) } " "
        (change.error.as_deref().unwrap_or(change.phase.as_str())) ", " (age(change.at)) " ago"
    }
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A phase with its sign; a deployment that a device has not reported has none.
fn tag(phase: Option<Phase>) -> Markup {
    let (class, sign, word) = match phase {
        Some(Phase::Succeeded) => ("ok", "✓", "succeeded"),
        Some(Phase::Failed) => ("critical", "✗", "failed"),
        Some(Phase::Pending) => ("pending", "…", "pending"),
        Some(Phase::Removed) => ("disabled", "‖", "no device"),
        None => ("unknown", "?", "unreported"),
    };
    html! { span class={ "tag " (class) } { (sign) " " (word) } }
}

/// The phase of a deployment on a device. A device without a report stands by if another one polls.
fn tag_on_device(fleet: &dyn Fleet, deployment: &str, phase: Option<Phase>) -> Markup {
    html! { @if fleet.stands_by(deployment, phase) { span.tag.disabled { "‖ stands by" } } @else { (tag(phase)) } }
}

fn devices(fleet: &dyn Fleet, wanted: &Wanted) -> Markup {
    let (found, next) = fleet.devices(wanted.from, &wanted.filter(), LISTED);
    let states = [("", "all"), ("failed", "with a failure"), ("stale", "not heard")];
    html! {
        section #devices.target {
            h2 { "Devices" }
            form.filter method="get" action="/fleet" {
                label { "Text " input type="search" name="text" value=(wanted.text) placeholder="id or label"; }
                label { "State " select name="state" {
                    @for (value, name) in states { option value=(value) selected[wanted.state == value] { (name) } }
                } }
                label { "Count by label " input name="label" value=(wanted.label) placeholder="site"; }
                button { "Show" }
            }
            @if !wanted.label.is_empty() { (by_label(fleet, &wanted.label)) }
            @if found.is_empty() { p { "No device matches." } }
            @else {
                div.scroll { table.numbers {
                    thead { tr { th scope="col" { "Device" } th scope="col" { "Labels" } th scope="col" { "Last heartbeat" } th scope="col" { "Deployments" } } }
                    tbody { @for device in &found { (device_row(fleet, device)) } }
                } }
            }
            @if let Some(next) = next { p { a href={ "/fleet?" (wanted.query(next)) } { "Further devices" } } }
        }
    }
}

fn device_row(fleet: &dyn Fleet, device: &DeviceView) -> Markup {
    html! {
        tr {
            th scope="row" { a href={ "/fleet/devices/" (encoded(&device.device)) } { (device.device) } }
            td { (labels(&device.labels)) }
            td { (heard(fleet, device)) }
            td { @if device.is_stale && !device.deployments.is_empty() { "before: " } @for (name, phase) in &device.deployments { (tag_on_device(fleet, name, *phase)) " " a href={ "/fleet/deployments/" (encoded(name)) } { (name) } " " } }
        }
    }
}

fn heard(fleet: &dyn Fleet, device: &DeviceView) -> Markup {
    let at = fleet.heard_at(device);
    html! {
        @if device.is_stale { span.tag.unreachable { "⚡ not heard" } " for " (age(at)) }
        @else if device.is_heard { (age(at)) " ago" }
        @else { "not yet by this operator, which knows it for " (age(at)) }
    }
}

fn labels(labels: &BTreeMap<String, String>) -> Markup {
    html! { @for (key, value) in labels { span.tag { (key) "=" (value) } " " } }
}

/// The number of devices for each value of a label: how many, failed, stale.
fn by_label(fleet: &dyn Fleet, label: &str) -> Markup {
    let (all, more) = fleet.devices(0, &DeviceFilter::default(), GROUPED);
    let mut groups: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for device in &all {
        let group = groups.entry(device.labels.get(label).map_or("", String::as_str)).or_default();
        group.0 += 1;
        group.1 += usize::from(device.is_failed());
        group.2 += usize::from(device.is_stale);
    }
    html! {
        div.scroll { table.numbers {
            thead { tr { th scope="col" { (label) } th scope="col" { "Devices" } th scope="col" { "With a failure" } th scope="col" { "Not heard" } } }
            tbody { @for (value, (count, failed, stale)) in &groups { tr {
                th scope="row" { @if value.is_empty() { "(none)" } @else { a href={ "/fleet?text=" (encoded(value)) } { (value) } } }
                td.number { (count) } td.number { (failed) } td.number { (stale) }
            } } }
        } }
        @if more.is_some() { p.note { "Of the first " (GROUPED) " devices." } }
    }
}

/// This host as an agent of a fleet.
fn as_agent(shared: &Shared, agent: &AgentView) -> Markup {
    html! {
        section #agent.target {
            h2 { "This host is device " (agent.device) }
            @if let Some(problem) = &agent.link.problem {
                p.problem role="alert" {
                    strong { "Fleet: " } (problem) ", for " (age(shared.host.now().before(agent.link.lasts)))
                    ". Polls continue" @if agent.queued > 0 { ", and reports are sent when that is over" } "."
                }
            }
            p { (counted(agent.queued as usize, "record")) " not acknowledged by the broker." }
            @if agent.reports.is_empty() { p { "No deployment is assigned to this host." } }
            @else { (reports(agent.reports.iter().cloned())) }
        }
    }
}

fn reports(all: impl Iterator<Item = DeploymentReport>) -> Markup {
    html! {
        div.scroll { table.numbers {
            thead { tr {
                th scope="col" { "Deployment" } th scope="col" { "State" } th scope="col" { "Since" } th scope="col" { "Dependencies" }
                th scope="col" { "Why" }
            } }
            tbody { @for report in all.filter(|report| report.phase != Phase::Removed) { tr {
                th scope="row" { (report.deployment) }
                td { (tag(Some(report.phase))) }
                td { (age(report.at)) }
                td {
                    @let [ok, warning, critical, unknown] = report.counts;
                    (ok) " ok" @if warning > 0 { ", " (warning) " warning" } @if critical > 0 { ", " (critical) " critical" }
                    @if unknown > 0 { ", " (unknown) " unknown" }
                }
                td { (report.error.as_deref().unwrap_or_default()) }
            } } }
        } }
    }
}

pub(super) async fn deployment(State(shared): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    match deployment_content(&shared, &name) {
        Some(content) => {
            let (title, fragment) = (format!("Deployment {name}"), format!("/fragments/fleet/deployments/{name}"));
            let page = Live { title: &title, content: &fragment, every: Some(REFRESH), ..Live::default() };
            live(&shared, &headers, &page, &content).into_response()
        }
        None => {
            failure(&headers, StatusCode::NOT_FOUND, &format!("there is no deployment {name:?}: it may be deleted"))
        }
    }
}

pub(super) async fn deployment_fragment(State(shared): State<Shared>, Path(name): Path<String>) -> Response {
    let gone = || html! { p.problem role="alert" { "There is no deployment " (name) ": it may be deleted." } };
    deployment_content(&shared, &name).unwrap_or_else(gone).into_response()
}

fn deployment_content(shared: &Shared, name: &str) -> Option<Markup> {
    let fleet = shared.host.fleet()?;
    let view = fleet.deployment(name)?;
    let selector = view.definition.selector().to_string();
    let counted = &view.aggregate;
    let definition = serde_json::to_string_pretty(&show_deployment(&view.definition)).unwrap_or_default();
    Some(html! {
        (problems(shared))
        p.summary {
            (tag(Some(view.phase()))) @if let Some(since) = view.since { " for " (age(since)) ":" } " " (counted.failed) " of " (counted.matched) " devices failed, " (counted.succeeded) " succeeded, "
            (counted.pending) " pending, " (counted.unreported) " unreported, " (counted.stale) " not heard. "
            @if let ModeWire::Quorum(needed) = view.definition.mode {
                "It fails as a whole if " (needed) " devices fail. "
                @if counted.matched < needed {
                    strong { "It cannot fail: its selector chooses fewer devices. Use a smaller quorum or a wider selector." }
                }
            }
            @if view.definition.mode == ModeWire::Once {
                "One device polls at a time: "
                @match &counted.holder {
                    Some((device, term)) => { a href={ "/fleet/devices/" (encoded(device)) } { (device) } " now, in term " (term) ". The others stand by." },
                    None => "none now.",
                }
            }
        }
        @if counted.reason().is_some() { p { "Last error: " (reason(counted)) } }
        section.target {
            h2 { "Latest changes" }
            @if counted.recent.is_empty() { p { "Nothing has changed since the operator started." } }
            ul.plain { @for change in &counted.recent { li { (tag(Some(change.phase))) " " (happened(change)) } } }
        }
        section.target {
            h2 { "Devices with " @if selector.is_empty() { "any labels" } @else { code { (selector) } } }
            @let devices = fleet.devices_of(name, LISTED);
            div.scroll { table.numbers {
                thead { tr { th scope="col" { "Device" } th scope="col" { "Labels" } th scope="col" { "Last heartbeat" } th scope="col" { "Deployments" } } }
                tbody { @for device in &devices { (device_row(fleet, device)) } }
            } }
            @if devices.len() == LISTED { p.note { "The first " (LISTED) " devices." } }
        }
        section.target { h2 { "Definition" } div.scroll { pre { (definition) } } }
        p { a href="/fleet" { "The whole fleet" } }
    })
}

pub(super) async fn device(State(shared): State<Shared>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    match device_content(&shared, &id).await {
        Some(content) => {
            let (title, fragment) = (format!("Device {id}"), format!("/fragments/fleet/devices/{id}"));
            let page = Live { title: &title, content: &fragment, every: Some(REFRESH), ..Live::default() };
            live(&shared, &headers, &page, &content).into_response()
        }
        None => failure(&headers, StatusCode::NOT_FOUND, &format!("there is no device {id:?} in the fleet")),
    }
}

pub(super) async fn device_fragment(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let gone = || html! { p.problem role="alert" { "There is no device " (id) " in the fleet." } };
    device_content(&shared, &id).await.unwrap_or_else(gone).into_response()
}

async fn device_content(shared: &Shared, id: &str) -> Option<Markup> {
    let fleet = shared.host.fleet()?;
    let detail = fleet.device(id.to_owned()).await?;
    let others = detail.view.deployments.iter().filter(|(name, _)| !detail.states.contains_key(name));
    let states = detail.states.iter().map(|(name, state)| DeploymentReport {
        deployment: name.clone(),
        phase: state.phase.into(),
        counts: state.counts,
        at: state.at(),
        error: state.error.clone(),
        term: state.term,
    });
    Some(html! {
        (problems(shared))
        p.summary { "Last heartbeat: " (heard(fleet, &detail.view)) ". " (labels(&detail.view.labels)) }
        @if let Some(skew) = detail.skew {
            p.problem role="alert" {
                "Its clock is " (duration(skew.unsigned_abs() / 1000)) @if skew > 0 { " ahead" } @else { " behind" }
                ": times that it reports are wrong by that."
            }
        }
        @if let Some(info) = &detail.info { p { "Polliwog " (info.version) @for (fact, value) in &info.inventory { ", " (fact) " " (value) } } }
        @if let Some(why) = &detail.problem {
            p.problem role="status" { "Not all that it reports can be read from the broker: " (why) "." }
        } @else if detail.info.is_none() {
            p.problem role="status" { "The broker has no description of it." }
        }
        section.target {
            h2 { "Deployments" }
            @if detail.view.is_stale { p.problem role="status" { "This is what it reported before it was no longer heard." } }
            (reports(states))
            @for (name, phase) in others { p { (tag_on_device(fleet, name, *phase)) " " (name) } }
        }
        p { a href={ "/fleet/devices/" (encoded(id)) "/targets" } { "The targets of this device" } }
        p { a href="/fleet" { "The whole fleet" } }
    })
}
