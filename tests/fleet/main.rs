//! Tests of a fleet with a real broker: the program as operator and as agents, and a nats-server that is killed, wiped
//! and restored. `tests/fleet.sh` runs them, because they need more than the other tests.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod access;
mod attack;
#[allow(dead_code, reason = "the chaos needs more than these tests")]
mod broker;
mod cluster;
mod faults;
mod kept;
mod leases;
mod network;
mod plugins;
mod proxy;
#[path = "../end_to_end/receiver.rs"]
#[allow(dead_code, reason = "it has more than these tests need")]
mod receiver;
#[path = "../end_to_end/support.rs"]
#[allow(dead_code, reason = "it has more than these tests need")]
mod support;

use broker::Broker;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use support::{Answer, Host, Server, TOKEN, always, folder, get, ok, send, until};

const HEALTHY: &str = r#"[{"name":"db","healthy":true}]"#;
const CRITICAL: &str = r#"[{"name":"db","healthy":false}]"#;

/// An operator and agents in folders of one place.
struct Fleet {
    place: PathBuf,
    broker: Broker,
    operator: Option<Host>,
    /// The directory of the credentials, if the broker has accounts.
    credentials: Option<PathBuf>,
}

impl Fleet {
    fn start(place: &Path) -> Self {
        Self::start_on(place, Broker::start(place))
    }

    fn start_on(place: &Path, broker: Broker) -> Self {
        let mut fleet = Self { place: place.to_owned(), broker, operator: None, credentials: None };
        fleet.operate();
        fleet
    }

    /// With an account for the operator and for each of these devices.
    fn start_with_accounts(place: &Path, devices: &[&str]) -> Self {
        let dir = place.join("credentials");
        for device in devices {
            let arguments = ["fleet", "credentials", device, "--dir", dir.to_str().unwrap()];
            let (code, _, why) = support::output(place, &arguments);
            assert_eq!(code, 0, "{why}");
        }
        // The path is relative to the broker's configuration.
        let broker = Broker::start_with(place, "include \"credentials/accounts.conf\"");
        let mut fleet = Self { place: place.to_owned(), broker, operator: None, credentials: Some(dir) };
        fleet.operate();
        fleet
    }

    /// The line of the configuration that names the credentials of a host.
    fn credentials(&self, name: &str) -> String {
        let line = |dir: &PathBuf| format!("credentials = \"{}\"\n", dir.join(format!("{name}.toml")).display());
        self.credentials.as_ref().map(line).unwrap_or_default()
    }

    /// The password of a device.
    fn password(&self, name: &str) -> String {
        let file = self.credentials.as_ref().unwrap().join(format!("{name}.toml"));
        let text = fs::read_to_string(file).unwrap();
        text.split("password = \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    /// Starts the operator, with the database of an earlier run.
    fn operate(&mut self) {
        let credentials = self.credentials("operator");
        let config = format!("[fleet]\nrole = \"operator\"\nurl = \"{}\"\n{credentials}", self.broker.url());
        self.operator = Some(Host::start(&self.folder("operator"), &config));
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.place.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Starts an agent in a folder with the name of its device, with the database of an earlier run.
    fn agent(&self, device: &str, labels: &str, more: &str) -> Host {
        self.agent_in(device, device, labels, more)
    }

    fn agent_in(&self, folder: &str, device: &str, labels: &str, more: &str) -> Host {
        self.agent_with(folder, device, labels, more, &[])
    }

    /// Like [`Fleet::agent_in`], with environment variables.
    fn agent_with(&self, folder: &str, device: &str, labels: &str, more: &str, environment: &[(&str, &str)]) -> Host {
        let (url, credentials) = (self.broker.url(), self.credentials(device));
        let config = format!(
            "[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]\n[fleet]\nrole = \"agent\"\nurl = \"{url}\"\ndevice = \
             \"{device}\"\nlabels = {{ {labels} }}\n{credentials}{more}"
        );
        Host::start_with(&self.folder(folder), &config, environment)
    }

    fn operator(&self) -> &Host {
        self.operator.as_ref().unwrap()
    }

    fn deploy(&self, name: &str, definition: &Value) {
        deploy(self.operator(), name, definition);
    }

    fn deployment(&self, name: &str) -> Value {
        self.operator().get(&format!("/api/v1/fleet/deployments/{name}"))
    }

    /// Waits until a deployment has these numbers of devices: succeeded, failed, pending, unreported.
    fn counts(&self, name: &str, expected: [u64; 4]) -> Value {
        let keys = ["succeeded", "failed", "pending", "unreported"];
        let counts = |view: &Value| keys.map(|key| view[key].as_u64().unwrap());
        until(&format!("{name} has {expected:?}"), || self.deployment(name), |view| counts(view) == expected)
    }
}

fn target(id: &str, url: &str) -> Value {
    json!({ "id": id, "kind": "proactive-deps", "url": url, "interval": "5s" })
}

/// Makes or changes a deployment through an operator.
fn deploy(operator: &Host, name: &str, definition: &Value) {
    let path = format!("/api/v1/fleet/deployments/{name}");
    let headers = format!("Authorization: Bearer {TOKEN}\r\n");
    let (status, body) = send(&operator.api, ("PUT", &path), &headers, definition.to_string());
    assert_eq!(status, 200, "{body}");
}

/// The devices of tests with three agents.
const NAMES: [&str; 3] = ["host-1", "host-2", "host-3"];

/// A server with a path for each of [`NAMES`]: healthy until the file of the device exists.
fn server_for_each(place: &Path) -> (Server, [PathBuf; 3]) {
    let broken = NAMES.map(|name| place.join(format!("broken-{name}")));
    let answer = |n: usize| switched(broken[n].clone());
    let server = Server::start(vec![("/host-1", answer(0)), ("/host-2", answer(1)), ("/host-3", answer(2))]);
    (server, broken)
}

/// A server that is healthy until the file exists.
fn switched(file: PathBuf) -> Answer {
    std::sync::Arc::new(move |_| ok(if file.exists() { CRITICAL } else { HEALTHY }))
}

fn post(host: &Host, path: &str) {
    let (status, body) = try_post(host, path);
    assert_eq!(status, 202, "{body}");
}

fn try_post(host: &Host, path: &str) -> (u16, String) {
    let headers = format!("Authorization: Bearer {TOKEN}\r\n");
    send(&host.api, ("POST", path), &headers, "")
}

#[test]
fn devices_poll_what_they_are_assigned_and_the_operator_counts_it() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/zurich", always(ok(HEALTHY))), ("/basel", switched(broken.clone()))]);
    let fleet = Fleet::start(&place);
    let url = server.url("/${device.label.site}");
    fleet.deploy("web", &json!({ "targets": [target("web", &url)] }));
    let zurich = fleet.agent("zurich-1", "site = \"zurich\"", "");
    let basel = fleet.agent("basel-1", "site = \"basel\"", "");
    let view = fleet.counts("web", [2, 0, 0, 0]);
    assert_eq!((&view["phase"], &view["matched"]), (&json!("succeeded"), &json!(2)));
    assert_eq!(basel.target("web")["source"], "assignment");

    fs::write(&broken, "").unwrap();
    post(&basel, "/api/v1/targets/web/poll");
    let view = fleet.counts("web", [1, 1, 0, 0]);
    assert_eq!((&view["phase"], &view["lastError"]["device"]), (&json!("failed"), &json!("basel-1")), "{view}");
    assert!(view["lastError"]["error"].as_str().unwrap().contains("db is critical"), "{view}");
    let event = until(
        "the operator has an event",
        || fleet.operator().get("/api/v1/event-log?event=fleet:deployment")["events"][0]["event"].clone(),
        |event| event["currentPhase"] == "failed",
    );
    assert!(event["deployment"] == "web" && event["error"].as_str().unwrap().starts_with("basel-1: "), "{event}");
    let (_, metrics) = support::get(&fleet.operator().metrics, "/metrics", None);
    for line in [
        "polliwog_fleet_broker_up 1.0",
        "polliwog_fleet_devices 2.0",
        "polliwog_fleet_assigning 1.0",
        "polliwog_fleet_deployment_devices{deployment=\"web\",state=\"failed\"} 1.0",
        "polliwog_fleet_deployment_failed{deployment=\"web\"} 1.0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    let device = fleet.operator().get("/api/v1/fleet/devices/basel-1");
    assert_eq!(device["reports"][0]["dependencies"]["critical"], 1, "{device}");
    let folder = fleet.folder("operator");
    let status = |command: &[&str]| fleet.operator().command(&folder, command);
    let says = |out: &str| out.lines().any(|line| line.starts_with("deployment web failed since 20"));
    let (code, out, why) =
        until("the status says since when", || status(&["fleet", "status"]), |(_, out, _)| says(out));
    assert!(code == 1 && out.contains(" on 1 of 2 devices: basel-1: web: "), "{out}{why}");
    let (_, out, why) = status(&["status"]);
    assert!(
        out.contains("2 devices, 0 of them not heard for 5 minutes; 1 deployment, 1 of them failed; "),
        "{out}{why}"
    );
    let (_, out, why) = status(&["fleet", "deployments"]);
    assert!(out.contains("failed  20") && out.contains("basel-1 at 20"), "{out}{why}");

    // The log of a device, read from the operator.
    let (code, out, why) = fleet.operator().command(&folder, &["fleet", "logs", "basel-1", "--last", "1000"]);
    assert!(code == 0 && out.contains("the assignment of deployment web is active"), "{out}{why}");
    let logs = |query: &str| fleet.operator().get(&format!("/api/v1/fleet/devices/basel-1/logs?{query}"));
    let all = logs("limit=10000");
    let count = all["lines"].as_array().unwrap().len();
    assert_eq!((&all["lines"][0]["number"], &all["next"], &all["dropped"]), (&json!(1), &json!(count), &json!(0)));
    let part = logs("after=1&limit=2");
    assert_eq!((&part["lines"][0], part["lines"].as_array().unwrap().len()), (&all["lines"][1], 2));
    // Its targets, as it answers itself.
    for (more, expected) in [(&[][..], "proactive-deps"), (&["web"], " db"), (&["web", "--history", "1h"], "available")]
    {
        let arguments = [&["fleet", "targets", "basel-1"], more].concat();
        let (code, out, why) = fleet.operator().command(&folder, &arguments);
        assert!(code == 0 && out.contains(expected), "{arguments:?}: {out}{why}");
    }
    let (_, page) = support::get(&fleet.operator().api, "/fleet/devices/basel-1/targets", Some(TOKEN));
    assert!(page.contains("assignment") && page.contains("✗ critical"), "{page}");
    let (none, body) = support::get(&fleet.operator().api, "/api/v1/fleet/devices/basel-1/targets/no", Some(TOKEN));
    assert!(none == 404 && body.contains("no target"), "{none} {body}");
    let (none, body) = support::get(&fleet.operator().api, "/api/v1/fleet/devices/unknown/logs", Some(TOKEN));
    assert_eq!(none, 404, "{body}");

    // A change of the selector withdraws the targets, and a deleted deployment all of them.
    let selector = json!({ "matchLabels": { "site": "zurich" } });
    fleet.deploy("web", &json!({ "selector": selector, "targets": [target("web", &url)] }));
    fleet.counts("web", [1, 0, 0, 0]);
    until("basel polls nothing", || basel.get("/api/v1/targets")["total"].clone(), |total| *total == 0);
    let (code, out, why) = fleet.operator().command(&folder, &["fleet", "delete", "web"]);
    assert!(code == 0 && out.contains("is deleted"), "{out}{why}");
    basel.kill();
    let (silent, body) = support::get(&fleet.operator().api, "/api/v1/fleet/devices/basel-1/logs", Some(TOKEN));
    assert!(silent == 504 && body.contains("device basel-1 does not answer"), "{silent} {body}");
    until("zurich polls nothing", || zurich.get("/api/v1/targets")["total"].clone(), |total| *total == 0);
}

#[test]
fn what_a_device_lacks_is_the_reason_of_its_failure() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/own", always(ok(HEALTHY))), ("/assigned", always(ok(CRITICAL)))]);
    let fleet = Fleet::start(&place);
    let own = server.url("/own");
    let agent =
        fleet.agent("host-1", "", &format!("[[target]]\nid = \"mine\"\nkind = \"proactive-deps\"\nurl = \"{own}\"\n"));
    let mut secret = target("keyed", &server.url("/own"));
    secret["secrets"] = json!({ "token": "vault" });
    let mut kind = target("odd", &server.url("/own"));
    kind["kind"] = json!("unheard-of");
    let cases = [
        ("secret", secret, "vault"),
        ("kind", kind, "no plugin serves kind unheard-of"),
        ("network", json!({ "id": "far", "kind": "http", "url": "http://10.0.0.1/" }), "10.0.0.1"),
        ("label", target("placed", "http://${device.label.rack}/"), "no label \"rack\""),
        ("setting", json!({ "id": "set", "kind": "http", "url": own, "settings": { "pth": 1 } }), "pth"),
    ];
    for (name, target, why) in cases {
        fleet.deploy(name, &json!({ "targets": [target] }));
        let view = fleet.counts(name, [0, 1, 0, 0]);
        assert!(view["lastError"]["error"].as_str().unwrap().contains(why), "{name}: {view}");
    }
    // The target of the device's own file takes precedence, and the device says so.
    fleet.deploy("mine", &json!({ "targets": [target("mine", &server.url("/assigned"))] }));
    fleet.counts("mine", [1, 0, 0, 0]);
    assert_eq!(agent.target("mine")["source"], "file");
    let (_, page) = support::get(&agent.api, "/fleet", Some(TOKEN));
    assert!(page.contains("its own definition takes precedence"), "{page}");
    // Of two deployments with a target of one id, one is polled, and the other one fails with the reason.
    for name in ["one", "two"] {
        fleet.deploy(name, &json!({ "targets": [target("twin", &server.url("/own"))] }));
    }
    fleet.counts("one", [1, 0, 0, 0]);
    let view = fleet.counts("two", [0, 1, 0, 0]);
    let why = view["lastError"]["error"].as_str().unwrap();
    assert!(why.contains("the deployment one has a target twin too"), "{view}");
}

#[test]
fn nothing_is_lost_when_the_broker_is_away_wiped_or_restored() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let mut fleet = Fleet::start(&place);
    let selector = json!({ "matchLabels": { "site": "a" } });
    fleet.deploy("web", &json!({ "selector": selector, "targets": [target("web", &server.url("/"))] }));
    let agent = fleet.agent("host-1", "site = \"a\"", "");
    // One that no deployment chooses: it has sent its description only.
    let other = fleet.agent("host-2", "", "");
    fleet.counts("web", [1, 0, 0, 0]);
    let devices = |fleet: &Fleet| fleet.operator().get("/api/v1/fleet")["operator"]["devices"].clone();
    until("both devices are known", || devices(&fleet), |devices| *devices == 2);

    // Away: the agent polls and stores, and reports afterwards.
    fleet.broker.down();
    fleet.broker.copy("jetstream", "old");
    fs::write(&broken, "").unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    until(
        "the agent stores its report",
        || agent.get("/api/v1/fleet"),
        |fleet| fleet["agent"]["reports"][0]["phase"] == "failed" && fleet["agent"]["broker"]["connected"] == false,
    );
    let (code, out, _) = agent.command(&fleet.folder("host-1"), &["fleet", "status"]);
    assert!(code == 2 && out.contains("1 record waits"), "{out}");
    assert_eq!(fleet.deployment("web")["succeeded"], 1, "the operator keeps its counters");
    // The operator says that it is the broker, and not the device, and keeps new definitions.
    let operator = |arguments: &[&str]| fleet.operator().command(&place, arguments);
    let (code, _, why) = operator(&["fleet", "logs", "host-1"]);
    assert!(code != 0 && why.contains("host-1 cannot be asked: "), "{why}");
    let file = place.join("later.toml");
    let written = "[[deployment]]\nname = \"later\"\nselector = { matchLabels = { site = \"none\" } }\n\
                   [[deployment.target]]\nid = \"later\"\nkind = \"htpp\"\nurl = \"http://127.0.0.1:1/\"\n";
    fs::write(&file, written).unwrap();
    for arguments in [["fleet", "apply", file.to_str().unwrap()], ["fleet", "delete", "later"]] {
        let (code, out, why) = operator(&arguments);
        assert!(code == 0 && out.contains("; devices learn it when the broker works again: "), "{out}{why}");
        let warns = why.contains("for the kind \"htpp\", which this host does not have: did you mean \"http\"?");
        assert_eq!(warns, arguments[1] == "apply", "{why}");
    }
    // The reason is searched for at first.
    let told = |(_, _, why): &(i32, String, String)| why.contains("start the broker there");
    let (code, out, why) = until("the reason is found", || operator(&["fleet", "device", "host-1"]), told);
    assert!(code == 0 && out.contains("web         succeeded"), "{out}{why}");
    let (_, out, why) = operator(&["fleet", "deployments"]);
    assert!(out.contains("web") && why.contains("what follows is of the last connection, because "), "{out}{why}");
    // Both say so without being asked.
    let alerts = |host: &Host| host.get("/api/v1/alerts?state=firing")["alerts"].clone();
    let of_host = |all: &Value| all.as_array().unwrap().iter().any(|alert| alert["name"] == "fleet");
    for (host, part, at) in
        [(fleet.operator(), "operates ", &place), (&agent, "is device host-1", &fleet.folder("host-1"))]
    {
        until("the host has an alert", || alerts(host), of_host);
        let (_, out, why) = host.command(at, &["status"]);
        assert!(out.contains(&format!("\nfleet       {part}")) && out.contains(" (since 20"), "{out}{why}");
    }
    fleet.broker.up();
    fleet.counts("web", [0, 1, 0, 0]);
    for host in [fleet.operator(), &agent] {
        until("the host has no alert", || alerts(host), |all| !of_host(all));
    }

    // Restored from a copy of the same stream that is older than what was acknowledged: that record is missing.
    fleet.broker.down();
    fleet.broker.copy("old", "jetstream");
    fleet.broker.up();
    fleet.operator.take().unwrap().kill();
    fleet.operate();
    fleet.counts("web", [0, 1, 0, 0]);

    // Wiped while everything is idle, with an operator that starts without memory afterwards. An agent without reports
    // has no record that could be missing, and notices that the stream is another one.
    fleet.broker.down();
    fleet.broker.wipe();
    fleet.broker.up();
    fleet.operator.take().unwrap().kill();
    fleet.operate();
    fleet.counts("web", [0, 1, 0, 0]);
    until("both devices are known again", || devices(&fleet), |devices| *devices == 2);
    // It says why it sent again. Without that, the operator would ask for it after three heartbeats. The operator may
    // know both devices from its own database, and cannot ask for a log before it is connected.
    let api = &fleet.operator().api;
    let logs = || get(api, "/api/v1/fleet/devices/host-2/logs?limit=100", Some(TOKEN)).1;
    let logs = until("it says why it sends again", logs, |logs| logs.contains("lost its records"));
    assert!(!logs.contains("asked for all records"), "{logs}");
    for agent in [&agent, &other] {
        let sent = |fleet: &Value| fleet["agent"]["queued"] == 0 && fleet["agent"]["broker"]["problem"].is_null();
        until("everything is sent again", || agent.get("/api/v1/fleet"), sent);
    }
}

#[test]
fn an_agent_that_is_killed_or_loses_its_database_is_counted_once() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let fleet = Fleet::start(&place);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    fleet.agent("host-1", "", "").kill();
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);
    agent.kill();
    // Killed, and the state changed before it starts again.
    fs::write(&broken, "").unwrap();
    let agent = fleet.agent("host-1", "", "");
    post(&agent, "/api/v1/targets/web/poll");
    fleet.counts("web", [0, 1, 0, 0]);
    agent.kill();
    // A new database: what the earlier one said is void, and the assignment is received again.
    fs::remove_dir_all(fleet.folder("host-1")).unwrap();
    fs::remove_file(&broken).unwrap();
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);
    assert_eq!(fleet.operator().get("/api/v1/fleet")["operator"]["devices"], 1);
    assert_eq!(agent.terminate(), 0);
}

#[test]
fn two_hosts_with_one_device_id_both_show_it() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/", always(ok(HEALTHY)))]);
    let fleet = Fleet::start(&place);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let hosts = [fleet.agent_in("one", "host-1", "", ""), fleet.agent_in("two", "host-1", "", "")];
    let problem = |host: &Host| host.get("/api/v1/fleet")["agent"]["broker"]["problem"].clone();
    let shown =
        |problem: &Value| problem.as_str().is_some_and(|text| text.contains("records of another host as device"));
    until("both show it", || hosts.iter().map(problem).collect::<Vec<_>>(), |all| all.iter().all(shown));
    let doubled = || fleet.operator().get("/api/v1/fleet")["operator"]["doubled"].clone();
    until("the operator shows it", doubled, |doubled| *doubled == json!(["host-1"]));
    let (code, out, _) = fleet.operator().command(&fleet.folder("operator"), &["fleet", "status"]);
    assert!(code == 1 && out.contains("several hosts report as device host-1"), "{out}");
}

#[test]
fn the_demo_has_a_fleet_or_says_what_it_lacks() {
    let (_keep, place) = folder();
    let programs = place.join("programs");
    fs::create_dir_all(&programs).unwrap();
    let arguments = ["--demo", "--demo-port", "17492", "--fleet"];
    let path = format!("{}:/usr/bin:/bin:/usr/sbin", programs.display());
    let lacking = Host::launch_with(&place, "", &[("PATH", "/nowhere")], &arguments);
    let why = lacking.err().unwrap();
    assert!(why.contains("the demo of a fleet needs a broker") && why.contains("install nats-server"), "{why}");

    // The demo uses the program in PATH; the tests may be given another one.
    if Path::new(&broker::program()).is_absolute() {
        std::os::unix::fs::symlink(broker::program(), programs.join("nats-server")).unwrap();
    }
    let host = Host::launch_with(&place, "", &[("PATH", &path)], &arguments).unwrap();
    let counted = || host.get("/api/v1/fleet/deployments");
    let well = |all: &Value, name: &str, succeeded: u64| {
        let found = all["deployments"].as_array().unwrap().iter().find(|view| view["name"] == name);
        found.is_some_and(|view| view["succeeded"] == succeeded && view["phase"] == "succeeded")
    };
    until("all poll", counted, |all| well(all, "uplink", 5) && well(all, "printers", 2) && well(all, "shop", 1));
    assert_eq!(host.terminate(), 0);
    // If the file has a fleet too, the demo does not guess.
    let own = "[fleet]\nrole = \"operator\"\nurl = \"nats://127.0.0.1:1\"\n";
    let why = Host::launch_with(&place, own, &[("PATH", &path)], &arguments).err().unwrap();
    assert!(why.contains("the demo has a fleet already"), "{why}");
}
