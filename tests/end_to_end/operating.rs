//! What an operator does with a running host: settings, targets, dead letters, breakers, explanations, the file.

use crate::support::{Answer, Host, Server, TOKEN, always, folder, get, ok, output, polliwog, until};
use serde_json::{Value, json};
use std::sync::Arc;

fn target(id: &str, url: &str, more: &str) -> String {
    format!("[[target]]\nid = \"{id}\"\nkind = \"proactive-deps\"\nurl = \"{url}\"\n{more}\n")
}

fn healthy() -> Answer {
    always(ok(r#"[{"name":"db","healthy":true}]"#))
}

fn polled(target: &Value) -> bool {
    !target["lastSuccess"].is_null()
}

fn failures(target: &Value) -> u64 {
    target["consecutiveFailures"].as_u64().unwrap()
}

/// Operators need not wait for the backoff.
fn fail_three_times(host: &Host, folder: &std::path::Path, id: &str) {
    loop {
        let before = failures(&host.target(id));
        if before >= 3 {
            return;
        }
        host.asked(folder, &["targets", "poll", id]);
        until("it fails again", || host.target(id), |target| failures(target) > before);
    }
}

/// A setting's value and source.
fn setting(host: &Host, key: &str) -> (Value, String) {
    let found = host.get(&format!("/api/v1/settings/{key}"));
    (found["value"].clone(), found["source"].as_str().unwrap().to_owned())
}

#[test]
fn the_cadence_is_toggled_while_the_host_runs_and_due_times_follow() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let config =
        format!("[scheduler]\nmax_interval = \"10m\"\n{}", target("a", &server.url("/"), "interval = \"60s\""));
    let host = Host::start(&folder, &config);
    let before = until("a is polled", || host.target("a"), polled);
    assert_eq!((&before["cadence"], setting(&host, "scheduler.cadence").1.as_str()), (&json!("adaptive"), "default"));
    let terms = |host: &Host| host.get("/api/v1/targets/a/explain")["terms"].clone();
    let term = |terms: &Value, name: &str| {
        let found = terms.as_array().unwrap().iter().find(|term| term["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("no {name} in {terms}"))["value"].as_str().unwrap().to_owned()
    };
    for name in ["cadence", "base_interval", "staleness", "expected_change", "activity", "score", "jittered"] {
        term(&terms(&host), name);
    }

    host.asked(&folder, &["settings", "set", "scheduler.cadence", "fixed"]);
    let after = until("the due time follows", || host.target("a"), |target| target["nextRun"] != before["nextRun"]);
    assert_eq!((&after["cadence"], setting(&host, "scheduler.cadence").1.as_str()), (&json!("fixed"), "setting"));
    assert_eq!(term(&terms(&host), "interval"), "60.0 s");
    assert_eq!(host.get("/api/monitoring/scheduler/health")["enabled"], false);

    // It survives the host's end, and another host's environment wins over it.
    assert_eq!(host.terminate(), 0);
    let host = Host::start_with(&folder, &config, &[("POLLIWOG_SCHEDULER_CADENCE", "pulse")]);
    assert_eq!(setting(&host, "scheduler.cadence"), (json!("pulse"), "environment".to_owned()));
    let (code, _, stderr) = host.command(&folder, &["settings", "set", "scheduler.cadence", "adaptive"]);
    assert!(code == 1 && stderr.contains("POLLIWOG_SCHEDULER_CADENCE, which wins"), "{stderr}");
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config);
    assert_eq!(setting(&host, "scheduler.cadence"), (json!("fixed"), "setting".to_owned()));
    host.asked(&folder, &["settings", "unset", "scheduler.cadence"]);
    assert_eq!(setting(&host, "scheduler.cadence"), (json!("adaptive"), "default".to_owned()));
    assert_eq!(server.count("/"), 1, "nothing of this polled it early");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let a = target("a", &server.url("/"), "interval = \"20s\"");
    let host = Host::start(&folder, &format!("[scheduler]\nmax_interval = \"5m\"\n{a}"));
    until("a is polled", || host.target("a"), polled);
    let before = host.get("/api/v1/settings");
    for (arguments, expected) in [
        (["settings", "set", "scheduler.cadence", "adpative"], "did you mean \"adaptive\""),
        (["settings", "set", "scheduler.cadense", "fixed"], "did you mean \"scheduler.cadence\""),
        (["settings", "set", "scheduler.min_interval", "0s"], "setting scheduler.min_interval: 0s is out of range"),
        (["settings", "set", "scheduler.min_interval", "soon"], "\"soon\" is not a duration"),
        (["settings", "set", "scheduler.max_interval", "100d"], "setting scheduler.max_interval"),
        (
            ["settings", "set", "scheduler.max_interval", "1s"],
            "setting scheduler.max_interval: min_interval (5s) is above",
        ),
        (["settings", "set", "scheduler.base_interval", "2s"], "base_interval (2s) lies outside"),
        (["settings", "set", "scheduler.max_in_flight", "0"], "setting scheduler.max_in_flight: it is 0"),
        (["settings", "set", "scheduler.rate_per_second", "-1"], "rate_per_second"),
        (["settings", "set", "target.a.interval", "1y"], "setting target.a.interval"),
        (["settings", "set", "target.a.interval", "10m"], "lies outside its bounds"),
        (["settings", "set", "scheduler.max_per_host", "4294967296"], "4294967296 is too high: use at most 100000"),
        (["settings", "set", "target.b.interval", "10s"], "because there is no target \"b\""),
        (["settings", "set", "target.a.url", "10s"], "enabled, interval, cadence can be set"),
        (["settings", "set", "server.listen", "x"], "that can be changed while the host runs"),
    ] {
        let (code, _, stderr) = host.command(&folder, &arguments);
        assert!(code != 0 && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    for (arguments, expected) in [
        (["targets", "enable", "b"], "there is no target \"b\""),
        (["dead-letter", "drop", "a"], "target a is not a dead letter"),
        (["dead-letter", "retry", "a"], "target a is not a dead letter"),
        (["breaker", "reset", "../x"], "there is no target"),
        (["breaker", "reset", "a"], "is closed"),
    ] {
        let (code, _, stderr) = host.command(&folder, &arguments);
        assert!(code == 1 && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    assert_eq!(host.get("/api/v1/settings"), before);
}

#[test]
fn targets_are_disabled_enabled_and_tuned() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\"\ncadence = \"fixed\""));
    until("a is polled", || host.target("a"), polled);
    host.asked(&folder, &["targets", "disable", "a"]);
    let disabled = until("a is disabled", || host.target("a"), |target| target["state"] == "disabled");
    assert_eq!((&disabled["enabled"], &disabled["nextRun"]), (&json!(false), &Value::Null));
    assert_eq!(disabled["dependencies"]["ok"], 1, "what is known stays");
    assert_eq!(disabled["settings"][0]["source"], "setting");
    let (code, _, stderr) = host.command(&folder, &["targets", "poll", "a"]);
    assert!(code == 1 && stderr.contains("enable it first"), "{stderr}");
    // It stays so in the next host.
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\"\ncadence = \"fixed\""));
    assert_eq!(host.target("a")["state"], "disabled");
    host.asked(&folder, &["targets", "unset", "a", "enabled"]);
    until("a is polled again at once", || server.count("/"), |count| *count == 2);
    let before = until("a waits again", || host.target("a"), |target| target["state"] == "queued");
    host.asked(&folder, &["targets", "set", "a", "interval", "200s"]);
    let after = until("its time follows", || host.target("a"), |target| target["nextRun"] != before["nextRun"]);
    assert_eq!(after["intervalMs"], 200_000);
    assert_eq!(setting(&host, "target.a.interval"), (json!("200s"), "setting".to_owned()));
}

#[test]
fn the_file_is_watched_and_a_bad_one_changes_nothing_and_is_shown() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy()), ("/c", healthy())]);
    let a = target("a", &server.url("/a"), "interval = \"60s\"");
    let host = Host::start(&folder, &format!("{a}{}", target("gone", &server.url("/b"), "")));
    until("both are polled", || (host.target("a"), host.target("gone")), |(a, gone)| polled(a) && polled(gone));
    let events = host.events(Some(0));

    let renamed = a.replace("interval", "name = \"The A\"\ninterval");
    Host::configure(&folder, &format!("{renamed}{}", target("new", &server.url("/c"), "")));
    until("the new target is polled", || server.count("/c"), |count| *count == 1);
    let names = || {
        let listed = host.get("/api/v1/targets");
        listed["targets"].as_array().unwrap().iter().map(|target| target["name"].clone()).collect::<Vec<_>>()
    };
    until("both are listed", names, |names| *names == ["The A", "new"]);
    assert_eq!(server.count("/a"), 1, "another name is no reason to poll");
    // In whichever order they come.
    let mut told = std::collections::BTreeMap::new();
    while !(told.contains_key("service:stopped") && told.contains_key("settings:changed")) {
        let (_, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).expect("both are told");
        told.insert(name, payload);
    }
    assert_eq!(told["service:stopped"]["serviceId"], "gone");
    assert!(told["settings:changed"]["setting"].as_str().unwrap().ends_with("polliwog.toml"));
    let (_, metrics) = get(&host.metrics, "/metrics", None);
    assert!(!metrics.contains("instance=\"gone\""), "series go when their target goes");

    Host::configure(&folder, &renamed.replace("interval", "intervall"));
    let seen = || host.get("/api/v1/settings")["problems"].clone();
    let problems = until("the problem is shown", seen, |problems| problems.as_array().unwrap().len() == 1);
    assert!(problems[0].as_str().unwrap().contains("did you mean \"interval\""), "{problems}");
    let (_, page) = get(&host.api, "/fragments/targets", Some(TOKEN));
    assert!(
        page.contains("could not be applied; the previous one is still active") && page.contains("did you mean"),
        "{page}"
    );
    assert_eq!(host.get("/api/v1/targets")["total"], 2, "nothing changed");
    let ready = get(&host.api, "/readyz", None).1;
    assert!(ready.contains("not all of the configuration is active, for one problem"), "{ready}");
    assert!(get(&host.metrics, "/metrics", None).1.contains("polliwog_configuration_problems 1"));
    host.asked(&folder, &["settings", "set", "scheduler.base_interval", "20s"]);
    assert_eq!(seen(), problems, "it is as wrong as before");

    // Another URL is another target: everything of it starts anew.
    Host::configure(&folder, &renamed.replace("/a\"", "/b\""));
    until("the new URL is polled", || server.count("/b"), |count| *count == 2);
    until("the problem is gone", seen, |problems| problems.as_array().unwrap().is_empty());
    until("that is said", || host.log.lock().unwrap().clone(), |log| log.contains("is valid again, and active"));
    let (_, page) = get(&host.api, "/settings", Some(TOKEN));
    assert!(page.contains("target.a.interval") && page.contains("scheduler.cadence"), "{page}");
    assert!(!page.contains("target.a.cadence"), "nobody decided it: {page}");
}

#[test]
fn sighup_reads_the_file_again_and_the_log_says_what_changed() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let a = target("a", &server.url("/a"), "interval = \"60s\"");
    let environment = [("POLLIWOG_LOG_FORMAT", "json")];
    let gone = target("gone", &server.url("/b"), "");
    let host = Host::start_with(&folder, &format!("{a}{gone}"), &environment);
    let log = || host.log.lock().unwrap().clone();
    host.signal("HUP");
    until("it is read again", log, |log| log.contains("was read again: nothing changed"));
    let new = target("new", &server.url("/b"), "");
    Host::configure(&folder, &format!("{}{new}", a.replace("60s", "30s")));
    let said = "added new; removed gone; changed a (interval 1m is now 30s)";
    let all = until("the difference is said", log, |log| log.contains(said));
    host.asked(&folder, &["settings", "set", "scheduler.max_in_flight", "7"]);
    until("who changed it is said", log, |log| {
        log.contains("the setting scheduler.max_in_flight is now 7")
            && log.contains("PUT \\\"/api/v1/settings/scheduler.max_in_flight\\\" by a program at 127.0.0.1: 200")
    });
    // What the file says of it has no effect any more.
    Host::configure(&folder, &format!("{}{new}[scheduler]\nmax_in_flight = 9\n", a.replace("60s", "30s")));
    until("it is said that a setting wins", log, |log| {
        log.contains("the change of scheduler.max_in_flight has no effect while a setting wins over it")
    });
    for line in all.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

/// The most likely first mistake is a port that is taken: it is told at once, and costs no token.
#[test]
fn a_taken_port_is_told_at_once_and_the_token_can_be_seen_again() {
    let (_keep, folder) = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let start = |listen: &str| {
        let config = format!("[server]\nlisten = \"{listen}\"\nmetrics_listen = \"127.0.0.1:0\"\n");
        std::fs::write(folder.join("taken.toml"), config).unwrap();
        output(&folder, &["run", "--config", "taken.toml", "--data-dir", "data"])
    };
    for (listen, expected) in [
        (address.to_string(), format!("cannot listen on {address} (server.listen): another program listens there")),
        ("203.0.113.7:7411".to_owned(), "this machine has no such address".to_owned()),
    ] {
        let (code, _, stderr) = start(&listen);
        assert!(code == 1 && stderr.contains(&expected), "{stderr}");
        assert!(!folder.join("data").exists(), "nothing was compiled, and nothing made");
    }
    let (code, _, stderr) = output(&folder, &["token", "show", "--data-dir", "data"]);
    assert!(code == 1 && stderr.contains("keeps no admin token"), "{stderr}");

    let shown = || output(&folder, &["token", "show", "--data-dir", "data"]).1.trim().to_owned();
    let may = |host: &Host, token: &str| get(&host.api, "/api/v1/targets", Some(token)).0;
    let host = Host::start_with(&folder, "", &[("POLLIWOG_ADMIN_TOKEN", "")]);
    let first = shown();
    assert_eq!((first.len(), may(&host, &first)), (64, 200));
    let rotated = polliwog(&folder, &["token", "rotate"])
        .env("POLLIWOG_URL", format!("http://{}", host.api))
        .env("POLLIWOG_TOKEN", &first)
        .output()
        .unwrap();
    let second = String::from_utf8(rotated.stdout).unwrap().trim().to_owned();
    assert_eq!((shown(), may(&host, &second), may(&host, &first)), (second.clone(), 200, 401));
    drop(host);
    // One that the environment sets stays when the environment sets none any more.
    let host = Host::start(&folder, "");
    assert_eq!((may(&host, TOKEN), may(&host, &second)), (200, 401));
    drop(host);
    let host = Host::start_with(&folder, "", &[("POLLIWOG_ADMIN_TOKEN", "")]);
    assert_eq!((may(&host, TOKEN), may(&host, &second), shown()), (200, 401, String::new()));
}

/// What is long is sent compressed to those that ask for it.
#[test]
fn long_answers_are_compressed_for_those_that_ask() {
    use std::io::{Read, Write};
    let (_keep, folder) = folder();
    let host = Host::start(&folder, "");
    for (address, path, expected) in
        [(&host.metrics, "/metrics", true), (&host.api, "/fragments/targets", true), (&host.api, "/", false)]
    {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let lines = format!("Authorization: Bearer {TOKEN}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer).to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        assert_eq!(head.contains("content-encoding: gzip"), expected, "{path}: {head}");
    }
}

#[test]
fn a_secret_that_is_replaced_is_taken_up_and_one_that_is_gone_changes_nothing() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy())]);
    let secret = folder.join("token");
    std::fs::write(&secret, "the first secret").unwrap();
    let target = |secret: &str| {
        let secrets = format!("interval = \"60s\"\nsecrets = {{ token = {{ file = {secret:?} }} }}");
        let settings = "[target.settings]\nheaders = { x-token = \"${secret.token}\" }\n";
        target("a", &server.url("/a"), &secrets).replace("proactive-deps", "http") + settings
    };
    let host = Host::start(&folder, &target("token"));
    until("it is polled", || host.target("a"), polled);
    // Whoever replaces one, and asks for the target to be tried again, must not have to touch the configuration.
    std::fs::write(&secret, "the second secret").unwrap();
    until("it is polled with the other", || server.last("/a"), |head| head.contains("the second secret"));
    let seen = || host.get("/api/v1/settings")["problems"].clone();
    let is_fine = |problems: &Value| problems.as_array().unwrap().is_empty();
    std::fs::remove_file(&secret).unwrap();
    let problems = until("it is missed", seen, |problems| !is_fine(problems));
    assert!(problems[0].as_str().unwrap().contains("the secret \"token\""), "{problems}");
    std::fs::write(&secret, "the second secret").unwrap();
    until("the problem is gone", seen, is_fine);

    // One that is written after the configuration names it.
    Host::configure(&folder, &target("another"));
    until("it is missed", seen, |problems| !is_fine(problems));
    std::fs::write(folder.join("another"), "the third secret").unwrap();
    until("it is polled with the third", || server.last("/a"), |head| head.contains("the third secret"));
    until("the problem is gone", seen, is_fine);
    assert_eq!(server.count("/a"), 3, "what is the same again is no reason to poll");
    host.asked(&folder, &["settings", "set", "scheduler.base_interval", "20s"]);
    let events = host.events(Some(0));
    let changed = || loop {
        let (_, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).expect("it is told");
        if name == "settings:changed" {
            return payload["setting"].clone();
        }
    };
    let changes = std::iter::from_fn(|| Some(changed()).filter(|setting| setting != "scheduler.base_interval"));
    assert_eq!(changes.count(), 2, "nor an event");
}

#[test]
fn dead_letters_and_breakers_are_listed_explained_retried_reset_and_dropped() {
    let (_keep, folder) = folder();
    let down: Answer = Arc::new(|_| b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_vec());
    let denied: Answer = Arc::new(|number| match number {
        0 => b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".to_vec(),
        _ => ok(r#"[{"name":"db","healthy":true}]"#),
    });
    let server = Server::start(vec![("/down", down), ("/denied", denied), ("/well", healthy())]);
    let config: Vec<String> =
        ["down", "denied", "lost", "well"].map(|id| target(id, &server.url(&format!("/{id}")), "")).to_vec();
    let host =
        Host::start(&folder, &format!("[scheduler]\nprofile = \"pulse\"\nmax_per_host = 1\n{}", config.concat()));
    let explain = |id: &str| host.asked(&folder, &["explain", id])["summary"].as_str().unwrap().to_owned();
    until("well is polled", || host.target("well"), polled);
    assert!(
        explain("well").contains("its last poll returned a report, and its adaptive cadence computed"),
        "{}",
        explain("well")
    );

    let dead = || host.asked(&folder, &["dead-letter", "list"]);
    let two = until("two are dead letters", dead, |dead| dead["total"] == 2);
    assert_eq!(two["deadLetters"][0]["target"], "denied");
    assert_eq!(two["deadLetters"][0]["lastError"]["code"], "unauthorized");
    assert!(explain("lost").contains("is a dead letter: it is polled every 30 min"), "{}", explain("lost"));
    let listed = host.command(&folder, &["targets"]).1;
    assert!(listed.contains("unauthorized (dead letter)"), "{listed}");
    let said = |line: &str| until(line, || host.log.lock().unwrap().clone(), |log| log.contains(line));
    said("denied is a dead letter: it is polled rarely until it answers: ");
    said("denied is unreachable: ");

    fail_three_times(&host, &folder, "down");
    let open = until("its breaker is open", || host.target("down"), |target| target["breaker"]["state"] == "open");
    assert!(explain("down").contains("its breaker is open"), "{}", explain("down"));
    said("down failed 3 times in a row: its circuit breaker opened, and it is polled less often until it answers: ");
    assert!(host.asked(&folder, &["breaker"])["breakers"].to_string().contains("\"state\":\"open\""), "{open}");
    let stats = host.get("/api/v1/scheduler/stats");
    for key in ["JobsProcessed", "JobsSkipped", "CommandsCreated", "CommandsFailed", "BackpressureSkips", "QueueSize"] {
        assert!(stats["scheduler"][key].is_u64(), "{key} in {stats}");
    }
    assert!(stats["scheduler"]["CommandsFailed"].as_u64().unwrap() >= 5, "{stats}");
    assert_eq!(stats["queue"]["JobsBySubsystem"]["proactive-deps"], stats["queue"]["Size"]);
    assert!(stats["queue"]["OldestJob"].as_str().unwrap().contains("/proactive-deps] next_run="), "{stats}");

    host.asked(&folder, &["dead-letter", "retry", "denied"]);
    until("denied answers", || host.target("denied"), |target| polled(target) && target["deadLetter"].is_null());
    said("denied recovered: back to its normal interval");
    said("denied answers again, after 1 failure");
    let (events, mut told) = (host.events(Some(0)), Vec::new());
    let reach = || {
        let of_denied = |payload: &serde_json::Value| payload["serviceId"] == "denied";
        let found = events.try_iter().filter(|(_, name, payload)| name.ends_with("reachable") && of_denied(payload));
        told.extend(found.map(|(_, name, payload)| (name, payload["code"].clone())));
        told.clone()
    };
    let told = until("both are told", reach, |told: &Vec<_>| told.len() == 2);
    let expected = [("target:unreachable", "unauthorized".into()), ("target:reachable", serde_json::Value::Null)];
    assert_eq!(told, expected.map(|(name, code)| (name.to_owned(), code)));
    host.asked(&folder, &["dead-letter", "drop", "lost"]);
    until("none is left", dead, |dead| dead["total"] == 0);
    assert_eq!(host.target("lost")["state"], "disabled");
    let failing = host.target("down")["consecutiveFailures"].as_u64().unwrap();
    host.asked(&folder, &["breaker", "reset", "down"]);
    let reset = until("down is polled anew", || host.target("down"), |target| target["consecutiveFailures"] == 1);
    assert!(failing >= 3 && reset["breaker"]["state"] == "closed", "{reset}");
    let status = host.command(&folder, &["status"]).1;
    assert!(
        status.contains("polliwog ") && status.contains("started ") && !status.contains("dead letters"),
        "{status}"
    );
}

#[test]
fn streaks_breakers_and_dead_letters_survive_a_kill() {
    let (_keep, folder) = folder();
    let down: Answer = Arc::new(|_| b"HTTP/1.1 503 Oh\r\ncontent-length: 0\r\n\r\n".to_vec());
    let server = Server::start(vec![("/down", down)]);
    let config = ["down", "lost"].map(|id| target(id, &server.url(&format!("/{id}")), "")).concat();
    let host = Host::start(&folder, &format!("[scheduler]\nprofile = \"pulse\"\n{config}"));
    until("lost is a dead letter", || host.target("lost"), |target| !target["deadLetter"].is_null());
    fail_three_times(&host, &folder, "down");
    let kept = |target: &Value| {
        let near = |time: &Value| time.as_str().map(|time| time[..16].to_owned());
        let plain = ["consecutiveFailures", "staleSince"].map(|key| target[key].clone());
        (
            plain,
            target["lastError"]["message"].clone(),
            target["breaker"]["state"].clone(),
            target["deadLetter"]["reason"].clone(),
            near(&target["lastPolled"]),
        )
    };
    let before = ["down", "lost"].map(|id| kept(&host.target(id)));
    assert_eq!((&before[0].2, &before[1].3), (&json!("open"), &json!("permanent_failure")));
    host.kill();
    let host = Host::start(&folder, &config);
    assert_eq!(["down", "lost"].map(|id| kept(&host.target(id))), before);
    let polls = (server.count("/down"), server.count("/lost"));
    assert_eq!(polls, (failures(&host.target("down")) as usize, 1), "neither is polled before its time");
}

#[test]
fn a_setting_that_no_longer_fits_is_parked_and_the_others_stay_in_force() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let config = |min: &str| {
        let both = ["a", "b"].map(|id| target(id, &server.url("/"), "")).concat();
        format!("[scheduler]\nmin_interval = \"{min}\"\n{both}")
    };
    let host = Host::start(&folder, &config("5s"));
    for arguments in [
        ["settings", "set", "scheduler.max_interval", "20s"],
        ["settings", "set", "target.a.interval", "15s"],
        ["settings", "set", "target.b.enabled", "false"],
    ] {
        host.asked(&folder, &arguments);
    }
    // While it runs, and then at a start.
    Host::configure(&folder, &config("18s"));
    let problems = |host: &Host| host.get("/api/v1/settings")["problems"].clone();
    until("one is parked", || problems(&host), |problems| problems.as_array().unwrap().len() == 1);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config("18s"));
    let parked = problems(&host);
    assert!(
        parked[0].as_str().unwrap().starts_with("the setting target.a.interval = 15s is kept and not active"),
        "{parked}"
    );
    assert_eq!(setting(&host, "scheduler.max_interval"), (json!("20s"), "setting".to_owned()));
    assert_eq!(host.target("b")["state"], "disabled", "whether a target is polled fits any file");
    // It can be unset, others can be changed, and a file that it fits brings it back.
    host.asked(&folder, &["targets", "enable", "b"]);
    Host::configure(&folder, &config("5s"));
    until("it is in force again", || setting(&host, "target.a.interval").1, |source| source == "setting");
    Host::configure(&folder, &config("18s"));
    until("it is parked again", || problems(&host), |problems| problems.as_array().unwrap().len() == 1);
    host.asked(&folder, &["settings", "unset", "target.a.interval"]);
    assert_eq!(problems(&host), json!([]));
}

#[test]
fn a_file_that_lost_all_its_targets_or_itself_changes_nothing_and_a_target_that_comes_back_is_known() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let a = target("a", &server.url("/a"), "");
    let both = format!("{a}{}", target("b", &server.url("/b"), ""));
    let host = Host::start(&folder, &both);
    until("both are polled", || (host.target("a"), host.target("b")), |(a, b)| polled(a) && polled(b));
    let problems = || host.get("/api/v1/settings")["problems"].to_string();
    Host::configure(&folder, "");
    until("it is shown", problems, |problems| problems.contains("no [[target]] any more"));
    assert_eq!(host.get("/api/v1/targets")["total"], 2);
    // What changes by command does not wait for the file.
    host.asked(&folder, &["settings", "set", "scheduler.rate_per_second", "50"]);
    std::fs::remove_file(folder.join("polliwog.toml")).unwrap();
    until("it is shown", problems, |problems| problems.contains("the file is gone"));
    Host::configure(&folder, &a);
    until("b is gone", || host.get("/api/v1/targets")["total"].clone(), |total| *total == 1);
    Host::configure(&folder, &both);
    let b = until("b is back", || host.get("/api/v1/targets")["targets"][1].clone(), |b| b["id"] == "b");
    assert_eq!(b["dependencies"]["ok"], 1, "what was known of it is known: {b}");
}

#[test]
fn what_a_poll_of_the_old_url_learns_is_not_known_of_the_new_one() {
    let (_keep, folder) = folder();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let slow: Answer = Arc::new(move |_| {
        let _ = held.lock().unwrap().recv();
        ok(r#"[{"name":"old","healthy":false}]"#)
    });
    let server = Server::start(vec![("/slow", slow), ("/new", healthy())]);
    let host = Host::start(&folder, &target("a", &server.url("/slow"), "timeout = \"60s\""));
    until("the old URL is asked", || server.count("/slow"), |count| *count == 1);
    Host::configure(&folder, &target("a", &server.url("/new"), "timeout = \"60s\""));
    let config = || host.target("a")["url"].clone();
    until("the change is taken up", config, |url| url.as_str().unwrap().ends_with("/new"));
    release.send(()).unwrap();
    until("the new URL is asked", || host.target("a"), polled);
    let names = host.get("/api/v1/dependencies")["dependencies"].to_string();
    assert!(names.contains("\"db\"") && !names.contains("\"old\""), "{names}");
}

#[test]
fn what_is_missing_is_told_until_somebody_dismisses_it() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![(
        "/",
        std::sync::Arc::new(|number| {
            ok(if number == 0 {
                r#"[{"name":"db","healthy":true},{"name":"cache","healthy":true}]"#
            } else {
                r#"[{"name":"db","healthy":false,"errorMessage":"no space left"}]"#
            })
        }),
    )]);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\""));
    until("it is polled", || host.target("a"), polled);
    host.asked(&folder, &["targets", "poll", "a"]);
    until("the cache is missing", || host.target("a"), |target| target["dependencies"]["missing"] == 1);
    let (code, shown, stderr) = host.command(&folder, &["targets", "show", "a"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(shown.contains("critical  db: no space left") && shown.contains("missing   cache"), "{shown}");
    let (code, said, _) = host.command(&folder, &["targets", "dismiss", "a", "db"]);
    assert!(code != 0, "it is not missing: {said}");
    let (code, said, _) = host.command(&folder, &["targets", "dismiss", "a", "cache"]);
    assert_eq!((code, said.trim()), (0, "forgotten: 1"));
    until("it is forgotten", || host.target("a"), |target| target["dependencies"]["missing"] == 0);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\""));
    assert_eq!(host.target("a")["dependencies"]["missing"], 0, "over a restart too");
}

/// Who presses Ctrl-C twice does not want to wait for what hangs; what was told is stored all the same.
#[test]
fn a_second_signal_ends_it_at_once() {
    let (_keep, folder) = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let host = Host::start(&folder, &target("hangs", &url, "timeout = \"5m\""));
    let asked = listener.accept().unwrap();
    host.signal("INT");
    let log = || host.log.lock().unwrap().clone();
    until("it ends", log, |log| log.contains("unless a second signal comes"));
    host.signal("INT");
    until("it says so", log, |log| log.contains("a second signal"));
    assert_eq!(host.ended(), 130);
    drop(asked);
}
