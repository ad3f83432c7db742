//! The memory of an operator: the counters that it shows without the broker, and what it reads afterwards.

use crate::broker::copy;
use crate::support::{Host, Server, TOKEN, folder, send, until};
use crate::{Fleet, post, switched, target};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The number of records that the operator keeps, and of the streams in which it has a place.
fn kept(place: &Path) -> (u32, u32) {
    let count = |table: &str| of_operator(place, &format!("SELECT count(*) FROM {table}"));
    (count("fleet_kept"), count("fleet_place"))
}

/// The sequence up to which the operator has read the states, as it keeps it.
fn read_until(place: &Path) -> u32 {
    of_operator(place, "SELECT coalesce(max(sequence), 0) FROM fleet_place WHERE stream LIKE '%state%'")
}

/// Reads a number from the operator's database.
fn of_operator(place: &Path, sql: &str) -> u32 {
    let database = place.join("operator/data/polliwog.db");
    let opened = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    opened.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A fleet with a deployment `web` on one device. Its target is critical while the file exists.
fn one_agent(place: &Path) -> (Server, PathBuf, Fleet, Host) {
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let fleet = Fleet::start(place);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);
    (server, broken, fleet, agent)
}

/// The operator did not need the heartbeats to notice which records it lacks.
fn assert_nothing_was_asked_for(fleet: &Fleet) {
    let logs = fleet.operator().get("/api/v1/fleet/devices/host-1/logs?limit=100").to_string();
    assert!(!logs.contains("asked for all records"), "{logs}");
}

#[test]
fn an_operator_remembers_the_fleet_and_reads_on_after_a_restart() {
    let (_keep, place) = folder();
    let (_server, broken, mut fleet, agent) = one_agent(&place);
    until("description and state are kept", || kept(&place), |found| *found == (2, 2));

    // Without the broker, it shows what it remembers.
    fleet.operator.take().unwrap().kill();
    fleet.broker.down();
    fleet.operate();
    assert_eq!(fleet.deployment("web")["succeeded"], 1);
    let view = fleet.operator().get("/api/v1/fleet")["operator"].clone();
    assert_eq!((&view["devices"], &view["complete"]), (&json!(1), &json!(false)), "{view}");

    // A change that it has not seen follows.
    fs::write(&broken, "").unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    fleet.broker.up();
    fleet.counts("web", [0, 1, 0, 0]);

    // After a start it knows why and since when a deployment fails, although nothing is reported again.
    assert_eq!(fleet.operator.take().unwrap().terminate(), 0);
    fleet.operate();
    let view = until("it knows since when", || fleet.deployment("web"), |view| view["since"].is_string());
    assert_eq!((&view["phase"], &view["failing"][0]["device"]), (&json!("failed"), &json!("host-1")), "{view}");
    assert!(view["failing"][0]["error"].as_str().unwrap().contains("db is critical"), "{view}");
    assert_eq!(view["since"], view["failing"][0]["at"], "{view}");

    // A broker that was made again while the operator was off lacks the operator's mark: it reads everything.
    fleet.operator.take().unwrap().kill();
    fleet.broker.down();
    fleet.broker.wipe();
    fs::remove_file(&broken).unwrap();
    fleet.broker.up();
    fleet.operate();
    post(&agent, "/api/v1/targets/web/poll");
    fleet.counts("web", [1, 0, 0, 0]);
}

#[test]
fn an_operator_that_is_restored_from_an_old_copy_knows_what_happened_since() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let mut fleet = Fleet::start(&place);
    let of = |id: &str| json!({ "targets": [target(id, &server.url("/"))] });
    fleet.deploy("web", &of("web"));
    fleet.deploy("former", &of("former"));
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);
    fleet.counts("former", [1, 0, 0, 0]);
    let copy = |from: &str, to: &str| copy(&place.join("operator"), from, to);
    until("one description and two states are kept", || kept(&place), |found| *found == (3, 2));
    assert_eq!(fleet.operator.take().unwrap().terminate(), 0);
    copy("data", "old");

    // One deployment ends, another begins, and the two that remain fail.
    fleet.operate();
    let headers = format!("Authorization: Bearer {TOKEN}\r\n");
    let path = "/api/v1/fleet/deployments/former";
    assert_eq!(send(&fleet.operator().api, ("DELETE", path), &headers, "").0, 200);
    fleet.deploy("later", &of("later"));
    fs::write(&broken, "").unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    fleet.counts("web", [0, 1, 0, 0]);
    fleet.counts("later", [0, 1, 0, 0]);

    fleet.operator.take().unwrap().kill();
    copy("old", "data");
    fleet.operate();
    let all = || {
        let all = fleet.operator().get("/api/v1/fleet/deployments")["deployments"].as_array().unwrap().clone();
        all.iter().map(|one| format!("{} {}", one["name"], one["failed"])).collect::<Vec<_>>()
    };
    until("it knows what happened since", all, |all| *all == ["\"later\" 1", "\"web\" 1"]);
    assert_nothing_was_asked_for(&fleet);
    let ids = || agent.get("/api/v1/targets")["targets"].as_array().unwrap().clone();
    let ids = until("the device keeps its assignment", ids, |all| all.len() == 2);
    assert_eq!([&ids[0]["id"], &ids[1]["id"]], ["later", "web"]);
}

#[test]
fn an_operator_notices_that_the_broker_was_restored_behind_it() {
    let (_keep, place) = folder();
    let (_server, broken, mut fleet, agent) = one_agent(&place);
    // The copy has an earlier mark of the operator, so that the marks must be compared.
    let before = until("it has a mark", || read_until(&place), |sequence| *sequence > 0);
    fleet.broker.down();
    fleet.broker.copy("jetstream", "old");
    fleet.broker.up();

    // The operator reads more, and keeps how far it has read.
    for _ in 0..4 {
        fs::write(&broken, "").unwrap();
        post(&agent, "/api/v1/targets/web/poll");
        fleet.counts("web", [0, 1, 0, 0]);
        fs::remove_file(&broken).unwrap();
        post(&agent, "/api/v1/targets/web/poll");
        fleet.counts("web", [1, 0, 0, 0]);
    }
    until("it keeps how far it has read", || read_until(&place), |sequence| *sequence >= before + 8);

    // The copy is the same stream. What the agent writes now has sequences that the operator has read already.
    fleet.operator.take().unwrap().kill();
    fleet.broker.down();
    fleet.broker.copy("old", "jetstream");
    fs::write(&broken, "").unwrap();
    post(&agent, "/api/v1/targets/web/poll");
    fleet.broker.up();
    let sent = |fleet: &Value| fleet["agent"]["queued"] == 0 && fleet["agent"]["reports"][0]["phase"] == "failed";
    until("the agent has sent everything", || agent.get("/api/v1/fleet"), sent);
    fleet.operate();
    fleet.counts("web", [0, 1, 0, 0]);
    assert_nothing_was_asked_for(&fleet);
}
