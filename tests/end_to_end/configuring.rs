//! Configuring a running host: settings, the watched file and secrets.

use crate::operating::{healthy, polled, setting, target};
use crate::support::{Answer, Host, Server, TOKEN, folder, get, ok, until};
use serde_json::{Value, json};
use std::sync::Arc;

#[test]
fn changing_the_cadence_while_the_host_runs_updates_due_times() {
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
    let after = until("a new due time", || host.target("a"), |target| target["nextRun"] != before["nextRun"]);
    assert_eq!((&after["cadence"], setting(&host, "scheduler.cadence").1.as_str()), (&json!("fixed"), "setting"));
    assert_eq!(term(&terms(&host), "interval"), "60.0 s");
    assert_eq!(host.get("/api/monitoring/scheduler/health")["enabled"], false);

    // The change survives a restart, and the environment overrides it.
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
    assert_eq!(server.count("/"), 1, "no early poll");
}

#[test]
fn invalid_commands_are_refused_and_change_nothing() {
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
        (
            ["settings", "set", "scheduler.max_in_flight", "0"],
            "setting scheduler.max_in_flight: 0 would stop all polls",
        ),
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
fn file_changes_are_applied_and_an_invalid_file_is_reported_and_changes_nothing() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy()), ("/c", healthy())]);
    let a = target("a", &server.url("/a"), "interval = \"60s\"");
    let host = Host::start(&folder, &format!("{a}{}", target("gone", &server.url("/b"), "")));
    until("both are polled", || (host.target("a"), host.target("gone")), |(a, gone)| polled(a) && polled(gone));
    let events = host.events(Some(0));

    let renamed = a.replace("interval", "name = \"The A\"\ninterval");
    Host::configure(&folder, &format!("{renamed}{}", target("fresh", &server.url("/c"), "")));
    until("the new target is polled", || server.count("/c"), |count| *count == 1);
    let names = || {
        let listed = host.get("/api/v1/targets");
        listed["targets"].as_array().unwrap().iter().map(|target| target["name"].clone()).collect::<Vec<_>>()
    };
    until("both are listed", names, |names| *names == ["The A", "fresh"]);
    assert_eq!(server.count("/a"), 1, "a changed name does not cause a poll");
    // The order of the two events does not matter.
    let mut announced = std::collections::BTreeMap::new();
    while !(announced.contains_key("service:stopped") && announced.contains_key("settings:changed")) {
        let (_, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).expect("both events");
        announced.insert(name, payload);
    }
    assert_eq!(announced["service:stopped"]["serviceId"], "gone");
    assert!(announced["settings:changed"]["setting"].as_str().unwrap().ends_with("polliwog.toml"));
    let (_, metrics) = get(&host.metrics, "/metrics", None);
    assert!(!metrics.contains("instance=\"gone\""), "the series of a removed target disappear");

    Host::configure(&folder, &renamed.replace("interval", "intervall"));
    let seen = || host.get("/api/v1/settings")["problems"].clone();
    let problems = until("the problem is reported", seen, |problems| problems.as_array().unwrap().len() == 1);
    assert!(problems[0].as_str().unwrap().contains("did you mean \"interval\""), "{problems}");
    let (_, page) = get(&host.api, "/fragments/targets", Some(TOKEN));
    assert!(
        page.contains("could not be applied; the previous one is still active") && page.contains("did you mean"),
        "{page}"
    );
    assert_eq!(host.get("/api/v1/targets")["total"], 2, "nothing changed");
    let ready = get(&host.api, "/readyz", None).1;
    assert!(ready.contains("not all of the configuration is active: 1 problem"), "{ready}");
    assert!(get(&host.metrics, "/metrics", None).1.contains("polliwog_configuration_problems 1"));
    host.asked(&folder, &["settings", "set", "scheduler.base_interval", "20s"]);
    assert_eq!(seen(), problems, "the problem remains");

    // A changed URL makes it a new target without earlier state.
    Host::configure(&folder, &renamed.replace("/a\"", "/b\""));
    until("the new URL is polled", || server.count("/b"), |count| *count == 2);
    until("the problem is gone", seen, |problems| problems.as_array().unwrap().is_empty());
    until("the log line", || host.log.lock().unwrap().clone(), |log| log.contains("is valid again, and active"));
    let (_, page) = get(&host.api, "/settings", Some(TOKEN));
    assert!(page.contains("target.a.interval") && page.contains("scheduler.cadence"), "{page}");
    assert!(!page.contains("target.a.cadence"), "a default has no row: {page}");
}

#[test]
fn sighup_reloads_the_file_and_the_log_lists_the_changes() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let a = target("a", &server.url("/a"), "interval = \"60s\"");
    let environment = [("POLLIWOG_LOG_FORMAT", "json")];
    let gone = target("gone", &server.url("/b"), "");
    let host = Host::start_with(&folder, &format!("{a}{gone}"), &environment);
    let log = || host.log.lock().unwrap().clone();
    host.signal("HUP");
    until("the reload", log, |log| log.contains("was read again: nothing changed"));
    let new = target("fresh", &server.url("/b"), "");
    Host::configure(&folder, &format!("{}{new}", a.replace("60s", "30s")));
    let changes = "added fresh; removed gone; changed a (interval 1m is now 30s)";
    let all = until("the changes in the log", log, |log| log.contains(changes));
    host.asked(&folder, &["settings", "set", "scheduler.max_in_flight", "7"]);
    until("the setting and its client in the log", log, |log| {
        log.contains("the setting scheduler.max_in_flight is now 7")
            && log.contains("PUT \\\"/api/v1/settings/scheduler.max_in_flight\\\" by a program at 127.0.0.1: 200")
    });
    // The file's value has no effect while the setting overrides it.
    Host::configure(&folder, &format!("{}{new}[scheduler]\nmax_in_flight = 9\n", a.replace("60s", "30s")));
    until("the override in the log", log, |log| {
        log.contains("the change of scheduler.max_in_flight has no effect while a setting wins over it")
    });
    for line in all.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[test]
fn a_replaced_secret_is_applied_and_a_missing_one_changes_nothing() {
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
    // A replaced secret is applied without a change of the configuration.
    std::fs::write(&secret, "the second secret").unwrap();
    until("a poll with the second secret", || server.last("/a"), |head| head.contains("the second secret"));
    let seen = || host.get("/api/v1/settings")["problems"].clone();
    let is_fine = |problems: &Value| problems.as_array().unwrap().is_empty();
    std::fs::remove_file(&secret).unwrap();
    let problems = until("the problem is reported", seen, |problems| !is_fine(problems));
    assert!(problems[0].as_str().unwrap().contains("the secret \"token\""), "{problems}");
    std::fs::write(&secret, "the second secret").unwrap();
    until("the problem is gone", seen, is_fine);

    // A secret that is written after the configuration names it.
    Host::configure(&folder, &target("another"));
    until("the problem is reported", seen, |problems| !is_fine(problems));
    std::fs::write(folder.join("another"), "the third secret").unwrap();
    until("a poll with the third secret", || server.last("/a"), |head| head.contains("the third secret"));
    until("the problem is gone", seen, is_fine);
    assert_eq!(server.count("/a"), 3, "an unchanged secret does not cause a poll");
    host.asked(&folder, &["settings", "set", "scheduler.base_interval", "20s"]);
    let events = host.events(Some(0));
    let changed = || loop {
        let (_, name, payload) = events.recv_timeout(std::time::Duration::from_secs(60)).expect("an event");
        if name == "settings:changed" {
            return payload["setting"].clone();
        }
    };
    let changes = std::iter::from_fn(|| Some(changed()).filter(|setting| setting != "scheduler.base_interval"));
    assert_eq!(changes.count(), 2, "an unchanged secret does not cause an event");
}

#[test]
fn a_setting_that_no_longer_fits_becomes_inactive_and_the_others_stay_active() {
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
    // First while the host runs, then at a start.
    Host::configure(&folder, &config("18s"));
    let problems = |host: &Host| host.get("/api/v1/settings")["problems"].clone();
    until("one setting is inactive", || problems(&host), |problems| problems.as_array().unwrap().len() == 1);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config("18s"));
    let inactive = problems(&host);
    assert!(
        inactive[0].as_str().unwrap().starts_with("the setting target.a.interval = 15s is kept and not active"),
        "{inactive}"
    );
    assert_eq!(setting(&host, "scheduler.max_interval"), (json!("20s"), "setting".to_owned()));
    assert_eq!(host.target("b")["state"], "disabled", "`enabled` fits any file");
    // The setting can be unset, others can be changed, and it becomes active again with a file that it fits.
    host.asked(&folder, &["targets", "enable", "b"]);
    Host::configure(&folder, &config("5s"));
    until("it is active again", || setting(&host, "target.a.interval").1, |source| source == "setting");
    Host::configure(&folder, &config("18s"));
    until("it is inactive again", || problems(&host), |problems| problems.as_array().unwrap().len() == 1);
    host.asked(&folder, &["settings", "unset", "target.a.interval"]);
    assert_eq!(problems(&host), json!([]));
}

#[test]
fn an_empty_or_removed_file_changes_nothing_and_a_restored_target_keeps_its_state() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let a = target("a", &server.url("/a"), "");
    let both = format!("{a}{}", target("b", &server.url("/b"), ""));
    let host = Host::start(&folder, &both);
    until("both are polled", || (host.target("a"), host.target("b")), |(a, b)| polled(a) && polled(b));
    let problems = || host.get("/api/v1/settings")["problems"].to_string();
    Host::configure(&folder, "");
    until("the problem is reported", problems, |problems| problems.contains("no [[target]] any more"));
    assert_eq!(host.get("/api/v1/targets")["total"], 2);
    // Settings can be changed while the file has a problem.
    host.asked(&folder, &["settings", "set", "scheduler.rate_per_second", "50"]);
    std::fs::remove_file(folder.join("polliwog.toml")).unwrap();
    until("the problem is reported", problems, |problems| problems.contains("the file is gone"));
    Host::configure(&folder, &a);
    until("b is gone", || host.get("/api/v1/targets")["total"].clone(), |total| *total == 1);
    Host::configure(&folder, &both);
    let b = until("b is back", || host.get("/api/v1/targets")["targets"][1].clone(), |b| b["id"] == "b");
    assert_eq!(b["dependencies"]["ok"], 1, "its state is restored: {b}");
}

#[test]
fn results_from_the_old_url_are_discarded_after_a_url_change() {
    let (_keep, folder) = folder();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let slow: Answer = Arc::new(move |_| {
        let _ = held.lock().unwrap().recv();
        ok(r#"[{"name":"old","healthy":false}]"#)
    });
    let server = Server::start(vec![("/slow", slow), ("/new", healthy())]);
    let host = Host::start(&folder, &target("a", &server.url("/slow"), "timeout = \"60s\""));
    until("a request to the old URL", || server.count("/slow"), |count| *count == 1);
    Host::configure(&folder, &target("a", &server.url("/new"), "timeout = \"60s\""));
    let config = || host.target("a")["url"].clone();
    until("the change is applied", config, |url| url.as_str().unwrap().ends_with("/new"));
    release.send(()).unwrap();
    until("the new URL is polled", || host.target("a"), polled);
    let names = host.get("/api/v1/dependencies")["dependencies"].to_string();
    assert!(names.contains("\"db\"") && !names.contains("\"old\""), "{names}");
}

#[test]
fn apply_shows_the_changes_and_replaces_the_file_at_once() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let (url, other) = (server.url("/"), folder.join("next"));
    std::fs::create_dir(&other).unwrap();
    let before = format!("{}{}", target("a", &url, "interval = \"10s\""), target("gone", &url, ""));
    let host = Host::start(&folder, &before);
    let listen = std::fs::read_to_string(folder.join("polliwog.toml")).unwrap().replace(&before, "");
    let alias = "[[alias]]\nname = \"db\"\ncanonical = \"main\"\n";
    let after = format!("{}{}{alias}", target("a", &url, "interval = \"20s\""), target("fresh", &url, ""));
    let write = |text: &str| std::fs::write(other.join("polliwog.toml"), format!("{listen}{text}")).unwrap();
    write(&after.replace("20s", "20 s"));
    let (code, _, stderr) = host.command(&folder, &["apply", "next"]);
    assert!(code == 1 && stderr.contains("is not a duration") && stderr.contains("nothing was changed"), "{stderr}");
    write(&after);
    let (code, out, stderr) = host.command(&folder, &["apply", "next", "--dry-run"]);
    assert_eq!(code, 0, "{stderr}");
    let expected = [
        "~ target a: interval 10s is now 20s",
        "+ target fresh: proactive-deps at http://",
        "- target gone: proactive-deps at http://",
        "+ alias \"db\": \"main\"",
        "this was a dry run",
    ];
    for line in expected {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert_eq!(host.get("/api/v1/targets")["total"], 2, "a dry run changes nothing");
    let (code, out, stderr) = host.command(&folder, &["apply", "next"]);
    assert!(code == 0 && out.contains("was replaced"), "{out} {stderr}");
    until(
        "the host takes it over",
        || host.get("/api/v1/targets"),
        |found| found["targets"].as_array().unwrap().iter().any(|target| target["id"] == "fresh"),
    );
    let (_, out, _) = host.command(&folder, &["apply", "next"]);
    assert!(out.contains("nothing would change"), "{out}");
}
