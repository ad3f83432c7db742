//! The types that the simulated products share: scenarios, requests and replies.

use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The token that the simulated Virtual Environment accepts.
pub const PVE_TOKEN: &str = "monitor@pve!polliwog=11111111-2222-3333-4444-555555555555";
/// The token that the simulated Backup Server accepts.
pub const PBS_TOKEN: &str = "monitor@pbs!polliwog:11111111-2222-3333-4444-555555555555";
/// The account of the simulated Mail Gateway.
pub const PMG_USER: &str = "monitor@pmg";
/// The password of [`PMG_USER`].
pub const PMG_PASSWORD: &str = "simulated & of no use";
/// How long the scenario `timetable` is healthy.
const WELL: Duration = Duration::from_secs(40);
/// How long the scenario `timetable` then lacks a node.
const LACKING: Duration = Duration::from_secs(20);

/// The scenarios of a URL.
#[derive(Clone, Debug, Default)]
pub(super) struct Scenario {
    pub(super) names: BTreeSet<String>,
    pub(super) nodes: usize,
    pub(super) guests: usize,
    pub(super) groups: usize,
}

impl Scenario {
    /// Parses names separated by `+`. `nodes-N`, `guests-N` and `groups-N` set a count.
    pub(super) fn read(spec: &str, start: Instant) -> Self {
        let number = |prefix: &str| spec.split('+').find_map(|word| word.strip_prefix(prefix)?.parse().ok());
        let mut names: BTreeSet<String> = spec.split('+').map(str::to_owned).collect();
        let cycle = WELL + LACKING;
        let phase = start.elapsed().as_secs() % cycle.as_secs();
        if names.contains("timetable") && phase >= WELL.as_secs() {
            names.insert("node-offline".to_owned());
        }
        Self {
            names,
            nodes: number("nodes-").unwrap_or(3),
            guests: number("guests-").unwrap_or(8),
            groups: number("groups-").unwrap_or(4),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// The parts of a request that the products use.
pub(super) struct ApiRequest<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) authorization: Option<&'a str>,
    pub(super) cookie: Option<&'a str>,
    /// The fields of a form body.
    pub(super) form: &'a [(String, String)],
    /// Seconds since the Unix epoch.
    pub(super) now: i64,
}

/// The answer of a product.
pub(super) enum Reply {
    /// Status 200 with data in an envelope.
    Data(Value),
    /// Another status: status, reason phrase and body.
    Error(u16, String, String),
    /// Status 200 with a part of a list, in an envelope with the total number of entries.
    Counted(Value, usize),
    /// Status 401 after three seconds: reason phrase and body.
    Refused(Cow<'static, str>, &'static str),
    /// No answer.
    Never,
}

impl Reply {
    /// A refused login without a body.
    pub(super) fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(reason.into(), "")
    }

    /// The answer for a node that the requested node cannot reach. The codes are those of AnyEvent::HTTP.
    pub(super) fn proxy(status: u16, reason: &str) -> Self {
        Self::Error(status, reason.to_owned(), String::new())
    }
}

/// Returns the list of a node's certificates (PVE/CertHelpers.pm) with these two files. The first expires in ten years,
/// or in two days with `ca-ends`. The second expires in a year, in two days with `certificate-ends`, or has expired two
/// days ago with `certificate-ended`.
pub(super) fn certificates(scenario: &Scenario, now: i64, files: [&str; 2]) -> Value {
    const DAY: i64 = 24 * 3600;
    let days = if scenario.has("certificate-ends") {
        2
    } else if scenario.has("certificate-ended") {
        -2
    } else {
        365
    };
    let entry = |file: &str, days: i64| {
        json!({
            "filename": file, "subject": "/CN=simulated.example", "issuer": "/CN=Simulated CA", "san": ["simulated.example"],
            "notbefore": now - 30 * DAY, "notafter": now + days * DAY, "public-key-type": "rsaEncryption", "public-key-bits": 4096,
            "fingerprint": "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99",
        })
    };
    let [long, own] = files;
    json!([entry(long, if scenario.has("ca-ends") { 2 } else { 3650 }), entry(own, days)])
}

/// Returns the subscription in the format of all three products. By default there is no subscription, an active one
/// with `subscribed`, and an expired one with `subscription-expired`.
pub(super) fn subscription(scenario: &Scenario) -> Value {
    let status = if scenario.has("subscribed") { "active" } else { "expired" };
    if scenario.has("subscribed") || scenario.has("subscription-expired") {
        return json!({ "status": status, "productname": "Simulated Community Subscription", "nextduedate": "2027-03-01" });
    }
    json!({ "status": "notfound", "message": "There is no subscription key" })
}
