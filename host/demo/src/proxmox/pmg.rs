//! Mail Gateway with a cluster of `nodes-N` gateways, or a standalone gateway.
//!
//! The scenarios are in [`SCENARIOS`]. A request for `/pmg` lists them.

use super::api::{self, ApiRequest, PMG_PASSWORD, PMG_USER, Reply, Scenario};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Lifetime of a ticket in seconds (pmg-api: PMG/Ticket.pm).
const TICKET: i64 = 2 * 3600;
const SIGNATURE: &str = "YSBzaWduYXR1cmUgb2YgdGhlIGVzdGF0ZSwgd2hpY2ggaXMgZ29vZCBmb3Igbm90aGluZyBlbHNl";

/// The names of the scenarios, with a description if the name is not sufficient.
pub(super) const SCENARIOS: &[(&str, &str)] = &[
    ("standalone", ""),
    ("tfa", "the account has a second factor"),
    ("ticket-lost", "all tickets are refused"),
    ("key-renewed", "tickets with the previous key are refused"),
    ("password-changed", "the password is refused, tickets are accepted"),
    ("no-rights", "the account does not have the role of an auditor"),
    ("node-dead", "the other nodes cannot reach the last node"),
    ("cluster-hangs", "requests for the cluster's list are not answered"),
    ("out-of-step", ""),
    ("deferred", "a long queue"),
    ("held", ""),
    ("service-down", ""),
    ("memory-full", ""),
    ("clamav-old", ""),
    ("rules-old", ""),
    ("certificate-ends", ""),
    ("certificate-ended", ""),
    ("subscribed", ""),
    ("subscription-expired", ""),
];

/// Answers a request.
pub(super) fn answer(scenario: &Scenario, request: &ApiRequest<'_>) -> Reply {
    let gateway = Gateway { scenario, now: request.now };
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    // This path needs no login (pmg-api: PMG/API2/AuthRealm.pm).
    if let ["access", "auth-realm"] = parts[..] {
        return Reply::Data(json!([{ "realm": "pam", "type": "pam" }, { "realm": "pmg", "type": "pmg" }]));
    }
    if let ["access", "ticket"] = parts[..] {
        return gateway.log_in(request);
    }
    // API tokens are not implemented (pmg-api: PMG/HTTPServer.pm).
    let ticket = request
        .cookie
        .and_then(|cookies| cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix("PMGAuthCookie=")));
    match ticket {
        Some(ticket) if gateway.takes(ticket) => {}
        Some(_) => return Reply::unauthorized("permission denied - invalid PMG ticket"),
        None if request.authorization.is_some() => return Reply::unauthorized("API tokens not implemented"),
        None => return Reply::unauthorized("No ticket"),
    }
    match parts[..] {
        ["version"] => Reply::Data(json!({ "version": "9.1.0", "release": "9.1", "repoid": "0a1b2c3d" })),
        ["nodes"] => Reply::Data(gateway.nodes().map(|node| json!({ "node": node })).collect()),
        _ if scenario.has("no-rights") => {
            let message = "Permission check failed (user 'monitor@pmg')";
            Reply::Error(
                403,
                message.to_owned(),
                json!({ "data": null, "message": format!("{message}\n") }).to_string(),
            )
        }
        // pmg-api: PMG/Statistic.pm. All values are zero without mail traffic.
        ["statistics", "mail"] => Reply::Data(json!({
            "count": 420, "count_in": 300, "count_out": 120, "spamcount_in": 45, "spamcount_out": 0, "viruscount_in": 2,
            "viruscount_out": 0, "bounces_in": 3, "bounces_out": 1, "junk_in": 7, "glcount": 20, "rbl_rejects": 11,
            "bytes_in": 123_456_789.0, "bytes_out": 23_456_789.0, "avptime": 0.42,
        })),
        ["quarantine", "spamstatus"] => {
            Reply::Data(json!({ "count": 17, "mbytes": 3.25, "avgbytes": "534.0", "avgspam": "7.5" }))
        }
        ["quarantine", "virusstatus"] => Reply::Data(json!({ "count": 2, "mbytes": 0.5, "avgbytes": "256.0" })),
        ["config", "cluster", "status"] if scenario.has("cluster-hangs") => Reply::Never,
        ["config", "cluster", "status"] => Reply::Data(gateway.cluster(request.query)),
        ["nodes", node, ref rest @ ..] => gateway.of_node(node, rest, request.query),
        _ => Reply::Error(501, format!("Method 'GET {}' not implemented", request.path), String::new()),
    }
}

struct Gateway<'a> {
    scenario: &'a Scenario,
    /// Seconds since the Unix epoch.
    now: i64,
}

impl Gateway<'_> {
    fn has(&self, name: &str) -> bool {
        self.scenario.has(name)
    }

    fn nodes(&self) -> impl Iterator<Item = String> {
        let count = if self.has("standalone") { 1 } else { self.scenario.nodes.max(1) };
        (1..=count).map(|number| format!("pmg{number}"))
    }

    fn is_dead(&self, node: &str) -> bool {
        self.has("node-dead") && self.nodes().last().is_some_and(|last| last == node)
    }

    /// pmg-api: PMG/API2/AccessControl.pm, create_ticket. A valid ticket is accepted as the password.
    fn log_in(&self, request: &ApiRequest<'_>) -> Reply {
        let field = |name: &str| {
            request.form.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let (user, password) = (field("username"), field("password"));
        let good = self.takes(password) || password == PMG_PASSWORD && !self.has("password-changed");
        if user != PMG_USER || !good {
            return Reply::unauthorized("authentication failure");
        }
        let half = if self.has("tfa") { "!tfa!" } else { "" };
        let mut data = json!({
            "username": user, "role": "audit", "CSRFPreventionToken": format!("{:X}:bm8tdG9rZW4h", self.now),
            "ticket": format!("PMG:{half}{user}:{:X}::{}", self.now, self.signature()),
        });
        if self.has("tfa") {
            data["NeedTFA"] = json!(1);
        }
        Reply::Data(data)
    }

    /// The signature of tickets. After a change of the key, earlier tickets are refused.
    fn signature(&self) -> String {
        if self.has("key-renewed") { SIGNATURE.replace('2', "3") } else { SIGNATURE.to_owned() }
    }

    fn takes(&self, ticket: &str) -> bool {
        let Some(rest) = ticket.strip_prefix(&format!("PMG:{PMG_USER}:")) else { return false };
        let Some((time, signature)) = rest.split_once("::") else { return false };
        let age = i64::from_str_radix(time, 16).map(|time| self.now - time);
        !self.has("ticket-lost") && signature == self.signature() && age.is_ok_and(|age| (-300..TICKET).contains(&age))
    }

    /// pmg-api: PMG/API2/Cluster.pm, status. A standalone gateway is listed only if the query asks for it.
    fn cluster(&self, query: &str) -> Value {
        let alone = self.nodes().count() == 1;
        if alone && !query.contains("list_single_node=1") {
            return json!([]);
        }
        let entry = |(index, name): (usize, String)| {
            let kind = if alone {
                "-"
            } else if index == 0 {
                "master"
            } else {
                "node"
            };
            let pin = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99";
            let mut entry = json!({
                "cid": index + 1, "type": kind, "name": name, "ip": format!("192.0.2.{}", index + 1),
                "fingerprint": if alone { "-" } else { pin },
            });
            if self.is_dead(&name) {
                entry["conn_error"] = json!("500 Can't connect to 192.0.2.3:8006 (No route to host)");
                return entry;
            }
            for (field, value) in self.status(&name).as_object().into_iter().flatten() {
                entry[field] = value.clone();
            }
            entry
        };
        self.nodes().enumerate().map(entry).collect()
    }

    /// pmg-api: PMG/API2/Nodes.pm, status. Loads are strings.
    fn status(&self, node: &str) -> Value {
        let used = if self.has("memory-full") { 8_300_000_000_u64 } else { 4_100_000_000 };
        // No node is in sync while a node is offline for more than three minutes.
        let last = self.nodes().last().is_some_and(|last| last == node);
        let apart = self.has("node-dead") || self.has("out-of-step") && last;
        json!({
            "time": self.now, "uptime": 345_678, "insync": u8::from(!apart), "loadavg": ["0.42", "0.30", "0.20"], "cpu": 0.12, "wait": 0.001,
            "memory": { "total": 8_400_000_000_u64, "used": used, "free": 8_400_000_000_u64 - used },
            "swap": { "total": 0, "used": 0, "free": 0 },
            "rootfs": { "total": 50_000_000_000_u64, "used": 9_000_000_000_u64, "avail": 39_000_000_000_u64, "free": 41_000_000_000_u64 },
            "pmgversion": "pmg-api/9.1.0/0a1b2c3d", "kversion": "Linux 6.17.2-1-pve", "level": "",
        })
    }

    fn of_node(&self, node: &str, rest: &[&str], query: &str) -> Reply {
        if self.is_dead(node) {
            return Reply::proxy(595, "No route to host");
        }
        match rest {
            ["status"] => Reply::Data(self.status(node)),
            ["services"] => Reply::Data(self.services(node)),
            ["certificates", "info"] => {
                Reply::Data(api::certificates(self.scenario, self.now, ["pmg-tls.pem", "pmg-api.pem"]))
            }
            ["subscription"] => Reply::Data(api::subscription(self.scenario)),
            ["clamav", "database"] => Reply::Data(self.clamav()),
            // One channel has an update, as on most days.
            ["spamassassin", "rules"] => {
                let updated = self.now - if self.has("rules-old") { 5 * 24 * 3600 } else { 8 * 3600 };
                Reply::Data(json!([
                    { "channel": "updates.spamassassin.org", "update_avail": 1, "version": "1934567", "update_version": "1934600", "last_updated": updated },
                    { "channel": "kam.sa-channels.mcgrail.com", "update_avail": 0, "version": "1764567890", "last_updated": updated },
                ]))
            }
            ["postfix", "queue", queue] => self.queue(queue, query),
            _ => Reply::Error(501, "Method not implemented".to_owned(), String::new()),
        }
    }

    /// pmg-api: PMG/API2/ClamAV.pm. The build time has a dash between hours and minutes.
    fn clamav(&self) -> Value {
        let age = if self.has("clamav-old") { 10 * 24 * 3600 } else { 3600 };
        let built =
            Timestamp::from_second(self.now - age).unwrap_or_default().strftime("%d %b %Y %H-%M +0000").to_string();
        json!([
            { "name": "main", "type": "main", "build_time": "16 Sep 2021 12-32 +0000", "version": "62", "nsigs": "6647427" },
            { "name": "daily", "type": "daily", "build_time": built, "version": "27853", "nsigs": "2076543" },
        ])
    }

    /// pmg-api: PMG/API2/Services.pm.
    fn services(&self, node: &str) -> Value {
        let service = |name: &str, state: &str, active: &str, unit: &str| json!({ "service": name, "name": name, "desc": format!("{name} service"), "state": state, "active-state": active, "unit-state": unit });
        let down = self.has("service-down") && node == "pmg1";
        let cluster = if self.nodes().count() == 1 { ("dead", "inactive") } else { ("running", "active") };
        let filter = if down { ("failed", "failed") } else { ("running", "active") };
        json!([
            service("pmg-smtp-filter", filter.0, filter.1, "enabled"),
            service("postfix", "exited", "active", "enabled"),
            service("clamav-daemon", "running", "active", "enabled"),
            service("fetchmail", "dead", "inactive", "disabled"),
            service("systemd-timesyncd", "dead", "inactive", "not-found"),
            // These services are enabled everywhere but start only in clusters.
            service("pmgmirror", cluster.0, cluster.1, "enabled"),
            service("pmgtunnel", cluster.0, cluster.1, "enabled"),
            // A timer starts this service.
            service("pmg-hourly", "success", "inactive", "static"),
        ])
    }

    /// pmg-api: PMG/API2/Postfix.pm. The total is next to the rows.
    fn queue(&self, queue: &str, query: &str) -> Reply {
        let total = match queue {
            "deferred" if self.has("deferred") => 240,
            "hold" if self.has("held") => 2,
            "deferred" => 3,
            "active" => 1,
            _ => 0,
        };
        let row = json!({
            "queue_id": "4F1A2B3C4D", "arrival_time": self.now - 60, "message_size": 2048, "sender": "someone@example.org",
            "receiver": "user@example.net", "reason": "connect to example.net: Connection timed out",
        });
        let rows = if query.contains("limit=1") { total.min(1) } else { total };
        Reply::Counted(std::iter::repeat_n(row, rows).collect(), total)
    }
}
