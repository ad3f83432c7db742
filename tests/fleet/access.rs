//! Rights at the broker: accounts, seals, refused credentials, and the broker's certificate.

use crate::attack::Client;
use crate::broker::Broker;
use crate::support::{Host, Server, always, folder, ok, until};
use crate::{Fleet, HEALTHY, target};
use ::fleet::wire::{Assigned, Assignment, DeploymentState, HeartbeatPayload, encode};
use model::Phase;
use serde_json::{Value, json};
use std::fs;

#[test]
fn an_agent_cannot_reach_the_records_of_another_one() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/", always(ok(HEALTHY)))]);
    let mut fleet = Fleet::start_with_accounts(&place, &["good", "bad"]);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agents = [fleet.agent("good", "", ""), fleet.agent("bad", "", "")];
    fleet.counts("web", [2, 0, 0, 0]);
    for agent in agents {
        agent.kill();
    }
    let mut bad = Client::connect(fleet.broker.port(), "agent-bad", &fleet.password("bad"));
    let own = "$KV.device-state.state.bad.web";
    let other = "$KV.device-state.state.good.web";
    let read = format!("$JS.API.DIRECT.GET.KV_device-state.{own}");
    // Written directly; by the reply of an acknowledgement and of a read, which the broker sends with its own rights;
    // and by a header with which one record replaces all of them.
    let attacks = [
        (other, "_INBOX.x", "", "forged"),
        (own, other, "", "forged"),
        (&read, other, "", ""),
        (own, "_INBOX.x", "Nats-Rollup: all", "forged"),
        ("$JS.API.STREAM.PURGE.KV_device-state", "_INBOX.x", "", "{}"),
        ("$JS.API.STREAM.DELETE.KV_device-state", "_INBOX.x", "", ""),
        ("$JS.API.DIRECT.GET.KV_assignments.$KV.assignments.good", other, "", ""),
        ("heartbeat.good", "_INBOX.x", "", "forged"),
        ("agent.good.resync", "_INBOX.x", "", ""),
    ];
    for (subject, reply, header, body) in attacks {
        bad.publish(subject, reply, header, body);
    }
    // An operator without memory reads what the broker holds: the record of the other device is as it was.
    fleet.operator.take().unwrap().kill();
    fleet.operate();
    let device = |id: &str| fleet.operator().get(&format!("/api/v1/fleet/devices/{id}"));
    until(
        "the operator has read everything",
        || fleet.operator().get("/api/v1/fleet"),
        |fleet| fleet["operator"]["complete"] == true,
    );
    assert_eq!(device("good")["reports"][0]["phase"], "succeeded");
    let refused = fleet.operator().get("/api/v1/fleet")["operator"]["refused"].clone();
    assert!(refused.as_u64().unwrap() <= 1, "only its own record can be damaged: {refused}");
    // Its agent repairs the record that the attacker damaged, because it no longer stands at its revision.
    let _bad = fleet.agent("bad", "", "");
    fleet.counts("web", [2, 0, 0, 0]);
}

#[test]
fn a_host_that_the_broker_refuses_says_why() {
    let (_keep, place) = folder();
    let fleet = Fleet::start_with_accounts(&place, &["host-1"]);
    let url = fleet.broker.url();
    let agent = |name: &str, credentials: &str| {
        let config = format!("[fleet]\nrole = \"agent\"\nurl = \"{url}\"\ndevice = \"host-1\"\n{credentials}");
        Host::start(&fleet.folder(name), &config)
    };
    let old = place.join("old.toml");
    fs::write(&old, "user = \"agent-host-1\"\npassword = \"earlier\"\n").unwrap();
    let cases = [
        (agent("none", ""), "refuses hosts without credentials"),
        (agent("old", &format!("credentials = {old:?}\n")), "its password is an older one"),
    ];
    for (host, expected) in &cases {
        let why = || host.get("/api/v1/fleet")["agent"]["broker"]["problem"].clone();
        until(expected, why, |why| why.as_str().is_some_and(|why| why.contains(expected)));
    }
}

#[test]
fn who_may_write_everything_at_the_broker_cannot_speak_for_a_device() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/", always(ok(HEALTHY)))]);
    let fleet = Fleet::start_with_accounts(&place, &["host-1"]);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);

    // The account of the operator without its key, as the broker's administrator has it.
    let mut forger = Client::connect(fleet.broker.port(), "operator", &fleet.password("operator"));
    let stamp = (u32::MAX, 1);
    let (counts, error) = ([0, 0, 1, 0], Some("forged".to_owned()));
    let failed = DeploymentState { stamp, phase: Phase::Failed.into(), counts, at: 0, error, term: 0 };
    let targets = vec![target("forged", &server.url("/")).to_string()];
    let assigned = Assigned { name: "forged".to_owned(), version: 1, targets, is_once: false };
    let assignment = Assignment { term: 1 << 40, deployments: vec![assigned], plugins: Vec::new() };
    let beat = HeartbeatPayload { epoch: 1, at: 0, dirty: 0, digest: 0 };
    let forged = [
        ("$KV.device-state.state.host-1.web", encode(&failed).unwrap()),
        ("$KV.assignments.host-1", encode(&assignment).unwrap()),
        ("heartbeat.host-1", encode(&beat).unwrap()),
    ];
    for (subject, record) in &forged {
        assert_eq!(forger.publish(subject, "_INBOX.x", "", record), "");
    }
    forger.publish("agent.host-1.assigned", "_INBOX.x", "", "");

    let of_operator = || fleet.operator().get("/api/v1/fleet")["operator"].clone();
    let seen = until("the operator refuses them", of_operator, |view| view["refused"] == forged.len());
    assert!(seen["refusedReason"].as_str().unwrap().contains("is not sealed"), "{seen}");
    // The records of the device and of the operator replace the forged ones.
    fleet.deploy("more", &json!({ "targets": [target("more", &server.url("/"))] }));
    fleet.counts("more", [1, 0, 0, 0]);
    fleet.counts("web", [1, 0, 0, 0]);
    let ids = || {
        let all = agent.get("/api/v1/targets")["targets"].as_array().unwrap().clone();
        all.iter().map(|target| target["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(), ["more", "web"]);
    let device = fleet.operator().get("/api/v1/fleet/devices/host-1");
    assert!(device["clockAheadMs"].is_null(), "{device}");
}

#[test]
fn the_certificate_of_the_broker_is_verified_by_the_rules_for_targets() {
    let (_keep, place) = folder();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (place.join("broker.pem"), place.join("broker.key"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", certificate.display(), key.display());
    let broker = Broker::start_with(&place, &tls);
    let operator = |name: &str, tls: &str| {
        let config =
            format!("[fleet]\nrole = \"operator\"\ndevice = \"{name}\"\nurl = \"{}\"\n{tls}", broker.tls_url());
        let folder = place.join(name);
        fs::create_dir_all(&folder).unwrap();
        Host::start(&folder, &config)
    };
    let link = |host: &Host| host.get("/api/v1/fleet")["operator"]["broker"].clone();
    let unknown = operator("unknown", "");
    let refused = |link: &Value| link["problem"].as_str().is_some_and(|why| why.contains("certificate"));
    let shown = until("the certificate is refused", || link(&unknown), refused);
    assert!(shown["problem"].as_str().unwrap().contains("localhost: the certificate with the fingerprint "), "{shown}");
    assert_eq!(shown["connected"], false, "{shown}");
    let other = operator("other", &format!("tls = {{ fingerprint = \"{}\" }}\n", "ab".repeat(32)));
    until("the other certificate is refused", || link(&other), refused);
    let known = operator("known", &format!("tls = {{ ca_file = \"{}\" }}\n", certificate.display()));
    until("it is connected", || link(&known), |link| link["connected"] == true && link["problem"].is_null());
}
