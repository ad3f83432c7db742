//! Operating a host: targets, dead letters, breakers, tokens, secrets and signals.

use crate::support::{Answer, Host, Server, TOKEN, always, folder, get, ok, output, polliwog, until};
use serde_json::{Value, json};
use std::sync::Arc;

/// A `[[target]]` of kind proactive-deps.
pub(crate) fn target(id: &str, url: &str, more: &str) -> String {
    format!("[[target]]\nid = \"{id}\"\nkind = \"proactive-deps\"\nurl = \"{url}\"\n{more}\n")
}

/// The answer of a server with one healthy dependency.
pub(crate) fn healthy() -> Answer {
    always(ok(r#"[{"name":"db","healthy":true}]"#))
}

/// Whether a target was polled successfully.
pub(crate) fn polled(target: &Value) -> bool {
    !target["lastSuccess"].is_null()
}

fn failures(target: &Value) -> u64 {
    target["consecutiveFailures"].as_u64().unwrap()
}

/// Polls by command until the target has failed three times, without waiting for the backoff.
fn fail_three_times(host: &Host, folder: &std::path::Path, id: &str) {
    loop {
        let before = failures(&host.target(id));
        if before >= 3 {
            return;
        }
        host.asked(folder, &["targets", "poll", id]);
        until("another failure", || host.target(id), |target| failures(target) > before);
    }
}

/// Returns a setting's value and source.
pub(crate) fn setting(host: &Host, key: &str) -> (Value, String) {
    let found = host.get(&format!("/api/v1/settings/{key}"));
    (found["value"].clone(), found["source"].as_str().unwrap().to_owned())
}

#[test]
fn targets_can_be_disabled_enabled_and_changed() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\"\ncadence = \"fixed\""));
    until("a is polled", || host.target("a"), polled);
    host.asked(&folder, &["targets", "disable", "a"]);
    let disabled = until("a is disabled", || host.target("a"), |target| target["state"] == "disabled");
    assert_eq!((&disabled["enabled"], &disabled["nextRun"]), (&json!(false), &Value::Null));
    assert_eq!(disabled["dependencies"]["ok"], 1, "the last known state is kept");
    assert_eq!(disabled["settings"][0]["source"], "setting");
    let (code, _, stderr) = host.command(&folder, &["targets", "poll", "a"]);
    assert!(code == 1 && stderr.contains("enable it first"), "{stderr}");
    // It stays disabled after a restart.
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\"\ncadence = \"fixed\""));
    assert_eq!(host.target("a")["state"], "disabled");
    host.asked(&folder, &["targets", "unset", "a", "enabled"]);
    until("a is polled again at once", || server.count("/"), |count| *count == 2);
    let before = until("a waits again", || host.target("a"), |target| target["state"] == "queued");
    host.asked(&folder, &["targets", "set", "a", "interval", "200s"]);
    let after = until("a new due time", || host.target("a"), |target| target["nextRun"] != before["nextRun"]);
    assert_eq!(after["intervalMs"], 200_000);
    assert_eq!(setting(&host, "target.a.interval"), (json!("200s"), "setting".to_owned()));
}

/// Reads all pages of a list.
fn pages(host: &Host, path: &str, list: &str) -> Vec<Value> {
    let (mut entries, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = host.get(&format!("{path}&limit=2{cursor}"));
        let found = page[list].as_array().unwrap();
        assert!(found.len() <= 2);
        entries.extend(found.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return entries,
        }
    }
}

#[test]
fn lists_are_read_page_by_page_and_events_are_listed() {
    let (_keep, folder) = folder();
    let five: Value = (0..5).map(|n| json!({ "name": format!("db{n}"), "healthy": true })).collect();
    let server = Server::start(vec![("/", always(ok(five.to_string())))]);
    let ids = ["a", "b", "c", "d", "e"];
    let config: String = ids.iter().map(|id| target(id, &server.url("/"), "interval = \"60s\"")).collect();
    let host = Host::start(&folder, &config);
    for id in ids {
        until("a poll", || host.target(id), polled);
    }
    let names = |list: Vec<Value>, key: &str| -> Vec<String> {
        list.iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(pages(&host, "/api/v1/targets?kind=proactive-deps", "targets"), "id"), ids);
    let found = names(pages(&host, "/api/v1/dependencies?target=c", "dependencies"), "name");
    assert_eq!(found, ["db0", "db1", "db2", "db3", "db4"]);
    assert_eq!(pages(&host, "/api/v1/dependencies?status=ok", "dependencies").len(), 25);
    let settings = names(pages(&host, "/api/v1/settings?", "settings"), "key");
    assert!(settings.is_sorted() && settings.contains(&"target.e.enabled".to_owned()), "{settings:?}");
    for (query, why) in [("limit=0", "from 1 to 1000"), ("limit=1001", "from 1 to 1000"), ("cursor=x", "`next`")] {
        let (status, body) = get(&host.api, &format!("/api/v1/dependencies?{query}"), Some(TOKEN));
        assert!(status == 400 && body.contains(why), "{query}: {body}");
    }
    // Newest first, page by page; and those after one, oldest first.
    let newest = pages(&host, "/api/v1/event-log?event=service:started", "events");
    let about = |events: &[Value]| -> Vec<String> {
        events.iter().map(|entry| entry["event"]["serviceId"].as_str().unwrap().to_owned()).collect()
    };
    let mut ordered = about(&newest);
    assert_eq!(newest.len(), 5);
    let first = newest[4]["sequence"].as_i64().unwrap();
    let later = pages(&host, &format!("/api/v1/event-log?after={}&event=service:started", first - 1), "events");
    ordered.reverse();
    assert_eq!(about(&later), ordered);
    let (code, out, err) = host.command(&folder, &["events", "--target", "c", "--event", "service:started"]);
    assert!(code == 0 && out.contains("service:started") && out.lines().count() == 1, "{out} {err}");
}

/// A port that is in use is a likely first mistake: it is reported immediately, and no token is generated.
#[test]
fn a_used_port_is_reported_before_any_work_and_the_token_can_be_shown_again() {
    let (_keep, folder) = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let start = |listen: &str| {
        let config = format!("[server]\nlisten = \"{listen}\"\nmetrics_listen = \"127.0.0.1:0\"\n");
        std::fs::write(folder.join("taken.toml"), config).unwrap();
        output(&folder, &["run", "--config", "taken.toml", "--data-dir", "data"])
    };
    for (listen, expected) in [
        (address.to_string(), format!("cannot listen on {address} (server.listen): another program uses this port")),
        ("203.0.113.7:7411".to_owned(), "this machine does not have this address".to_owned()),
    ] {
        let (code, _, stderr) = start(&listen);
        assert!(code == 1 && stderr.contains(&expected), "{stderr}");
        assert!(!folder.join("data").exists(), "no data directory is created");
    }
    let (code, _, stderr) = output(&folder, &["token", "show", "--data-dir", "data"]);
    assert!(code == 1 && stderr.contains("no admin token is stored in"), "{stderr}");

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
    // A token from the environment stays valid after a start without the variable.
    let host = Host::start(&folder, "");
    assert_eq!((may(&host, TOKEN), may(&host, &second)), (200, 401));
    drop(host);
    let host = Host::start_with(&folder, "", &[("POLLIWOG_ADMIN_TOKEN", "")]);
    assert_eq!((may(&host, TOKEN), may(&host, &second), shown()), (200, 401, String::new()));
}

#[test]
fn long_responses_are_compressed_for_clients_that_accept_gzip() {
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
fn an_answer_that_has_not_changed_is_not_sent_again() {
    use std::io::{Read, Write};
    let (_keep, folder) = folder();
    let host = Host::start(&folder, "");
    let ask = |path: &str, more: &str| {
        let mut stream = std::net::TcpStream::connect(&host.api).unwrap();
        let lines = format!("Authorization: Bearer {TOKEN}\r\n{more}Connection: close\r\n");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    };
    let (head, body) = ask("/api/v1/settings", "");
    let tag = head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    assert!(head.starts_with("http/1.1 200") && body.contains("scheduler.cadence"), "{head}");
    let known = format!("If-None-Match: {}\r\n", tag.replace("w/", "W/"));
    let (head, body) = ask("/api/v1/settings", &known);
    assert!(head.starts_with("http/1.1 304") && head.contains(&tag) && body.is_empty(), "{head} {body}");
    assert_eq!(host.command(&folder, &["settings", "set", "scheduler.cadence", "fixed"]).0, 0);
    assert!(ask("/api/v1/settings", &known).0.starts_with("http/1.1 200"));
    // Tokens and pages are not kept by clients.
    for path in ["/api/v1/tokens", "/"] {
        let (head, _) = ask(path, "");
        assert!(!head.contains("etag") && head.contains("cache-control: no-store"), "{path}: {head}");
    }
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
    let logged = |line: &str| until(line, || host.log.lock().unwrap().clone(), |log| log.contains(line));
    logged("denied is a dead letter: it is polled rarely until it answers: ");
    logged("denied is unreachable: ");

    fail_three_times(&host, &folder, "down");
    let open = until("its breaker is open", || host.target("down"), |target| target["breaker"]["state"] == "open");
    assert!(explain("down").contains("its breaker is open"), "{}", explain("down"));
    logged("down failed 3 times in a row: its circuit breaker opened, and it is polled less often until it answers: ");
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
    logged("denied is no longer a dead letter: it is polled normally again");
    logged("denied answers again, after 1 failure");
    let (events, mut announced) = (host.events(Some(0)), Vec::new());
    let reach = || {
        let of_denied = |payload: &serde_json::Value| payload["serviceId"] == "denied";
        let found = events.try_iter().filter(|(_, name, payload)| name.ends_with("reachable") && of_denied(payload));
        announced.extend(found.map(|(_, name, payload)| (name, payload["code"].clone())));
        announced.clone()
    };
    let announced = until("both events", reach, |announced: &Vec<_>| announced.len() == 2);
    let expected = [("target:unreachable", "unauthorized".into()), ("target:reachable", serde_json::Value::Null)];
    assert_eq!(announced, expected.map(|(name, code)| (name.to_owned(), code)));
    host.asked(&folder, &["dead-letter", "drop", "lost"]);
    until("no dead letter remains", dead, |dead| dead["total"] == 0);
    assert_eq!(host.target("lost")["state"], "disabled");
    let failing = host.target("down")["consecutiveFailures"].as_u64().unwrap();
    host.asked(&folder, &["breaker", "reset", "down"]);
    let reset = until("down is polled again", || host.target("down"), |target| target["consecutiveFailures"] == 1);
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
    assert_eq!(kept(&host.target("down")), before[0]);
    // The cause may have been corrected: it is polled once.
    until("lost is polled again", || failures(&host.target("lost")), |count| *count == 2);
    let lost = kept(&host.target("lost"));
    assert_eq!((&lost.0[1], &lost.3), (&before[1].0[1], &before[1].3));
    let polls = (server.count("/down"), server.count("/lost"));
    assert_eq!(polls, (failures(&host.target("down")) as usize, 2), "nothing else is polled early");
}

#[test]
fn missing_dependencies_are_reported_until_they_are_dismissed() {
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
    let (code, stdout, _) = host.command(&folder, &["targets", "dismiss", "a", "db"]);
    assert!(code != 0, "db is not missing: {stdout}");
    let (code, stdout, _) = host.command(&folder, &["targets", "dismiss", "a", "cache"]);
    assert_eq!((code, stdout.trim()), (0, "forgotten: 1"));
    until("the cache is forgotten", || host.target("a"), |target| target["dependencies"]["missing"] == 0);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &target("a", &server.url("/"), "interval = \"60s\""));
    assert_eq!(host.target("a")["dependencies"]["missing"], 0, "also after a restart");
}

/// A second Ctrl-C does not wait for polls that hang. Announced events are stored all the same.
#[test]
fn a_second_signal_ends_the_host_immediately() {
    let (_keep, folder) = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let host = Host::start(&folder, &target("hangs", &url, "timeout = \"5m\""));
    let asked = listener.accept().unwrap();
    host.signal("INT");
    let log = || host.log.lock().unwrap().clone();
    until("the shutdown begins", log, |log| log.contains("unless a second signal comes"));
    host.signal("INT");
    until("the second signal in the log", log, |log| log.contains("a second signal"));
    assert_eq!(host.ended(), 130);
    drop(asked);
}
