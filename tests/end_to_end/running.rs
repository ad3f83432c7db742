//! The running host: its API, metrics and page, and the state that survives a restart.

use crate::support::{Answer, Host, Server, TOKEN, always, folder, get, get_as, ok, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An answer whose dependency changes its status at every request.
fn flapping() -> Answer {
    Arc::new(|number| ok(format!("[{{\"name\":\"db\",\"healthy\":{}}}]", number % 2 == 0)))
}

/// Short intervals, so that a test does not wait.
const FAST: &str = "[scheduler]\nmin_interval = \"100ms\"\ncadence = \"fixed\"\n";

fn target(id: &str, url: &str, interval: &str) -> String {
    format!("[[target]]\nid = \"{id}\"\nkind = \"proactive-deps\"\nurl = \"{url}\"\ninterval = \"{interval}\"\n")
}

/// Converts an RFC 3339 time in UTC to milliseconds since the start of its month.
fn millis(time: &Value) -> i64 {
    let text = time.as_str().unwrap();
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    ((number(8..10) * 24 + number(11..13)) * 60 + number(14..16)) * 60_000 + number(17..19) * 1000 + number(20..23)
}

fn polled(target: &Value) -> bool {
    !target["lastPolled"].is_null()
}

#[test]
fn poll_results_appear_in_api_metrics_page_and_command_line() {
    let (_keep, folder) = folder();
    let body = r#"[{"name":"db","healthy":true},{"name":"<b>queue","healthy":false,"errorMessage":"<script>"},
        {"name":"old","healthy":true,"health":{"skipped":true}}, 7]"#;
    let server = Server::start(vec![("/good", always(ok(body)))]);
    let config = [
        FAST,
        "profile = \"pulse\"\n",
        &target("good", &server.url("/good"), "1s"),
        &target("lost", &server.url("/lost"), "1s"),
    ]
    .concat();
    let host = Host::start(&folder, &config);
    let good = until("good is polled", || host.target("good"), polled);
    assert_eq!((good["status"].as_str().unwrap(), good["dependencies"]["total"].as_u64().unwrap()), ("critical", 4));
    assert_eq!(good["warnings"].as_array().unwrap().len(), 0);
    let lost = until("lost is a dead letter", || host.target("lost"), |target| !target["deadLetter"].is_null());
    assert_eq!(
        (lost["lastError"]["code"].as_str().unwrap(), lost["deadLetter"]["reason"].as_str().unwrap()),
        ("not_found", "permanent_failure")
    );

    let found = host.get("/api/v1/dependencies?target=good&status=critical");
    assert_eq!((found["total"].as_u64().unwrap(), found["dependencies"][0]["name"].as_str().unwrap()), (1, "<b>queue"));
    assert_eq!(found["dependencies"][0]["id"].as_str().unwrap().len(), 16);

    let health = host.get("/api/monitoring/scheduler/health");
    assert_eq!(health["deadLetter"]["count"], 1);
    assert_eq!(health["deadLetter"]["tasks"][0]["instance"], "lost");
    assert_eq!(health["instances"][0]["key"], "proactive-deps::good");
    for key in ["updatedAt", "enabled", "queue", "deadLetter", "breakers", "staleness", "instances"] {
        assert!(!health[key].is_null(), "{key} in {health}");
    }

    let (status, metrics) = get(&host.metrics, "/metrics", None);
    assert_eq!(status, 200);
    for line in [
        "polliwog_poll_total{instance_type=\"proactive-deps\",instance=\"good\",result=\"success\"}",
        "polliwog_poll_duration_seconds_bucket{le=\"0.01\",instance_type=\"proactive-deps\",instance=\"good\"}",
        "polliwog_poll_staleness_seconds{instance_type=\"proactive-deps\",instance=\"good\"} 0",
        "polliwog_poll_staleness_seconds{instance_type=\"proactive-deps\",instance=\"lost\"} -1",
        "polliwog_poll_queue_depth 2",
        "polliwog_poll_inflight{instance_type=\"proactive-deps\"} 0",
        "polliwog_poll_errors_total{instance_type=\"proactive-deps\",instance=\"lost\",category=\"misconfigured\"} 1",
        "polliwog_poll_last_success_timestamp{instance_type=\"proactive-deps\",instance=\"good\"}",
        "polliwog_dependency_status{instance_type=\"proactive-deps\",instance=\"good\",dependency=\"db\"} 0",
        "polliwog_target_status{instance_type=\"proactive-deps\",instance=\"good\"} 2",
        "polliwog_target_status{instance_type=\"proactive-deps\",instance=\"lost\"} 4",
        "polliwog_target_up{instance_type=\"proactive-deps\",instance=\"good\"} 1",
        "polliwog_target_up{instance_type=\"proactive-deps\",instance=\"lost\"} 0",
        "polliwog_target_info{instance_type=\"proactive-deps\",instance=\"good\",name=\"good\",url=",
        "# TYPE polliwog_poll_errors_total counter",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        let documented = include_str!("../../docs/metrics.md").contains(&format!("`{name}`"));
        assert!(documented, "docs/metrics.md does not describe {name}");
    }
    let (_, metrics) = get_as(&host.metrics, "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(metrics.contains("# TYPE polliwog_poll_errors counter") && metrics.ends_with("# EOF\n"), "{metrics}");

    let (status, page) = get(&host.api, "/fragments/targets", Some(TOKEN));
    assert_eq!(status, 200);
    assert!(page.contains("&lt;b&gt;queue") && page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
    for class in ["count ok", "tag critical", "count skipped", "⚡ 1 unreachable", "✗ 1 critical"] {
        assert!(page.contains(class), "{class}");
    }
    assert_eq!(host.get("/api/v1/targets?status=unreachable")["targets"][0]["id"], "lost");
    let status = host.command(&folder, &["status"]).1;
    assert!(status.contains("targets     2: 1 unreachable, 1 critical\n"), "{status}");
}

#[test]
fn the_past_of_a_target_is_in_api_and_page_and_survives_a_kill() {
    let (_keep, folder) = folder();
    let changing = |number: usize| {
        let healthy = number % 4 < 2;
        ok(format!(r#"[{{"name":"=<b>db","healthy":{healthy},"errorMessage":"<i>why","health":{{"latency":7}}}}]"#))
    };
    let server = Server::start(vec![("/a", Arc::new(changing))]);
    let config =
        format!("{FAST}{}{}", target("a", &server.url("/a"), "100ms"), target("lost", &server.url("/lost"), "1s"));
    let host = Host::start(&folder, &config);
    let transitions = |history: &Value| history["transitions"].as_array().unwrap().len();
    let read = || host.get("/api/v1/targets/a/history");
    until("the status changed three times", read, |history| transitions(history) >= 3);
    until(
        "lost failed",
        || host.get("/api/v1/targets/lost/history?range=1h"),
        |history| history["polls"][0]["code"] == "not_found" && history["periods"][1]["state"] == "unreachable",
    );
    let before = read()["transitions"].clone();
    host.kill();

    let host = Host::start(&folder, &config);
    let history = host.get("/api/v1/targets/a/history?range=1h");
    assert_eq!(history["transitions"].as_array().unwrap()[..3], before.as_array().unwrap()[..3]);
    let share = history["availability"]["share"].as_f64().unwrap();
    assert!(0.0 < share && share < 1.0, "{share}");
    let dependency = &history["dependencies"][0];
    assert_eq!(dependency["name"], "=<b>db");
    let states: Vec<&str> =
        dependency["periods"].as_array().unwrap().iter().map(|period| period["state"].as_str().unwrap()).collect();
    assert_eq!(states[..4], ["no_data", "ok", "critical", "ok"], "{states:?}");
    let errors = history["errors"].as_array().unwrap();
    assert_eq!((errors[0]["message"].as_str(), errors[1]["message"].as_str()), (Some("<i>why"), None));

    let text = |path: &str| get(&host.api, path, Some(TOKEN));
    let (status, csv) = text("/api/v1/targets/a/history?format=csv");
    assert!(status == 200 && csv.starts_with("at,dependency,previous,current\n"), "{csv}");
    assert!(csv.contains(r#","'=<b>db",ok,critical"#), "no formula: {csv}");
    let points =
        until("a latency", || host.get("/api/v1/targets/a/latency"), |points| points[0]["points"][0]["count"].is_u64());
    assert_eq!(points[0]["points"][0]["meanMs"], 7.0);
    assert!(
        text("/api/v1/targets/a/latency?format=csv")
            .1
            .starts_with("start,dependency,min_ms,mean_ms,p95_ms,max_ms,count\n")
    );

    for (path, status, code, field) in [
        ("/api/v1/targets/a/history?range=2w", 400, "bad_request", Some("range")),
        ("/api/v1/targets/a/history?format=xml", 400, "bad_request", Some("format")),
        ("/api/v1/targets/a/history?colour=1", 400, "bad_request", None),
        ("/api/v1/targets/a/latency?dependency=nope", 404, "not_found", Some("dependency")),
        ("/api/v1/targets/nope/history", 404, "not_found", None),
    ] {
        let (found, body) = text(path);
        let error: Value = serde_json::from_str(&body).unwrap();
        let error = &error["error"];
        assert_eq!((found, error["code"].as_str().unwrap(), error["field"].as_str()), (status, code, field), "{path}");
    }
    let (status, page) = text("/targets/nope");
    assert!(status == 404 && page.contains("there is no target"), "{page}");
    assert_eq!(text("/targets/a?range=2w").0, 400);
}

#[test]
fn every_page_escapes_names_and_filters_are_in_the_query() {
    let (_keep, folder) = folder();
    let broken = r#"[{"name":"=<b>db","healthy":false,"errorMessage":"<i>why"}]"#;
    let server = Server::start(vec![("/a", always(ok(broken)))]);
    let config =
        format!("{FAST}{}{}", target("a", &server.url("/a"), "100ms"), target("lost", &server.url("/lost"), "1s"));
    let host = Host::start(&folder, &config);
    let status = || host.get("/api/v1/targets/lost")["status"].clone();
    until("lost is unreachable", status, |status| *status == "unreachable");
    until("a is critical", || host.get("/api/v1/targets/a")["status"].clone(), |status| *status == "critical");
    let text = |path: &str| get(&host.api, path, Some(TOKEN));
    let paths = ["/", "/?text=db&group=x", "/graph", "/graph?around=a", "/events", "/events?target=lost", "/scheduler"];
    let of_dependency = "/dependencies/%3D%3Cb%3Edb";
    let more = ["/plugins", of_dependency, "/targets/a?range=1h", "/fragments/targets/a?range=400d", "/targets/lost"];
    for path in paths.into_iter().chain(more).chain(["/targets/a"]) {
        let (status, page) = text(path);
        assert_eq!(status, 200, "{path}");
        assert!(!page.contains("<b>") && !page.contains("<i>"), "{path} does not escape: {page}");
    }
    assert!(text("/targets/a").1.contains("=&lt;b&gt;db"));
    assert!(text("/targets/lost").1.contains("polls fail"));
    assert!(text("/events?target=lost").1.contains(">target:unreachable</span>"));
    assert!(!text("/events?target=a").1.contains(">target:unreachable</span>"));
    assert!(text("/events?event=service:started&before=2").1.matches("<li ").count() <= 1);
    let seen = |query: &str| text(&format!("/{query}")).1.matches("<article").count();
    assert_eq!((seen(""), seen("?text=lost"), seen("?status=critical,unreachable"), seen("?kind=other")), (2, 1, 2, 0));
    assert_eq!((seen("?text=DB"), seen("?label=none"), seen("?page=99")), (1, 0, 2));
    let (status, page) = text("/?status=bad");
    assert!(status == 400 && page.contains("the status of a target must be one of"), "{page}");
    assert!(text("/scheduler").1.contains("/api/v1/breakers/lost/reset"));
    assert!(text("/plugins").1.contains("proactive-deps"));
}

#[test]
fn only_health_login_assets_and_metrics_work_without_a_token() {
    let (_keep, folder) = folder();
    let host = Host::start(&folder, "");
    for path in ["/healthz", "/readyz", "/login", "/assets/app.js"] {
        assert_eq!(get(&host.api, path, None).0, 200, "{path}");
    }
    for path in
        ["/api/v1/targets", "/api/v1/events", "/api/monitoring/scheduler/health", "/fragments/targets", "/nowhere"]
    {
        let (status, body) = get(&host.api, path, None);
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, error["error"]["code"].as_str().unwrap()), (401, "unauthorized"), "{path}");
        assert_eq!(get(&host.api, path, Some("wrong")).0, 401, "{path}");
    }
    for path in ["/", "/settings", "/targets/any"] {
        assert_eq!(get(&host.api, path, None).0, 303, "a browser is redirected to the log-in page: {path}");
    }
    for (path, status, code) in [
        ("/nowhere", 404, "not_found"),
        ("/api/v1/targets/missing", 404, "not_found"),
        ("/api/v1/dependencies?status=purple", 400, "bad_request"),
        ("/api/v1/targets?colour=1", 400, "bad_request"),
    ] {
        let (found, body) = get(&host.api, path, Some(TOKEN));
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((found, error["error"]["code"].as_str().unwrap()), (status, code), "{path}: {body}");
    }
}

#[test]
fn an_added_plugin_serves_its_kind_and_a_kind_without_a_plugin_is_reported() {
    let (_keep, folder) = folder();
    let plugins = folder.join("data/plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("counter.wasm"), tests::guests::CACHED).unwrap();
    std::fs::write(plugins.join("broken.wasm"), "no plugin").unwrap();
    let made = |id: &str, kind: &str| {
        format!("[[target]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"http://127.0.0.1:1/\"\ninterval = \"100ms\"\n")
    };
    let host = Host::start(&folder, &format!("{FAST}{}{}", made("mine", "cached"), made("orphan", "unserved")));
    let polls = || host.get("/api/v1/dependencies?target=mine")["dependencies"][0]["code"].as_i64();
    until("the plugin's own counter rises", polls, |count| count.is_some_and(|count| count >= 3));
    assert_eq!(host.target("orphan")["state"], "no_plugin");
    let plugins = host.get("/api/v1/plugins");
    let refused =
        plugins["plugins"].as_array().unwrap().iter().find(|plugin| !plugin["refusal"].is_null()).unwrap().clone();
    assert!(refused["source"].as_str().unwrap().ends_with("broken.wasm"), "{refused}");
    assert!(host.log.lock().unwrap().contains("broken.wasm is refused"), "{}", host.log.lock().unwrap());
}

#[test]
fn plugin_faults_make_a_target_stale_but_not_a_dead_letter() {
    let (_keep, folder) = folder();
    std::fs::create_dir_all(folder.join("data/plugins")).unwrap();
    std::fs::write(folder.join("data/plugins/p.wasm"), tests::guests::PANICKING).unwrap();
    let config = "[[target]]\nid = \"p\"\nkind = \"panicking\"\nurl = \"http://127.0.0.1:1/\"\n";
    let host = Host::start(&folder, config);
    let target = until("the fault is known", || host.target("p"), |target| !target["lastError"].is_null());
    assert_eq!(
        (target["lastError"]["category"].as_str().unwrap(), target["lastError"]["code"].as_str().unwrap()),
        ("plugin", "panic")
    );
    assert_eq!((target["consecutiveFailures"].as_u64().unwrap(), &target["deadLetter"]), (0, &Value::Null));
    assert!(!target["staleSince"].is_null());
}

#[test]
fn a_graceful_restart_keeps_all_state_and_polls_no_target_early() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", always(ok(r#"[{"name":"db","healthy":false}]"#)))]);
    let config = target("slow", &server.url("/"), "60s");
    let host = Host::start(&folder, &config);
    let before = until("polled once", || host.target("slow"), polled);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config);
    let after = host.target("slow");
    assert_eq!(after["status"], "critical");
    // Schedules are stored in wall-clock time and run on the monotonic clock; the conversion can shift them slightly.
    for time in ["lastPolled", "nextRun"] {
        let apart = (millis(&after[time]) - millis(&before[time])).abs();
        assert!(apart < 1000, "{time}: {} was {}", after[time], before[time]);
    }
    assert_eq!(host.get("/api/v1/dependencies")["dependencies"][0]["name"], "db");
    assert_eq!(server.count("/"), 1);
    // A changed URL makes it a new target, which is polled immediately.
    host.kill();
    let other = Server::start(vec![("/", always(ok("[]")))]);
    let host = Host::start(&folder, &target("slow", &other.url("/"), "60s"));
    until("the new URL is polled", || host.target("slow"), |target| target["dependencies"]["missing"] == json!(1));
    assert_eq!((other.count("/"), server.count("/")), (1, 1));
}

#[test]
fn unreadable_answers_keep_the_last_state_as_stale_and_never_show_ok() {
    let (_keep, folder) = folder();
    let answers: Answer = Arc::new(|number| match number {
        0 => ok(r#"[{"name":"db","healthy":false},{"name":"web","healthy":true}]"#),
        1 => ok("<html>maintenance"),
        2 => ok("{}"),
        _ => ok("[1, 2]"),
    });
    let server = Server::start(vec![("/", answers)]);
    let host = Host::start(&folder, &format!("{FAST}{}", target("a", &server.url("/"), "100ms")));
    let dependencies = || host.get("/api/v1/dependencies?target=a");
    let states = |found: &Value| -> Vec<(String, bool, bool)> {
        let each = found["dependencies"].as_array().unwrap().iter();
        let word = |d: &Value| {
            (d["status"].as_str().unwrap().to_owned(), d["stale"] == json!(true), d["missing"] == json!(true))
        };
        each.map(word).collect()
    };
    let word = |status: &str, stale, missing| (status.to_owned(), stale, missing);
    until(
        "stale",
        || states(&dependencies()),
        |seen| *seen == [word("critical", true, false), word("ok", true, false)],
    );
    assert_eq!(host.target("a")["lastError"]["category"], "transient");
    until("two more failures", || server.count("/"), |count| *count >= 3);
    // A list without valid dependencies is a report in which the known dependencies are missing.
    until(
        "missing",
        || states(&dependencies()),
        |seen| seen[..2] == [word("critical", false, true), word("ok", false, true)],
    );
    assert_eq!(states(&dependencies())[2..], [word("unknown", false, false), word("unknown", false, false)]);
    assert_eq!(host.target("a")["status"], "warning");
    let (_, metrics) = get(&host.metrics, "/metrics", None);
    let missing = "polliwog_dependency_status{instance_type=\"proactive-deps\",instance=\"a\",dependency=\"db\"} 5";
    assert!(metrics.contains(missing), "{metrics}");
    let events = host.events(Some(0));
    let next = || events.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    let (.., payload) = std::iter::repeat_with(next).find(|(_, name, _)| name == "dependency:missing").unwrap();
    assert_eq!(payload["dependencyName"], "db");
}

/// Every announced event is stored after a kill, and no event is stored that did not happen.
#[test]
fn kills_lose_no_transition_and_invent_none() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", flapping()), ("/b", flapping())]);
    let config =
        format!("{FAST}{}{}", target("a", &server.url("/a"), "100ms"), target("b", &server.url("/b"), "150ms"));
    let mut announced: BTreeMap<i64, Value> = BTreeMap::new();
    for round in 0..6 {
        let host = Host::start(&folder, &config);
        let events = host.events(Some(announced.keys().last().copied().unwrap_or(0)));
        let wanted = announced.len() + 3 + round * 2;
        while announced.len() < wanted {
            let (id, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            if name == "status:change" {
                let known = announced.insert(id.expect("a transition has a sequence number"), payload.clone());
                assert!(known.is_none(), "announced twice: {payload}");
            }
        }
        host.kill();
    }
    let host = Host::start(&folder, &config);
    let events = host.events(Some(0));
    let mut stored: BTreeMap<i64, Value> = BTreeMap::new();
    while stored.keys().last() < announced.keys().last() {
        let (id, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_ne!(name, "resync");
        if let (Some(id), "status:change") = (id, name.as_str()) {
            stored.insert(id, payload);
        }
    }
    for (id, payload) in &announced {
        assert_eq!(stored.get(id), Some(payload), "announced before a kill, and gone");
    }
    for service in ["a", "b"] {
        let statuses: Vec<_> = stored.values().filter(|payload| payload["serviceId"] == service).collect();
        assert!(statuses.len() > 3);
        for pair in statuses.windows(2) {
            assert_eq!(pair[0]["currentStatus"], pair[1]["previousStatus"], "invented or lost between {pair:?}");
        }
    }
}

/// A poll visits the loop twice: when it starts, because it is due, and when it ends, by a message. The writer
/// publishes the results of a commit itself, without the loop.
#[test]
fn a_poll_is_one_message_to_the_loop_even_if_it_changed_something() {
    let same = always(ok(r#"[{"name":"db","healthy":true}]"#));
    for (what, answer) in [("flapping", flapping()), ("the same", same)] {
        let (_keep, folder) = folder();
        let server = Server::start(vec![("/", answer)]);
        let host = Host::start(&folder, &format!("{FAST}{}", target("a", &server.url("/"), "100ms")));
        let counted = || {
            let stats = host.get("/api/v1/scheduler/stats");
            let number = |of: &Value| of.as_i64().unwrap();
            (number(&stats["scheduler"]["JobsProcessed"]), number(&stats["loop"]["messagesHandled"]))
        };
        let before = until("it is polled", counted, |(polls, _)| *polls >= 3);
        let after = until("it is polled 20 times", counted, |(polls, _)| *polls >= before.0 + 20);
        let (polls, messages) = (after.0 - before.0, after.1 - before.1);
        // Before and after, either number may include a poll that the other does not include yet, and a poll may end
        // between the two readings. A second message for each poll would be 20 more.
        assert!(messages.abs_diff(polls) <= 3, "{what}: {messages} messages for {polls} polls");
    }
}
