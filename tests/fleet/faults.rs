//! A broker whose disk is full, and a device whose clock is off by a day.

use super::*;

const DAY_MS: i64 = 24 * 3600 * 1000;

#[test]
fn a_broker_whose_disk_fills_up_is_named_and_nothing_is_lost() {
    let (_keep, place) = folder();
    let broken = place.join("broken");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let mut fleet = Fleet::start_on(&place, Broker::start_on_small_disk(&place));
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);

    fleet.broker.fill();
    // The first records still fit into the last pages of the broker's files.
    let problem = || {
        match broken.exists() {
            true => fs::remove_file(&broken).unwrap(),
            false => fs::write(&broken, "").unwrap(),
        }
        // A host whose database is slower than these polls refuses some.
        let _ = try_post(&agent, "/api/v1/targets/web/poll");
        agent.get("/api/v1/fleet")["agent"]["broker"]["problem"].clone()
    };
    let why = until("the agent says it", problem, Value::is_string);
    fs::write(&broken, "").unwrap();
    until("a poll is started", || try_post(&agent, "/api/v1/targets/web/poll").0, |status| *status == 202);
    assert!(why.as_str().unwrap().contains("its disk may be full"), "{why}");
    let queued = || agent.get("/api/v1/fleet")["agent"]["queued"].clone();
    until("the report waits", queued, |queued| *queued == 1);
    fleet.broker.empty();
    fleet.broker.down();
    fleet.broker.up();
    fleet.counts("web", [0, 1, 0, 0]);
    until("nothing waits", queued, |queued| *queued == 0);
}

#[test]
fn a_device_whose_clock_is_off_by_a_day_is_counted_and_shown() {
    let (_keep, place) = folder();
    let (broken, moved) = (place.join("broken"), place.join("moved"));
    let library = support::preloaded(&place, "clock.c");
    let server = Server::start(vec![("/", switched(broken.clone()))]);
    let fleet = Fleet::start(&place);
    for (device, days) in [("early", 1), ("late", -1)] {
        let selector = json!({ "matchLabels": { "clock": device } });
        fleet.deploy(device, &json!({ "selector": selector, "targets": [target(device, &server.url("/"))] }));
        fs::write(&moved, (days * DAY_MS / 1000).to_string()).unwrap();
        let environment = [("LD_PRELOAD", &*library), ("CLOCK_MOVED", moved.to_str().unwrap())];
        let agent = fleet.agent_with(device, device, &format!("clock = \"{device}\""), "", &environment);
        fleet.counts(device, [1, 0, 0, 0]);
        let shown = || fleet.operator().get(&format!("/api/v1/fleet/devices/{device}"));
        let view = until("its clock is shown", shown, |view| view["clockAheadMs"].is_i64());
        let ahead = view["clockAheadMs"].as_i64().unwrap();
        assert!((ahead - days * DAY_MS).abs() < 60_000, "{view}");
        assert_eq!(view["stale"], false, "{view}");
        // A later change counts, whatever the clock of the device says about its time.
        fs::write(&broken, "").unwrap();
        post(&agent, &format!("/api/v1/targets/{device}/poll"));
        fleet.counts(device, [0, 1, 0, 0]);
        fs::remove_file(&broken).unwrap();
        post(&agent, &format!("/api/v1/targets/{device}/poll"));
        fleet.counts(device, [1, 0, 0, 0]);
        assert_eq!(agent.terminate(), 0);
    }
}
