//! Services of each node.

use crate::context::PollContext;
use crate::nodes::Nodes;
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Text};
use proxmox::SortedMap;
use proxmox::{Verdict, evaluated, item, list};
use serde::Deserialize;
use std::time::Duration;

/// How often services are checked.
const PERIOD: Duration = Duration::from_secs(60);
const CHECK: &str = "services";
/// The dependency that is reported while the services of a node are not known.
const ALL: &str = "service/all";

/// One entry of `/nodes/N/services`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Service {
    service: Field<Text>,
    name: Field<Text>,
    desc: Field<Text>,
    state: Field<Text>,
    active_state: Field<Text>,
    unit_state: Field<Text>,
}

/// The state of a service on all nodes.
#[derive(Default)]
struct Everywhere {
    title: Option<String>,
    down: Vec<String>,
    /// Nodes on which it does not run and is not needed.
    idle: Vec<String>,
    unknown: Vec<String>,
    up: usize,
}

/// Services that copy mail and settings between nodes. They are enabled on every node, and run in clusters only
/// (pmg-api: debian/pmgmirror.service, ConditionPathExists).
const OF_CLUSTERS: [&str; 2] = ["pmgmirror", "pmgtunnel"];
/// Services that set the clock. They cannot run in a container, whose host sets the clock.
const CLOCKS: [&str; 4] = ["chrony", "systemd-timesyncd", "ntp", "openntpd"];

pub(crate) fn report(context: &mut PollContext, Nodes { answering: nodes, alone }: &Nodes) {
    if nodes.is_empty() || !context.is_due(CHECK) {
        return context.report.keep("service/");
    }
    let answers = context.api.ask_all(nodes.iter().map(|node| format!("/nodes/{node}/services")).collect());
    let mut all: SortedMap<String, Everywhere> = SortedMap::new();
    let mut whole = true;
    let mut unread: Vec<(String, String)> = Vec::new();
    for (node, answer) in nodes.iter().zip(answers) {
        match answer.list::<Service>(&mut context.diagnostics) {
            Ok(services) if services.is_empty() => unread.push((node.clone(), "it lists none".to_owned())),
            Ok(services) => {
                context.was_read(&format!("the services of {node}"));
                let mut of_node = SortedMap::new();
                for (index, service) in services.iter().enumerate() {
                    let list = (format_args!("/nodes/{node}/services"), &mut context.diagnostics);
                    of_node.insert_worst(service.named(index), service, |service| service.found(), list);
                }
                for (name, service) in of_node {
                    sort(context, (node, *alone), (name, service), &mut all);
                }
            }
            Err(error) => {
                let name = format!("the services of {node}");
                if context.stands(&name, &error) || !context.is_known(&name) {
                    unread.push((node.clone(), error.message));
                } else {
                    context.diagnostics.add(|| format!("{name} are not known: {}", error.message));
                }
                whole = false;
            }
        }
    }
    if whole {
        context.checked(CHECK, PERIOD);
    } else {
        context.report.keep("service/");
    }
    for (node, why) in &unread {
        context.mark_unknown("service/", format!("whether it runs on {node} is not known: {why}"));
    }
    match unread.first() {
        Some((node, why)) => {
            let why = format!("which services run on {node} is not known: {why}");
            context.add(evaluated(ALL, "pmg-service", (Status::Unknown, Some(why))));
        }
        None => context.report.remove(ALL),
    }
    for (name, service) in all {
        let verdict = verdict(&name, &service, &unread);
        // A service that is on no node is not missed.
        if service.up == 0 && verdict.0 == Status::Ok {
            continue;
        }
        let is_unread = verdict.0 == Status::Unknown && !unread.is_empty();
        let dependency = evaluated(format!("service/{name}"), "pmg-service", verdict);
        let dependency = if is_unread { dependency.with_runs_on(ALL) } else { dependency };
        context.add(match service.title {
            Some(title) => dependency.with_title(title),
            None => dependency,
        });
    }
}

/// Evaluates a service. `unread` are the nodes whose services are not known, and why.
fn verdict(name: &str, service: &Everywhere, unread: &[(String, String)]) -> Verdict {
    let down = |nodes: &[String]| {
        format!("it is not running on {}: check it there with \"systemctl status {}\"", list(nodes), unit(name))
    };
    if !service.down.is_empty() {
        (Status::Critical, Some(down(&service.down)))
    } else if !service.unknown.is_empty() {
        (Status::Unknown, Some(format!("whether it runs is not known: {}", list(&service.unknown))))
    } else if !service.idle.is_empty() {
        let elsewhere = "; in a container the host sets the clock: then exclude it with services.exclude";
        (Status::Warning, Some(format!("{}{elsewhere}", down(&service.idle))))
    } else if let Some((node, why)) = unread.first() {
        (Status::Unknown, Some(format!("whether it runs on {node} is not known: {why}")))
    } else {
        (Status::Ok, None)
    }
}

/// The name of the systemd unit.
fn unit(service: &str) -> &str {
    if service == "postgres" { "postgresql" } else { service }
}

fn sort(
    context: &mut PollContext,
    (node, alone): (&str, bool),
    (name, service): (String, &Service),
    all: &mut SortedMap<String, Everywhere>,
) {
    if context.settings.services.exclude.match_any([name.as_str()]) {
        return context.report.remove(format!("service/{name}"));
    }
    let everywhere = all.get_or_default(name.clone());
    everywhere.title = service.desc.get().map(|Text(desc)| desc.clone()).or(everywhere.title.take());
    match service.found() {
        State::Up => everywhere.up += 1,
        State::Down | State::Idle if alone && OF_CLUSTERS.contains(&name.as_str()) => {}
        State::Idle if CLOCKS.contains(&name.as_str()) => everywhere.idle.push(node.to_owned()),
        State::Down | State::Idle => everywhere.down.push(node.to_owned()),
        State::Absent => {}
        State::Unknown => everywhere.unknown.push(node.to_owned()),
    }
}

impl Service {
    /// The name, or the place in the list.
    fn named(&self, index: usize) -> String {
        self.service.get().or(self.name.get()).map_or_else(|| item(index), |Text(name)| name.clone())
    }

    fn found(&self) -> State {
        let is_odd = |field: &Field<Text>| matches!(field, Field::Odd(_));
        if is_odd(&self.state) || is_odd(&self.active_state) {
            return State::Unknown;
        }
        let word = |field: &Field<Text>| field.get().map(|Text(word)| word.clone()).unwrap_or_default();
        state(&word(&self.state), &word(&self.active_state), &word(&self.unit_state))
    }
}

/// The state of a service on a node, in the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Not installed, or disabled on purpose.
    Absent,
    Up,
    Unknown,
    /// It is not running, and did not fail.
    Idle,
    Down,
}

/// Returns the state from the words of systemd. A unit that did its work and ended is `exited`, which is up.
fn state(state: &str, active: &str, unit: &str) -> State {
    match (unit, state, active) {
        // `success` is a unit that ran once and succeeded; a unit with a timer is `static`.
        (_, "running" | "exited" | "listening" | "waiting" | "success", _) => State::Up,
        ("not-found" | "disabled" | "masked" | "static" | "indirect", state, _) if state != "failed" => State::Absent,
        (_, "failed", _) | (_, _, "failed") => State::Down,
        (_, "dead", _) | (_, _, "inactive") => State::Idle,
        (_, _, "active" | "activating" | "reloading") => State::Up,
        _ => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_systemd_are_mapped() {
        for (words, expected) in [
            (("running", "active", "enabled"), State::Up),
            (("exited", "active", "enabled"), State::Up),
            (("dead", "inactive", "enabled"), State::Idle),
            (("success", "inactive", "static"), State::Up),
            (("failed", "failed", "static"), State::Down),
            (("failed", "failed", "enabled"), State::Down),
            (("failed", "failed", "disabled"), State::Down),
            (("dead", "inactive", "disabled"), State::Absent),
            (("dead", "inactive", "not-found"), State::Absent),
            (("running", "", ""), State::Up),
            (("auto-restart", "activating", "enabled"), State::Up),
            (("entangled", "", "enabled"), State::Unknown),
            (("", "", ""), State::Unknown),
        ] {
            assert_eq!(state(words.0, words.1, words.2), expected, "{words:?}");
        }
    }
}
