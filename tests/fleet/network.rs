//! Networks that are slow or cut.

use crate::broker::Broker;
use crate::proxy::Proxy;
use crate::support::{self, Host, Server, TOKEN, folder, until};
use crate::{Fleet, NAMES, post, server_for_each, switched, target};
use serde_json::{Value, json};
use std::fs;

fn agent_over(fleet: &Fleet, proxy: &Proxy, device: &str) -> Host {
    let config = format!(
        "[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]\n[fleet]\nrole = \"agent\"\nurl = \"{}\"\ndevice = \"{device}\"\n",
        proxy.url()
    );
    Host::start(&fleet.folder(device), &config)
}

#[test]
fn a_write_that_is_overtaken_by_a_newer_one_is_refused() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let mut fleet = Fleet::start(&place);
    let proxy = Proxy::start(fleet.broker.port());
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agent = agent_over(&fleet, &proxy, "host-1");
    fleet.counts("web", [1, 0, 0, 0]);

    // The report of a failure (the write, not a read before it) is on its way for long; meanwhile its process is
    // killed, and another one repairs it.
    let report = "HPUB $KV.device-state.state.host-1.web";
    proxy.hold_from(report);
    fs::write(&broken, "").unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    until("the report is on its way", || proxy.held(), |held| held.contains(report));
    agent.kill();
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [0, 1, 0, 0]);
    fs::remove_file(&broken).unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    fleet.counts("web", [1, 0, 0, 0]);

    proxy.release();
    let answers = until("the broker answers", || proxy.answers(), |answers| answers.contains("\"stream\""));
    assert!(answers.contains("wrong last sequence"), "{answers}");
    // An operator without memory reads what stands at the broker.
    fleet.operator.take().unwrap().kill();
    fleet.operate();
    let complete = || fleet.operator().get("/api/v1/fleet")["operator"]["complete"].clone();
    until("everything is read", complete, |complete| *complete == true);
    assert_eq!(fleet.deployment("web")["succeeded"], 1);
}

#[test]
fn a_quorum_tells_the_service_from_the_line_of_one_device() {
    let (_keep, place) = folder();
    let (server, broken) = server_for_each(&place);
    let fleet = Fleet::start(&place);
    let proxies = NAMES.map(|_| Proxy::start(fleet.broker.port()));
    let target = target("web", &server.url("/${device.id}"));
    fleet.deploy("web", &json!({ "quorum": 2, "targets": [target] }));
    let agents: Vec<Host> = NAMES.iter().zip(&proxies).map(|(name, proxy)| agent_over(&fleet, proxy, name)).collect();
    assert_eq!(fleet.counts("web", [3, 0, 0, 0])["phase"], "succeeded");

    // The line of one device is cut: it sees the service as broken. That is not a failure of the service.
    fs::write(&broken[0], "").unwrap();
    post(&agents[0], "/api/v1/targets/web/poll");
    assert_eq!(fleet.counts("web", [2, 1, 0, 0])["phase"], "succeeded");

    // A partition: the second device sees the failure too, but cannot say so.
    proxies[1].cut(true);
    let away = |host: &Host| host.get("/api/v1/fleet")["agent"].clone();
    until("it is cut off", || away(&agents[1]), |agent| agent["broker"]["connected"] == false);
    fs::write(&broken[1], "").unwrap();
    post(&agents[1], "/api/v1/targets/web/poll");
    let known = until("it knows", || away(&agents[1]), |agent| agent["reports"][0]["phase"] == "failed");
    assert!(known["broker"]["problem"].as_str().is_some_and(|why| !why.is_empty()), "{known}");
    let (_, page) = support::get(&agents[1].api, "/fleet", Some(TOKEN));
    assert!(page.contains("Polls continue, and reports are sent when that is over."), "{page}");
    assert_eq!(fleet.deployment("web")["phase"], "succeeded");
    assert_eq!(alerts(&fleet), json!([]), "one of three sites confirms nothing");
    proxies[1].cut(false);
    let view = fleet.counts("web", [1, 2, 0, 0]);
    assert_eq!(view["phase"], "failed", "{view}");
    // Two sites confirm the alert, and it is over when one of them recovers.
    let fired = until("it is an alert", || alerts(&fleet), |all| *all != json!([]));
    assert_eq!((&fired[0]["class"], &fired[0]["name"]), (&"deployment".into(), &"web".into()), "{fired}");
    fs::remove_file(&broken[1]).unwrap();
    post(&agents[1], "/api/v1/targets/web/poll");
    until("it is over", || alerts(&fleet), |all| *all == json!([]));
}

/// The alerts that fire on the operator.
fn alerts(fleet: &Fleet) -> Value {
    fleet.operator().get("/api/v1/alerts?state=firing")["alerts"].clone()
}

#[test]
fn a_broker_that_cannot_keep_records_is_named_on_every_host() {
    let cases = [
        ("accounts { a { users: [ { user: a, password: a } ] } }\nno_auth_user: a", "JetStream"),
        ("jetstream { max_file_store: 100MB }", "storage"),
    ];
    for (more, expected) in cases {
        let (_keep, place) = folder();
        let fleet = Fleet::start_on(&place, Broker::start_with(&place, more));
        let agent = fleet.agent("host-1", "", "");
        let of_operator = || fleet.operator().get("/api/v1/fleet")["operator"]["broker"]["problem"].clone();
        let why =
            until("the operator says it", of_operator, |why| why.as_str().is_some_and(|why| why.contains(expected)));
        let of_agent = || agent.get("/api/v1/fleet")["agent"]["broker"]["problem"].clone();
        let said =
            until("the agent says it", of_agent, |said| said.as_str().is_some_and(|said| said.contains("no operator")));
        assert!(why.as_str().unwrap().contains("max_file_store") == (expected == "storage"), "{why}, {said}");
    }
}
