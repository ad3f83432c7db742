//! The accounts of a fleet at the broker: one for the operator, and one for each agent.
//!
//! Permissions within one account do not separate agents: the broker answers a request to any reply subject with its
//! rights instead of the client's, so an agent could write the key of another one. An agent with a separate account
//! reaches only the subjects that the operator's account exports to it.

use crate::bucket::{Bucket, META, heartbeat, of_agent, shard};
use fleet::names::{info_key, state_key};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The name of the operator's account and user.
pub const OPERATOR: &str = "operator";

/// Returns the configuration of the broker's accounts, for `include` in its own: `passwords` of the agents by device.
pub fn accounts(operator: &str, passwords: &BTreeMap<String, String>) -> String {
    let mut text = String::from("# Written by `polliwog fleet credentials`, which replaces it.\naccounts {\n");
    let _ = writeln!(text, "  {OPERATOR} {{\n    jetstream: enabled");
    let _ = writeln!(text, "    users: [ {{ user: {OPERATOR:?}, password: {operator:?} }} ]\n    exports: [");
    let _ = writeln!(text, "      {{ service: {:?} }}", direct(Bucket::State, META));
    let names: Vec<String> = passwords.keys().map(|device| format!("{:?}", name(device))).collect();
    for subject in shared().iter().filter(|_| !names.is_empty()) {
        let _ = writeln!(text, "      {{ service: {subject:?}, accounts: [ {} ] }}", names.join(", "));
    }
    for device in passwords.keys() {
        for subject in services(device) {
            let _ = writeln!(text, "      {{ service: {subject:?}, accounts: [ {:?} ] }}", name(device));
        }
        let _ = writeln!(text, "      {{ stream: {:?}, accounts: [ {:?} ] }}", of_agent(device), name(device));
    }
    text.push_str("    ]\n  }\n");
    for (device, password) in passwords {
        let name = name(device);
        let _ = writeln!(
            text,
            "  {name:?}: {{\n    users: [ {{ user: {name:?}, password: {password:?} }} ]\n    imports: ["
        );
        for subject in services(device).into_iter().chain(shared()).chain([direct(Bucket::State, META)]) {
            let _ = writeln!(text, "      {{ service: {{ account: {OPERATOR}, subject: {subject:?} }} }}");
        }
        let _ = writeln!(text, "      {{ stream: {{ account: {OPERATOR}, subject: {:?} }} }}", of_agent(device));
        text.push_str("    ]\n  }\n");
    }
    text.push_str("}\n");
    text
}

/// Returns the name of a device's account and user.
pub fn name(device: &str) -> String {
    format!("agent-{device}")
}

/// The subjects of the operator's account that an agent may publish to.
fn services(device: &str) -> [String; 7] {
    let states = state_key(device, ">");
    [
        Bucket::State.subject(&states),
        Bucket::Info.subject(&info_key(device)),
        direct(Bucket::State, &states),
        direct(Bucket::Info, &info_key(device)),
        direct(Bucket::Assignments, device),
        heartbeat(device),
        format!("logs.{device}.*"),
    ]
}

/// The subjects of the operator's account that every agent may publish to: any device may become the one that polls,
/// and may read plugins.
fn shared() -> [String; 5] {
    let lease = shard("*");
    [
        Bucket::Leases.subject(&lease),
        direct(Bucket::Leases, &lease),
        Bucket::Alerts.subject("*"),
        direct(Bucket::Alerts, "*"),
        direct(Bucket::Plugins, "*.*"),
    ]
}

/// The subject of a request for the last record of a key.
fn direct(bucket: Bucket, key: &str) -> String {
    format!("$JS.API.DIRECT.GET.{}.{}", bucket.stream(), bucket.subject(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_imports_its_own_subjects_only() {
        let passwords = ["host-1", "host-2"].map(|device| (device.to_owned(), format!("{device}-secret")));
        let text = accounts("hub-secret", &passwords.into());
        let own = text.split("\"agent-host-1\": {").nth(1).unwrap().split("\n  }").next().unwrap();
        assert_eq!(own.matches("service:").count(), 13);
        assert!(own.contains("\"$KV.device-state.state.host-1.>\"") && own.contains("host-1-secret"), "{own}");
        assert!(!own.contains("host-2") && !own.contains("hub-secret") && !own.contains("\">\""), "{own}");
        assert_eq!(text.matches("accounts: [ \"agent-host-1\", \"agent-host-2\" ]").count(), 5);
        // Each other export names the one account that may import it.
        let exports = text.lines().filter(|line| {
            line.contains("accounts: [")
                && !["leases", "open-alerts", "plugins"].iter().any(|of_all| line.contains(of_all))
        });
        for line in exports {
            let device = if line.contains("agent-host-1") { "host-1" } else { "host-2" };
            assert!(line.matches(device).count() >= 2, "{line}");
        }
        assert!(!accounts("hub-secret", &BTreeMap::new()).contains("import"));
    }
}
