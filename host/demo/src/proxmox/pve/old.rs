//! The differences of Proxmox VE 6.2, the first version with tokens.
//!
//! Sources: pve-manager 6.2-4, pve-access-control 6.1-1, pve-cluster 6.1-8 and pve-ha-manager 3.0-9.

use crate::proxmox::api::{PVE_TOKEN, Reply};
use serde_json::{Value, json};

/// Returns why a token is refused, in the text of that version (pve-access-control: PVE/AccessControl.pm,
/// verify_token). Versions from 9.1.5 on return the same text for all tokens.
pub(super) fn refusal(token: &str) -> String {
    fn parts(token: &str) -> Option<(&str, &str, &str)> {
        let (id, secret) = token.split_once('=')?;
        let (user, name) = id.split_once('!')?;
        Some((user, name, secret))
    }
    match (parts(token), parts(PVE_TOKEN)) {
        (Some((user, ..)), Some((known, ..))) if user != known => format!("no such user ('{user}')"),
        (Some((user, name, _)), Some((_, known, _))) if name != known => {
            format!("no such token '{name}' for user '{user}'")
        }
        (Some(_), _) => "invalid token value!".to_owned(),
        (None, _) => "no tokenid specified".to_owned(),
    }
}

/// Converts an answer to that of version 6.2.
pub(super) fn aged(parts: &[&str], query: &str, reply: Reply) -> Reply {
    match (parts, reply) {
        (["version"], _) => Reply::Data(json!({ "version": "6.2-4", "release": "6.2", "repoid": "9824516a" })),
        // Guests without a backup job are listed since 6.2-9. Unknown paths are not implemented (PVE/HTTPServer.pm,
        // rest_handler).
        (["cluster", "backup-info", ..], _) => {
            Reply::Error(501, format!("Method 'GET /{}' not implemented", parts.join("/")), String::new())
        }
        // PVE/API2/Tasks.pm refuses these parameters.
        (["nodes", _, "tasks"], _) if ["since=", "until=", "statusfilter="].iter().any(|new| query.contains(new)) => {
            let body = json!({ "data": null, "errors": { "since": "property is not defined in schema" } });
            Reply::Error(400, "Parameter verification failed.".to_owned(), body.to_string())
        }
        // pve-http-server: PVE/APIServer/Formatter/Standard.pm wrote no message.
        (_, Reply::Error(status, reason, body)) if !body.is_empty() => {
            Reply::Error(status, reason, json!({ "data": null }).to_string())
        }
        (_, Reply::Data(data)) => Reply::Data(self::data(parts, data)),
        (_, reply) => reply,
    }
}

fn data(parts: &[&str], mut data: Value) -> Value {
    let entries = data.as_array_mut();
    match parts {
        // PVE/API2Tools.pm: extract_node_stats, extract_vm_stats, extract_storage_stats.
        ["cluster", "resources"] => {
            for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
                let node = entry.get("type").is_some_and(|kind| kind == "node");
                ["tags", "plugintype", "content", "cgroup-mode"].iter().for_each(|new| drop(entry.remove(*new)));
                if node {
                    entry.remove("hastate");
                }
            }
            without(data, |entry| entry["type"] == "network")
        }
        // pve-ha-manager: PVE/API2/HA/Status.pm.
        ["cluster", "ha", "status", "current"] => {
            for entry in entries.into_iter().flatten() {
                if let Some(status) = entry["status"].as_str().map(|status| status.replace(", watchdog active", "")) {
                    entry["status"] = json!(status);
                }
            }
            without(data, |entry| entry["type"] == "fencing")
        }
        // PVE/API2/Subscription.pm, get.
        ["nodes", _, "subscription"] => {
            let status = match data["status"].as_str() {
                Some("active") => "Active",
                Some("expired") => "Expired",
                _ => "NotFound",
            };
            data["status"] = json!(status);
            data
        }
        _ => data,
    }
}

fn without(mut list: Value, new: impl Fn(&Value) -> bool) -> Value {
    if let Some(entries) = list.as_array_mut() {
        entries.retain(|entry| !new(entry));
    }
    list
}
