//! Where one of several hosts acts: deployments that one device polls at a time, and operators.

use crate::attack::Client;
use crate::receiver::{self, Receiver};
use crate::support::{self, Host, Server, TOKEN, always, folder, ok, send, until};
use crate::{CRITICAL, Fleet, HEALTHY, NAMES, deploy, server_for_each, target};
use fleet::wire::{OpenAlerts, decode};
use serde_json::{Value, json};
use std::fs;

fn holder(view: &Value) -> Option<usize> {
    NAMES.iter().position(|name| view["holder"]["device"] == *name)
}

#[test]
fn one_of_several_devices_polls_and_another_takes_over_while_it_is_stopped() {
    let (_keep, place) = folder();
    let (server, broken) = server_for_each(&place);
    let fleet = Fleet::start_with_accounts(&place, &NAMES);
    let hosts = NAMES.map(|name| fleet.agent(name, "", ""));
    let target = target("web", &server.url("/${device.id}"));
    fleet.deploy("web", &json!({ "once": true, "targets": [target] }));
    let first = holder(&fleet.counts("web", [1, 0, 0, 2])).unwrap();
    // Through the accounts at the broker too.
    let log = fleet.operator().get("/api/v1/fleet/devices/host-2/logs");
    assert!(log["lines"].as_array().is_some_and(|lines| !lines.is_empty()), "{log}");
    let polls = |n: usize| server.count(["/host-1", "/host-2", "/host-3"][n]);
    assert!((0..3).all(|n| (polls(n) > 0) == (n == first)), "only the holder polls");

    // It is stopped. When it continues, it finds the service broken, which must not count.
    hosts[first].signal("STOP");
    let stopped = std::time::Instant::now();
    let next = |view: &Value| holder(view).is_some_and(|now| now != first) && view["succeeded"] == 1;
    let view = until("another device polls", || fleet.deployment("web"), next);
    eprintln!("another device polls {:.1} s after the stop", stopped.elapsed().as_secs_f64());
    let second = holder(&view).unwrap();
    assert!(view["holder"]["term"].as_u64() > Some(1), "{view}");
    fs::write(&broken[first], "").unwrap();
    let before = polls(first);
    hosts[first].signal("CONT");
    let idle = |found: &(Value, Value)| found.0 == 0 && found.1["agent"]["queued"] == 0;
    until(
        "it stops polling",
        || (hosts[first].get("/api/v1/targets")["total"].clone(), hosts[first].get("/api/v1/fleet")),
        idle,
    );
    eprintln!("it polled {} times more", polls(first) - before);
    let listed = fleet.operator().get("/api/v1/fleet/devices").to_string();
    assert_eq!(listed.matches("\"standby\"").count(), 2, "{listed}");
    let view = fleet.counts("web", [1, 0, 0, 2]);
    assert_eq!((holder(&view), &view["lastError"]), (Some(second), &Value::Null), "{view}");
    let recent = view["recent"].as_array().unwrap();
    let by: Vec<&Value> = recent.iter().map(|change| &change["device"]).collect();
    let turn = by.iter().position(|device| **device == NAMES[first]).unwrap();
    assert!(by[turn..].iter().all(|device| **device == NAMES[first]), "no stale report after a newer one: {view}");

    // Killed and started again, a host has its lease at once, in a new term.
    let term = view["holder"]["term"].as_u64().unwrap();
    let mut hosts: Vec<Option<Host>> = hosts.into_iter().map(Some).collect();
    hosts[second].take().unwrap().kill();
    hosts[second] = Some(fleet.agent(NAMES[second], "", ""));
    let again =
        |view: &Value| holder(view) == Some(second) && view["succeeded"] == 1 && view["holder"]["term"] == term + 1;
    until("it polls in a new term", || fleet.deployment("web"), again);
    // Ended properly, it gives the lease up.
    assert_eq!(hosts[second].take().unwrap().terminate(), 0);
    let third = |view: &Value| holder(view).is_some_and(|now| now != second) && view["holder"]["term"] == term + 2;
    until("another device polls", || fleet.deployment("web"), third);
}

/// The event, the fingerprint and the device of each alert that a receiver was notified of.
fn told(receiver: &Receiver) -> Vec<[String; 3]> {
    let alerts = |request: receiver::Received| {
        let (body, device) = (request.json(), request.path.trim_start_matches('/').to_owned());
        let alerts = body["alerts"].as_array().cloned().unwrap_or_default();
        let word = |alert: &Value, key: &str| alert[key].as_str().unwrap_or_default().to_owned();
        alerts
            .iter()
            .map(|alert| [word(alert, "event"), word(alert, "fingerprint"), device.clone()])
            .collect::<Vec<_>>()
    };
    receiver.all().into_iter().flat_map(alerts).collect()
}

#[test]
fn an_alert_goes_on_while_its_target_goes_from_device_to_device() {
    let (_keep, place) = folder();
    let (server, broken) = server_for_each(&place);
    broken.iter().for_each(|file| fs::write(file, "").unwrap());
    let receiver = Receiver::patient();
    let fleet = Fleet::start_with_accounts(&place, &NAMES);
    let start = |n: usize| {
        let more = format!(
            "[scheduler]\nmin_interval = \"200ms\"\n[alerts]\nstartup_grace = \"0s\"\n[[channel]]\nname = \"ops\"\nkind = \
             \"webhook\"\nurl = \"{}\"\n[[route]]\nchannels = [\"ops\"]\ngroup_wait = \"0s\"\n",
            receiver.url(&format!("/{}", NAMES[n]))
        );
        fleet.agent(NAMES[n], "", &more)
    };
    let mut hosts: Vec<Option<Host>> = (0..3).map(|n| Some(start(n))).collect();
    let target = json!({ "id": "web", "kind": "proactive-deps", "url": server.url("/${device.id}"), "interval": "1s" });
    fleet.deploy("web", &json!({ "once": true, "targets": [target] }));
    let told_of = || told(&receiver);
    let first_told = until("a receiver is notified", told_of, |told| !told.is_empty()).remove(0);
    let first = NAMES.iter().position(|name| *name == first_told[2]).unwrap();
    assert_eq!(first_told[0], "firing");
    let alert = |host: &Host| host.get("/api/v1/alerts")["alerts"][0].clone();
    let fires = |alert: &Value| alert["state"] == "firing" && alert["dependency"] == "db";

    // If it were stopped earlier, the next device would not know of the message, and would send one too.
    let mut client = Client::connect(fleet.broker.port(), "agent-host-1", &fleet.password("host-1"));
    let mut left = || decode::<OpenAlerts>(&client.ask("$JS.API.DIRECT.GET.KV_open-alerts.$KV.open-alerts.web")).ok();
    let is_told =
        |left: &OpenAlerts| left.alerts.iter().any(|alert| alert.notified.iter().any(|to| to.status == "critical"));
    until("its record says that it notified", &mut left, |left| left.as_ref().is_some_and(is_told));

    // It is stopped: another device has the alert. When it continues, it says nothing.
    let host = |hosts: &[Option<Host>], n: usize| alert(hosts[n].as_ref().unwrap());
    let since = host(&hosts, first)["since"].clone();
    hosts[first].as_ref().unwrap().signal("STOP");
    let others: Vec<usize> = (0..3).filter(|n| *n != first).collect();
    let takers = || others.iter().copied().find(|n| fires(&host(&hosts, *n)));
    let second = until("another device has the alert", takers, Option::is_some).unwrap();
    assert_eq!(host(&hosts, second)["since"], since);
    hosts[first].as_ref().unwrap().signal("CONT");
    let handed_over = |alert: &Value| alert["state"] == "resolved" && alert["resolution"] == "handed_over";
    until("it has handed the alert over", || host(&hosts, first), handed_over);

    // Killed and started again, a device has it still, or another one does.
    hosts[second].take().unwrap().kill();
    hosts[second] = Some(start(second));
    let holders = || (0..3).filter(|n| fires(&host(&hosts, *n))).collect::<Vec<_>>();
    let third = until("one device has the alert", holders, |holders| holders.len() == 1)[0];

    // Ended properly, it leaves the alert to the next one, which says how it ends.
    broken.iter().for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(hosts[third].take().unwrap().terminate(), 0);
    let told = until("a receiver is notified of the end", told_of, |told| told.len() > 1);
    assert_eq!((told.len(), told[1][0].as_str(), &told[1][1]), (2, "resolved", &first_told[1]), "{told:?}");
}

#[test]
fn a_second_operator_waits_and_takes_over_with_all_definitions() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/", always(ok(HEALTHY))), ("/bad", always(ok(CRITICAL)))]);
    let mut fleet = Fleet::start(&place);
    fleet.deploy("web", &json!({ "targets": [target("web", &server.url("/"))] }));
    let agent = fleet.agent("host-1", "", "");
    fleet.counts("web", [1, 0, 0, 0]);

    let more = format!("[fleet]\nrole = \"operator\"\ndevice = \"second\"\nurl = \"{}\"\n", fleet.broker.url());
    let second = Host::start(&fleet.folder("second"), &more);
    let waits = |view: &Value| view["operator"]["waitsFor"].is_string() && view["operator"]["complete"] == true;
    let own = until("it waits", || second.get("/api/v1/fleet"), waits);
    assert_eq!(own["operator"]["devices"], 1, "{own}");
    let counted = |name: &str, state: &str| second.get(&format!("/api/v1/fleet/deployments/{name}"))[state].clone();
    until("it counts", || counted("web", "succeeded"), |count| *count == 1);
    let (_, page) = support::get(&second.api, "/fleet", Some(TOKEN));
    assert!(page.contains("takes over if that one is not heard"), "{page}");
    let (code, out, _) = second.command(&fleet.folder("second"), &["fleet", "status"]);
    assert!(code == 0 && out.contains("this one counts, and waits"), "{out}");

    // A definition that is made there is assigned by the other one.
    let put = |host: &Host, name: &str, path: &str| {
        deploy(host, name, &json!({ "targets": [target(name, &server.url(path))] }));
    };
    put(&second, "more", "/bad");
    let total = || fleet.operator().get("/api/v1/fleet/deployments")["total"].clone();
    until("the first operator knows it", total, |total| *total == 2);
    fleet.counts("more", [0, 1, 0, 0]);

    // The first one is killed: the second assigns.
    fleet.operator.take().unwrap().kill();
    put(&second, "late", "/");
    until("the second operator assigns", || counted("late", "succeeded"), |count| *count == 1);
    let status = second.get("/api/v1/fleet");
    assert!(status["operator"]["waitsFor"].is_null(), "{status}");
    let headers = format!("Authorization: Bearer {TOKEN}\r\n");
    let (gone, _) = send(&second.api, ("DELETE", "/api/v1/fleet/deployments/more"), &headers, "");
    assert_eq!(gone, 200);

    // The first one is back with an old database: it waits, and learns what it missed.
    fleet.operate();
    let names = || {
        let all = fleet.operator().get("/api/v1/fleet/deployments");
        let all = all["deployments"].as_array().unwrap().iter();
        all.map(|view| view["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("it knows all definitions", names, |names| *names == ["late", "web"]);
    until("it waits", || fleet.operator().get("/api/v1/fleet"), waits);
    until("two targets are left", || agent.get("/api/v1/targets")["total"].clone(), |total| *total == 2);
    // Also after a further start, from its database. The event is written with the setting.
    let log = || fleet.operator().get("/api/v1/event-log?event=settings:changed").to_string();
    until("it stored the deletion", log, |log| log.contains("deployment more") && log.contains("deleted"));
    fleet.operator.take().unwrap().kill();
    fleet.broker.down();
    fleet.operate();
    let all = fleet.operator().get("/api/v1/fleet/deployments");
    assert_eq!(all["total"], 2, "{all}");
}
