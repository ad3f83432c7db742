//! Plugins while the host runs: added, replaced, broken, removed, quarantined.

use crate::support::{Host, Server, TOKEN, always, folder, get, ok, output, send, until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tests::wat;

pub(crate) fn target(id: &str, kind: &str, url: &str) -> String {
    format!("[[target]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"{url}\"\ninterval = \"5s\"\n")
}

/// Builds a plugin that reports one dependency.
fn reporting(kind: &str, version: &str) -> Vec<u8> {
    wat::plugin(kind, version, &format!("(func $poll (type $poll) i32.const {})", wat::DEPENDENCY))
}

fn trapping(kind: &str, version: &str) -> Vec<u8> {
    wat::plugin(kind, version, "(func $poll (type $poll) unreachable)")
}

pub(crate) fn plugin_folder(folder: &Path) -> PathBuf {
    let plugins = folder.join("data/plugins");
    fs::create_dir_all(&plugins).unwrap();
    plugins
}

fn plugins(host: &Host) -> Vec<Value> {
    host.get("/api/v1/plugins")["plugins"].as_array().unwrap().clone()
}

/// Returns the plugin that serves a kind.
fn serves(host: &Host, kind: &str) -> Option<Value> {
    plugins(host).into_iter().find(|plugin| plugin["kind"] == kind)
}

pub(crate) fn version(host: &Host, kind: &str) -> Option<String> {
    Some(serves(host, kind)?["version"].as_str()?.to_owned())
}

/// Returns why a file is refused; `None` if it is not refused.
pub(crate) fn refusal(host: &Host, file: &str) -> Option<String> {
    let of = |plugin: &Value| plugin["source"].as_str().is_some_and(|source| source.ends_with(&format!("/{file}")));
    let refused = plugins(host).into_iter().find(|plugin| of(plugin) && !plugin["refusal"].is_null());
    Some(refused?["refusal"].as_str()?.to_owned())
}

pub(crate) fn until_version(host: &Host, kind: &str, wanted: Option<&str>) {
    until(&format!("{kind} is {wanted:?}"), || version(host, kind), |version| version.as_deref() == wanted);
}

pub(crate) fn until_refused(host: &Host, file: &str, word: &str) {
    let refused = |found: &Option<String>| found.as_ref().is_some_and(|why| why.contains(word));
    until(&format!("{file} is refused: {word}"), || refusal(host, file), refused);
}

fn until_state(host: &Host, id: &str, state: &str) {
    until(&format!("{id} is {state}"), || host.target(id)["state"].clone(), |found| found == state);
}

pub(crate) fn until_polled(host: &Host, id: &str) {
    until(&format!("{id} is polled"), || host.target(id)["lastSuccess"].clone(), |at| !at.is_null());
}

#[test]
fn a_plugin_can_be_added_replaced_broken_and_removed_while_the_host_runs() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let server = Server::start(vec![("/", always(ok("")))]);
    let host = Host::start(&folder, &target("a", "written", &server.url("/")));
    until_state(&host, "a", "no_plugin");

    fs::write(plugins.join("w.wasm"), reporting("written", "1.0.0")).unwrap();
    until_version(&host, "written", Some("1.0.0"));
    until_polled(&host, "a");

    // Replace the file by renaming, then by writing in place.
    fs::write(plugins.join("w.new"), reporting("written", "2.0.0")).unwrap();
    fs::rename(plugins.join("w.new"), plugins.join("w.wasm")).unwrap();
    until_version(&host, "written", Some("2.0.0"));
    fs::write(plugins.join("w.wasm"), reporting("written", "3.0.0")).unwrap();
    until_version(&host, "written", Some("3.0.0"));

    // An invalid version only changes the refusal of its file.
    for (content, word) in [
        (&b""[..], "empty"),
        (&reporting("written", "4.0.0")[..2000], "compile"),
        (b"\0asm\x01\0\0\0", "core"),
        (&trapping("Not A Kind", "4.0.0"), "its kind is not valid"),
        (&wat::plugin("written", "4.0.0", "(func $describe (type $describe) unreachable)"), "describe failed"),
    ] {
        fs::write(plugins.join("w.wasm"), content).unwrap();
        until_refused(&host, "w.wasm", word);
        assert!(refusal(&host, "w.wasm").unwrap().contains("3.0.0, continues to serve"), "{word}");
        assert_eq!(version(&host, "written").as_deref(), Some("3.0.0"));
    }
    let before = host.target("a")["lastPolled"].clone();
    host.asked(&folder, &["targets", "poll", "a"]);
    until("another poll of a", || host.target("a"), |target| target["lastPolled"] != before);
    assert!(host.target("a")["lastError"].is_null());

    // The refusal survives a restart.
    let refused_before = refusal(&host, "w.wasm").unwrap();
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &target("a", "written", &server.url("/")));
    assert_eq!(version(&host, "written").as_deref(), Some("3.0.0"), "{refused_before}");
    assert!(refusal(&host, "w.wasm").unwrap().contains("3.0.0, continues to serve"));

    fs::remove_file(plugins.join("w.wasm")).unwrap();
    until_state(&host, "a", "no_plugin");
    until_version(&host, "written", None);
    until("it is not refused any more", || refusal(&host, "w.wasm"), Option::is_none);
    fs::write(plugins.join("again.wasm"), reporting("written", "5.0.0")).unwrap();
    until_version(&host, "written", Some("5.0.0"));
    until("a is polled again", || host.target("a")["state"].clone(), |state| state != "no_plugin");

    // One event for each invalid version, and one more for the last at the start.
    let (events, mut announced) = (host.events(Some(0)), Vec::new());
    let mut count = |wanted: &str| {
        announced.extend(events.try_iter().map(|(_, name, _)| name));
        announced.iter().filter(|name| *name == wanted).count()
    };
    until("all events", || (count("plugin:loaded"), count("plugin:refused")), |counts| *counts == (4, 6));
}

#[test]
fn a_second_file_of_a_kind_is_refused_and_serves_after_the_first_is_removed() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let config = target("a", "written", "http://127.0.0.1:9/");
    let host = Host::start(&folder, &config);
    fs::write(plugins.join("w.wasm"), reporting("written", "1.0.0")).unwrap();
    until_version(&host, "written", Some("1.0.0"));
    fs::write(plugins.join("W.wasm"), reporting("written", "2.0.0")).unwrap();
    until_refused(&host, "W.wasm", "w.wasm already serves kind written");
    // At the next start the file that served last serves, although the other name sorts first.
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config);
    assert_eq!(version(&host, "written").as_deref(), Some("1.0.0"));
    fs::remove_file(plugins.join("w.wasm")).unwrap();
    until_version(&host, "written", Some("2.0.0"));

    // A symbolic link is followed, and its destination may change.
    fs::remove_file(plugins.join("W.wasm")).unwrap();
    until_version(&host, "written", None);
    for version in ["3.0.0", "4.0.0"] {
        fs::write(folder.join(version), reporting("written", version)).unwrap();
        symlink(folder.join(version), plugins.join("link.new")).unwrap();
        fs::rename(plugins.join("link.new"), plugins.join("link.wasm")).unwrap();
        until_version(&host, "written", Some(version));
    }
}

#[test]
fn a_version_that_does_not_fit_the_targets_is_refused_until_their_settings_change() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let config =
        |settings: &str| format!("{}[target.settings]\n{settings}\n", target("a", "written", "http://127.0.0.1:9/"));
    let host = Host::start(&folder, &config("limit = 5"));
    fs::write(plugins.join("w.wasm"), reporting("written", "1.0.0")).unwrap();
    until_refused(&host, "w.wasm", "unknown key \"limit\"");
    until_state(&host, "a", "no_plugin");
    Host::configure(&folder, &config(""));
    // A refused file is checked again after the configuration changes.
    until_version(&host, "written", Some("1.0.0"));
}

#[test]
fn a_file_that_does_not_fit_the_targets_does_not_prevent_a_start() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let server = Server::start(vec![("/", always(ok("Welcome")))]);
    let config = format!(
        "{}[target.settings]\nbody_contains = [\"Welcome\"]\n{}[plugins]\ntrust = [\"http.wasm\"]\n",
        target("web", "http", &server.url("/")),
        target("a", "written", &server.url("/"))
    );
    fs::write(plugins.join("good.wasm"), reporting("written", "1.0.0")).unwrap();
    // A file of a built-in kind that does not have this setting.
    fs::write(plugins.join("http.wasm"), reporting("http", "9.9.9")).unwrap();
    // At the first start the file is new; at the second start it is compiled.
    for _ in 0..2 {
        let host = Host::start(&folder, &config);
        until_refused(&host, "http.wasm", "body_contains");
        assert_eq!(serves(&host, "http").unwrap()["source"], "built-in");
        until_version(&host, "written", Some("1.0.0"));
        until_polled(&host, "web");
        assert_eq!(host.terminate(), 0);
    }
    // A problem that remains without the file is not caused by it.
    let listening = "[server]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n";
    fs::write(folder.join("polliwog.toml"), config.replace("body_contains", "nonsense") + listening).unwrap();
    let (code, _, stderr) = output(&folder, &["run", "--data-dir", "data"]);
    assert!(code == 1 && stderr.contains("nonsense"), "{stderr}");
}

#[test]
fn a_file_takes_over_a_kind_with_targets_only_after_plugin_accept() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let server = Server::start(vec![("/", always(ok("Welcome")))]);
    let host = Host::start(&folder, &target("web", "http", &server.url("/")));
    fs::write(plugins.join("http.wasm"), reporting("http", "9.9.9")).unwrap();
    // A kind without targets can be taken over without `plugin accept`.
    fs::write(plugins.join("pve.wasm"), reporting("pve", "8.8.8")).unwrap();
    until_refused(&host, "http.wasm", "polliwog plugin accept http.wasm");
    until_version(&host, "pve", Some("8.8.8"));
    assert_eq!(serves(&host, "http").unwrap()["source"], "built-in");
    let (code, stdout, stderr) = output(&folder, &["plugin", "accept", "http.wasm", "--data-dir", "data"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    until_version(&host, "http", Some("9.9.9"));
    // A new version of the serving file needs no acceptance either.
    fs::write(plugins.join("http.wasm"), reporting("http", "10.0.0")).unwrap();
    until_version(&host, "http", Some("10.0.0"));
}

#[test]
fn a_thousand_files_at_once_are_all_checked() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    let host = Host::start(&folder, &target("a", "written", "http://127.0.0.1:9/"));
    let (good, bad) = (reporting("written", "1.0.0"), b"no plugin".to_vec());
    for number in 0..1000 {
        let content = if number == 500 { &good } else { &bad };
        fs::write(plugins.join(format!("{number:04}.wasm")), content).unwrap();
    }
    until_version(&host, "written", Some("1.0.0"));
    let refused = || plugins_refused(&host);
    until("all are checked", refused, |count| *count == 999);
    let metrics = get(&host.metrics, "/metrics", None).1;
    assert!(metrics.contains("polliwog_plugins_refused 999.0"), "{metrics}");
}

fn plugins_refused(host: &Host) -> usize {
    plugins(host).iter().filter(|plugin| !plugin["refusal"].is_null()).count()
}

#[test]
fn a_plugin_whose_polls_all_fail_is_quarantined_until_its_file_changes() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    fs::write(plugins.join("w.wasm"), trapping("written", "1.0.0")).unwrap();
    let server = Server::start(vec![("/", always(ok(r#"[{"name":"db","healthy":true}]"#)))]);
    let mut config: String = (0..6).map(|n| target(&format!("t{n}"), "written", "http://127.0.0.1:9/")).collect();
    config.push_str(&target("honest", "proactive-deps", &server.url("/")));
    let host = Host::start(&folder, &config);
    let quarantined =
        |plugin: &Option<Value>| plugin.as_ref().is_some_and(|plugin| !plugin["quarantinedUntil"].is_null());
    until("it is quarantined", || serves(&host, "written"), quarantined);
    let states: Vec<Value> = (0..6).map(|n| host.target(&format!("t{n}"))["state"].clone()).collect();
    assert!(states.iter().filter(|state| **state == "quarantined").count() >= 5, "{states:?}");
    let plugin = serves(&host, "written").unwrap();
    assert_eq!(plugin["faultsByReason"], json!({ "panic": plugin["faults"] }));
    assert!(host.events(Some(0)).iter().any(|(_, name, _)| name == "plugin:quarantined"));
    let (_, explained, _) = host.command(&folder, &["explain", "t0"]);
    assert!(explained.contains("quarantine"), "{explained}");
    until_polled(&host, "honest");
    let metrics = get(&host.metrics, "/metrics", None).1;
    assert!(metrics.contains(r#"polliwog_plugin_quarantined{instance_type="written"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"polliwog_plugin_faults_total{instance_type="written",reason="panic"}"#), "{metrics}");

    let (status, ready) = get(&host.api, "/readyz", None);
    assert!(
        status == 200 && ready.contains("not polled: no plugin serves kind written, or it is in quarantine"),
        "{ready}"
    );
    let polls = || serves(&host, "written").unwrap()["polls"].as_u64().unwrap();
    let before = polls();
    let (code, stdout, stderr) = host.command(&folder, &["plugin", "retry", "written"]);
    assert!(code == 0 && stdout.contains("is polled now"), "{stdout}{stderr}");
    until("the plugin is probed", polls, |polls| *polls > before);

    fs::write(plugins.join("w.wasm"), reporting("written", "2.0.0")).unwrap();
    for n in 0..6 {
        until_polled(&host, &format!("t{n}"));
    }
    assert_eq!(get(&host.api, "/readyz", None), (200, "ready\n".to_owned()));
    assert!(serves(&host, "written").unwrap()["quarantinedUntil"].is_null());
    assert!(
        host.events(Some(0)).iter().any(|(_, name, about)| name == "plugin:released" && about["plugin"] == "written")
    );
}

/// A plugin's upgrade leaves no gap: the previous version serves until the new file is compiled.
#[test]
fn a_start_serves_the_previous_version_until_the_new_file_is_compiled() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    fs::write(plugins.join("w.wasm"), reporting("written", "1.0.0")).unwrap();
    let config = target("a", "written", "http://127.0.0.1:9/");
    let host = Host::start(&folder, &config);
    until_polled(&host, "a");
    assert_eq!(host.terminate(), 0);
    fs::write(plugins.join("w.wasm"), reporting("written", "2.0.0")).unwrap();
    let host = Host::start(&folder, &config);
    until(
        "the new version serves",
        || serves(&host, "written"),
        |plugin| plugin.as_ref().is_some_and(|plugin| plugin["version"] == "2.0.0"),
    );
    let log = host.log.lock().unwrap().clone();
    assert!(log.contains("w.wasm is being compiled while the host runs"), "{log}");
    assert!(!log.contains("no plugin serves kind written"), "there was a gap: {log}");
}

/// A fixed plugin polls failed targets immediately instead of after the 30 minutes of a dead letter.
#[test]
fn a_new_version_polls_failed_targets_immediately() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    fs::write(plugins.join("f.wasm"), tests::guests::FAILS_ODDLY).unwrap();
    let config = format!("[scheduler]\nprofile = \"pulse\"\n{}", target("a", "fails-oddly", "http://127.0.0.1:9/"));
    let host = Host::start(&folder, &config);
    until("it is a dead letter", || host.target("a"), |target| !target["deadLetter"].is_null());
    fs::write(plugins.join("f.wasm"), reporting("fails-oddly", "9.0.0")).unwrap();
    until_polled(&host, "a");
    until("it is no longer a dead letter", || host.target("a"), |target| target["deadLetter"].is_null());
}

#[test]
fn what_a_plugin_stores_outlives_the_host() {
    let (_keep, folder) = folder();
    let plugins = plugin_folder(&folder);
    fs::write(plugins.join("c.wasm"), tests::guests::STORES_A_COUNT).unwrap();
    let config = format!(
        "[scheduler]\nmin_interval = \"200ms\"\n{}interval = \"200ms\"\n",
        target("a", "stores-a-count", "http://127.0.0.1:9/").replace("interval = \"5s\"\n", "")
    );
    let count =
        |host: &Host| host.get("/api/v1/dependencies?target=a")["dependencies"][0]["code"].as_i64().unwrap_or(0);
    let host = Host::start(&folder, &config);
    let seen = until("some polls", || count(&host), |count| *count >= 3);
    // Every poll changes the status, so that its count is on disk before it is shown.
    host.kill();
    let host = Host::start(&folder, &config);
    let first = until("it is polled again", || count(&host), |count| *count > 0);
    assert!(first >= seen, "{first} after {seen}");
    let seen = until("another poll", || count(&host), |count| *count > first);
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config);
    let last = until("it is polled again", || count(&host), |count| *count > 0);
    assert!(last >= seen, "{last} after {seen}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn usage_is_counted_by_kind_and_operator_limits_apply() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/allowed/x", always(ok("fine"))), ("/other", always(ok("fine")))]);
    fs::write(folder.join("token"), "a-very-secret-token").unwrap();
    let secret = "secrets = { token = { file = \"token\" } }\n[target.settings]\nheaders = { x-token = \"${secret.token}\" }\nbody_contains = [\"fine\"]\n";
    let config = format!(
        "[plugins.limits.http]\nmethods = [\"get\"]\npath_prefixes = [\"/allowed\"]\nrequests = 7\n{}{secret}{}{}[target.settings]\nmethod = \"HEAD\"\n",
        target("a", "http", &server.url("/allowed/x")),
        target("b", "http", &server.url("/other")),
        target("c", "http", &server.url("/allowed/x")),
    );
    let host = Host::start(&folder, &config);
    until_polled(&host, "a");
    for id in ["b", "c"] {
        let denied = |target: &Value| target["lastError"]["code"] == "denied";
        until(&format!("{id} is denied"), || host.target(id), denied);
    }
    assert_eq!(server.count("/other"), 0);
    let used = serves(&host, "http").unwrap();
    assert!(used["polls"].as_u64().unwrap() >= 3 && used["requests"].as_u64().unwrap() >= 3, "{used}");
    assert!(used["cpuMs"].as_f64().unwrap() > 0.0 && used["peakMemoryBytes"].as_u64().unwrap() > 0, "{used}");
    assert!(used["bodyBytes"].as_u64().unwrap() >= 4 && used["secrets"]["token"].as_u64().unwrap() >= 1, "{used}");
    let (_, listed, _) = host.command(&folder, &["plugin", "list"]);
    assert!(listed.contains("secrets used: token"), "{listed}");
    let (code, stdout, stderr) = output(&folder, &["poll", "b"]);
    assert!(code == 3 && stdout.contains("plugins.limits"), "{stdout}{stderr}");
}

#[test]
fn compiled_code_is_reused_and_tampered_code_is_compiled_again() {
    let (_keep, folder) = folder();
    plugin_folder(&folder);
    let config = target("a", "http", "http://127.0.0.1:9/");
    assert_eq!(Host::start(&folder, &config).terminate(), 0);
    let kept = || -> Vec<PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(folder.join("data/compiled")).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    };
    let (files, victim) = (kept(), kept().remove(0));
    assert!(files.iter().all(|file| file.extension().is_some_and(|extension| extension == "cwasm")), "{files:?}");
    fs::rename(&victim, folder.join("original")).unwrap();
    let mut code = fs::read(folder.join("original")).unwrap();
    let middle = code.len() / 2;
    code[middle] ^= 1;
    fs::write(&victim, code).unwrap();
    let host = Host::start(&folder, &config);
    assert!(host.log.lock().unwrap().contains("was not written by this host"));
    assert_eq!(plugins_refused(&host), 0);
    assert_eq!(kept().len(), files.len());
}

#[test]
fn an_administrator_adds_replaces_and_removes_plugin_files_through_the_api() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", always(ok("")))]);
    let host = Host::start(&folder, &target("a", "written", &server.url("/")));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let change = |method: &str, file: &str, content: &[u8]| {
        send(&host.api, (method, &format!("/api/v1/plugins/{file}")), &bearer(TOKEN), content)
    };
    let (status, body) = change("PUT", "w.wasm", &reporting("written", "1.0.0"));
    assert_eq!(status, 202, "{body}");
    until_version(&host, "written", Some("1.0.0"));
    until_polled(&host, "a");
    assert_eq!(change("PUT", "w.wasm", &reporting("written", "2.0.0")).0, 202);
    until_version(&host, "written", Some("2.0.0"));
    // A file that the watcher refuses leaves the earlier version in service, as with a copied file.
    assert_eq!(change("PUT", "w.wasm", &trapping("Not A Kind", "3.0.0")).0, 202);
    until_refused(&host, "w.wasm", "its kind is not valid");
    assert_eq!(version(&host, "written").as_deref(), Some("2.0.0"));

    for (file, content, word) in [
        ("x.wasm", &b"#!/bin/sh"[..], "not a WebAssembly file"),
        ("x.wasm", b"", "empty"),
        ("x.txt", b"\0asm", "end in .wasm"),
        ("..%2Fx.wasm", b"\0asm", "without /"),
    ] {
        let (status, body) = change("PUT", file, content);
        assert!(status == 400 && body.contains(word), "{file}: {status} {body}");
    }
    assert_eq!(change("DELETE", "absent.wasm", b"").0, 404);
    let made = send(&host.api, ("POST", "/api/v1/tokens"), &bearer(TOKEN), r#"{"name":"o","scope":"operate"}"#).1;
    let made: Value = serde_json::from_str(&made).unwrap();
    let operator = bearer(made["token"].as_str().unwrap());
    let (status, body) = send(&host.api, ("DELETE", "/api/v1/plugins/w.wasm"), &operator, "");
    assert!(status == 403 && plugin_folder(&folder).join("w.wasm").exists(), "{status} {body}");

    assert_eq!(change("DELETE", "w.wasm", b"").0, 200);
    until_version(&host, "written", None);
    until_state(&host, "a", "no_plugin");
}
