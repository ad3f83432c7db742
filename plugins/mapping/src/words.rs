//! Words and texts that say whether a service works.

use crate::tree::Node;
use polliwog_sdk::prelude::*;

/// Converts a word or number of a severity.
pub(crate) fn severity(text: &str) -> Option<Status> {
    match text {
        "0" => Some(Status::Ok),
        "1" => Some(Status::Warning),
        "2" => Some(Status::Critical),
        text => word(text),
    }
}

/// Converts a word of a health endpoint: those of Depsera, Spring Boot, ASP.NET, and the draft
/// draft-inadarei-api-health-check-06 (pass, warn, fail).
pub(crate) fn word(text: &str) -> Option<Status> {
    match text.trim().to_lowercase().as_str() {
        "ok" | "up" | "healthy" | "pass" | "passing" | "green" | "true" => Some(Status::Ok),
        "warn" | "warning" | "degraded" | "yellow" => Some(Status::Warning),
        "error" | "critical" | "crit" | "down" | "unhealthy" | "fail" | "failed" | "failing" | "failure" | "fatal"
        | "red" | "out_of_service" | "false" => Some(Status::Critical),
        _ => None,
    }
}

/// Words in the texts of services that fail. Not all are statuses of a health endpoint.
const OF_FAILURE: [&str; 40] = [
    "aborted",
    "blocked",
    "broken",
    "crashed",
    "crashloopbackoff",
    "dead",
    "degraded",
    "denied",
    "disconnected",
    "down",
    "err",
    "error",
    "expired",
    "fail",
    "failed",
    "failing",
    "failure",
    "inactive",
    "killed",
    "ko",
    "lost",
    "maintenance",
    "major_outage",
    "nok",
    "offline",
    "oom",
    "outage",
    "partial_outage",
    "paused",
    "pending",
    "problem",
    "restarting",
    "starting",
    "stopped",
    "stopping",
    "suspended",
    "timeout",
    "unavailable",
    "unhealthy",
    "unreachable",
];
/// Parts of the messages of programs about a failure.
const OF_MESSAGES: [&str; 10] = [
    "cannot connect",
    "could not",
    "econn",
    "exception",
    "failed to",
    "no connection",
    "refused",
    "timed out",
    "unable to",
    "unreachable",
];
/// Words that say so if nothing else is there.
const ALONE: [&str; 2] = ["no", "unknown"];
/// The longest text that can be a status, in bytes. Others are addresses and descriptions.
const LONGEST_STATUS: usize = 32;

/// Words of services that work. Not all are statuses of a health endpoint.
const OF_SUCCESS: [&str; 14] = [
    "active",
    "alive",
    "available",
    "connected",
    "enabled",
    "fine",
    "good",
    "normal",
    "online",
    "operational",
    "ready",
    "reachable",
    "running",
    "success",
];

/// Whether a text says that something works. Among the members of a whole body, only the words of health endpoints do.
pub(crate) fn tells_of_success(text: &str, has_root: bool) -> bool {
    word(text) == Some(Status::Ok) || has_root && OF_SUCCESS.contains(&text.trim().to_lowercase().as_str())
}

/// Whether a value that is not an object says that something is not ok, or one in a list does, perhaps of lists. Among
/// the members of a whole body, only the words of health endpoints say so: others may be descriptions, and false may be
/// any switch.
pub(crate) fn tells_of_failure(value: &Node<'_>, has_root: bool) -> bool {
    match value {
        Node::Text(text) => {
            word(text).is_some_and(|status| status != Status::Ok)
                || (has_root && describes_failure(&text.to_lowercase()))
        }
        Node::Bool(is_ok) => has_root && !is_ok,
        // A status of HTTP.
        Node::Number(number) => has_root && number.as_u64().is_some_and(|status| (400..600).contains(&status)),
        Node::List(items) => items.iter().any(|item| match item {
            Node::Object(members) => members.iter().any(|(_, value)| tells_of_failure(value, has_root)),
            item => tells_of_failure(item, has_root),
        }),
        _ => false,
    }
}

fn describes_failure(text: &str) -> bool {
    let text = text.trim();
    let is_short = text.len() <= LONGEST_STATUS && !text.starts_with("no ");
    let mut words = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let is_word = is_short && (text.starts_with("not ") || words.any(|word| OF_FAILURE.contains(&word)));
    is_word || ALONE.contains(&text) || OF_MESSAGES.iter().any(|part| text.contains(part))
}
