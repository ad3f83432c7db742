//! The command line against a real server.

use crate::support::{Server, always, folder, ok, output, poll_json, polliwog};
use serde_json::json;
use std::fmt::Write;

fn dependencies(count: usize) -> String {
    let items: Vec<String> = (0..count).map(|n| format!("{{\"name\":\"d{n}\",\"healthy\":true}}")).collect();
    format!("[{}]", items.join(","))
}

#[test]
fn poll_prints_the_documented_json() {
    let (_keep, folder) = folder();
    let body = r#"[{"name":"db","healthy":true,"type":"database","health":{"state":1,"code":200,"latency":12},
        "lastChecked":"2026-02-21T10:30:00.000Z","contact":{"a":1},"error":[1]}]"#;
    let server = Server::start(vec![("/", always(ok(body)))]);
    let (code, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &server.url("/")]);
    assert_eq!(code, 1, "a warning");
    let mut expected = json!({
        "target": "ad-hoc", "kind": "proactive-deps", "plugin": { "kind": "proactive-deps", "version": "0.1.0" },
        "outcome": "success", "error": null, "requests": 1, "kept": [], "gone": [], "samples": [],
        "warnings": [],
        "dependencies": [{
            "name": "db", "title": null, "kind": "database", "status": "warning", "healthy": true, "skipped": false,
            "code": 200, "latencyMs": 12.0, "description": null, "impact": null, "error": [1], "errorMessage": null,
            "contact": { "a": 1 }, "checkDetails": null, "checkedAt": "2026-02-21T10:30:00.000Z", "parent": null,
            "runsOn": [], "independent": false, "link": null, "validForMs": null,
        }],
    });
    assert!(found["latencyMs"].as_f64().unwrap() > 0.0);
    expected["latencyMs"] = found["latencyMs"].clone();
    assert_eq!(found, expected);
}

#[test]
fn the_exit_code_is_the_worst_status() {
    let (_keep, folder) = folder();
    let item = |name: &str, state: &str| {
        format!("{{\"name\":\"{name}\",\"healthy\":true,\"health\":{{\"state\":\"{state}\"}}}}")
    };
    for (states, expected) in [
        (vec![], 3),
        (vec!["OK"], 0),
        (vec!["OK", "WARNING"], 1),
        (vec!["WARNING", "PURPLE"], 3),
        (vec!["PURPLE", "CRITICAL"], 2),
    ] {
        let items: Vec<String> = states.iter().enumerate().map(|(n, state)| item(&format!("d{n}"), state)).collect();
        let server = Server::start(vec![("/", always(ok(format!("[{}]", items.join(",")))))]);
        let (code, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &server.url("/")]);
        assert_eq!(code, expected, "{states:?}: {found}");
    }
}

#[test]
fn every_failure_is_one_clear_sentence_with_a_code() {
    let (_keep, folder) = folder();
    let mut huge = b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n".to_vec();
    huge.extend_from_slice(&vec![b' '; 1 << 20]);
    let server = Server::start(vec![
        ("/text", always(ok("<html>"))),
        ("/object", always(ok("{}"))),
        ("/many", always(ok(dependencies(25_001)))),
        ("/just", always(ok(dependencies(25_000)))),
        ("/huge", always(huge)),
        ("/401", always(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec())),
        ("/503", always(b"HTTP/1.1 503 No\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n".to_vec())),
    ]);
    for (url, outcome, code) in [
        (server.url("/text"), "transient", "not_json"),
        (server.url("/object"), "transient", "unexpected_shape"),
        (server.url("/many"), "permanent", "too_many_dependencies"),
        (server.url("/huge"), "permanent", "body_too_large"),
        (server.url("/401"), "misconfigured", "unauthorized"),
        (server.url("/503"), "transient", "server_error"),
        ("http://no-such-host.invalid/".to_owned(), "transient", "dns_not_found"),
        ("http://127.0.0.1:1/".to_owned(), "transient", "connect_refused"),
    ] {
        let (exit, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &url]);
        assert_eq!(
            (exit, found["outcome"].as_str().unwrap(), found["error"]["code"].as_str().unwrap()),
            (3, outcome, code),
            "{found}"
        );
        assert!(
            found["error"]["message"].as_str().unwrap().len() > 20 && found["dependencies"] == json!([]),
            "{found}"
        );
    }
    let (_, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &server.url("/503")]);
    assert_eq!(found["error"]["retryAfterMs"], 7000);
    let (code, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &server.url("/just")]);
    assert_eq!((code, found["dependencies"].as_array().unwrap().len()), (0, 25_000));
}

#[test]
fn a_fingerprint_mismatch_prints_the_expected_and_the_presented_fingerprint() {
    let (_keep, folder) = folder();
    let port = tls_server();
    let url = format!("https://localhost:{port}/");
    let wrong = "00".repeat(32);
    let (code, found) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &url, "--fingerprint", &wrong]);
    assert_eq!((code, found["outcome"].as_str().unwrap()), (3, "misconfigured"));
    let message = found["error"]["message"].as_str().unwrap();
    assert_eq!(found["error"]["code"], "tls_fingerprint_mismatch");
    let presented = message.split("has the fingerprint ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert!(message.contains("expected 00:00"), "{message}");
    let (code, _) = poll_json(&folder, &["--kind", "proactive-deps", "--url", &url, "--fingerprint", &presented]);
    assert_eq!(code, 0, "the printed fingerprint is correct");
    let (code, found) = poll_json(&folder, &["--kind", "http", "--url", &url, "--insecure"]);
    assert_eq!(code, 0, "{found}");
    assert_eq!(found["dependencies"][1]["name"], "certificate");
    let (code, found) = poll_json(&folder, &["--kind", "http", "--url", &url]);
    assert_eq!(
        (code, found["dependencies"][0]["error"]["code"].as_str().unwrap()),
        (2, "tls_untrusted"),
        "kind http reports the error as a dependency"
    );
}

/// A server with a self-signed certificate for "localhost".
pub(crate) fn tls_server() -> u16 {
    let of_localhost = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    tls_server_with(vec![of_localhost.cert.der().clone()], &of_localhost.signing_key)
}

/// Answers every request over TLS with one healthy dependency. Returns the port.
pub(crate) fn tls_server_with(chain: Vec<rustls::pki_types::CertificateDer<'static>>, key: &rcgen::KeyPair) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        runtime.block_on(async {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut buffer = [0; 4096];
                    while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {
                        let _ = stream.write_all(&ok(r#"[{"name":"a","healthy":true}]"#)).await;
                    }
                });
            }
        });
    });
    port
}

#[test]
fn secrets_reach_only_the_server() {
    let (_keep, folder) = folder();
    std::fs::write(folder.join("token"), "hunter2hunter2\n").unwrap();
    let server = Server::start(vec![("/", always(ok("your token is hunter2hunter2")))]);
    let settings = r#"{"headers":{"authorization":"Bearer ${secret.token}"},"body_contains":["hunter2"]}"#;
    let arguments =
        ["--kind", "http", "--url", &server.url("/"), "--settings", settings, "--secret", "token=file:token"];
    let (code, found) = poll_json(&folder, &arguments);
    assert_eq!(
        (code, found["dependencies"][1]["status"].as_str().unwrap()),
        (2, "critical"),
        "the plugin sees the masked secret: {found}"
    );
    assert!(!found.to_string().contains("hunter2hunter2"));
    let missing = ["poll", "--kind", "http", "--url", &server.url("/"), "--secret", "token=env:NOT_SET"];
    let (code, _, stderr) = output(&folder, &missing);
    assert!(code == 3 && stderr.contains("NOT_SET is not set"), "{stderr}");
    // A short value, which cannot be masked, must be permitted.
    std::fs::write(folder.join("pin"), "1234\n").unwrap();
    for (source, code_expected, word) in [("pin=file:pin", 3, ",short after it"), ("pin=file:pin,short", 0, "")] {
        let arguments = ["poll", "--kind", "http", "--url", &server.url("/"), "--secret", source];
        let (code, _, stderr) = output(&folder, &arguments);
        assert!(code == code_expected && stderr.contains(word), "{source}: {code} {stderr}");
    }
    // The same for kind mapping, whose settings may contain headers as well.
    let settings = r#"{"headers":{"x-token":"${secret.token}"},"fields":{"name":"n","healthy":"h"}}"#;
    let arguments =
        ["--kind", "mapping", "--url", &server.url("/"), "--settings", settings, "--secret", "token=file:token"];
    assert_eq!(poll_json(&folder, &arguments).1["error"]["code"], "not_json", "the request was sent");
}

#[test]
fn wrong_usage_exits_with_64_and_prints_a_remedy() {
    let (_keep, folder) = folder();
    let url = "http://127.0.0.1:1/";
    for (arguments, word) in [
        (vec!["poll"], "required"),
        (vec!["nonsense"], "unrecognized"),
        (vec!["poll", "--kind", "http"], "--url"),
        (vec!["poll", "--kind", "http", "--url", "ftp://x"], "http and https"),
        (vec!["poll", "--kind", "http", "--url", url, "--settings", "{"], "JSON"),
        (vec!["poll", "--kind", "http", "--url", url, "--settings", r#"{"colour":1}"#], "colour"),
        (vec!["poll", "--kind", "http", "--url", url, "--secret", "x=literal"], "never the value itself"),
        (vec!["poll", "--kind", "http", "--url", url, "--fingerprint", "12"], "64 hex digits"),
        (vec!["setup", "pve", "http://pve.example", "--secret", "token=env:PVE_TOKEN"], "would be sent in plain text"),
    ] {
        let (code, stdout, stderr) = output(&folder, &arguments);
        assert_eq!((code, stdout.as_str()), (64, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
    let (code, _, stderr) = output(&folder, &["poll", "--kind", "unheard-of", "--url", url]);
    assert!(code == 3 && stderr.contains("there are http, mapping, pbs, pmg, proactive-deps, pve"), "{stderr}");
    let (code, _, stderr) = output(&folder, &["run"]);
    assert!(code == 1 && stderr.contains("run --demo"), "{stderr}");
    // A command is never sent to the usual address because the file that names another cannot be read.
    std::fs::write(folder.join("polliwog.toml"), "[server\nlisten = \"127.0.0.1:1\"").unwrap();
    for arguments in [vec!["status"], vec!["status", "--config", "polliwog.toml"], vec!["status", "--config", "none"]] {
        let found = polliwog(&folder, &arguments).env_remove("POLLIWOG_URL").output().unwrap();
        let stderr = String::from_utf8(found.stderr).unwrap();
        assert!(stderr.contains("the address of the host is not known"), "{arguments:?}: {stderr}");
        assert_eq!(found.status.code(), Some(1));
    }
}

#[test]
fn check_names_every_problem_and_run_refuses_to_start() {
    let (_keep, folder) = folder();
    let config = r#"
[[target]]
id = "a"
kind = "http"
url = "http://127.0.0.1:1/"
settings = { expected_stats = [200] }
[[target]]
id = "b"
kind = "mapping"
url = "http://127.0.0.1:1/"
secrets = { token = { env = "NOT_SET" } }
[target.settings.fields]
name = "n"
[[target]]
id = "c"
kind = "not-yet"
url = "http://127.0.0.1:1/"
"#;
    std::fs::write(folder.join("polliwog.toml"), config).unwrap();
    let (code, stdout, _) = output(&folder, &["check"]);
    assert_eq!(code, 1, "{stdout}");
    for words in [
        "polliwog.toml:6: target a: settings: unknown key \"expected_stats\": did you mean \"expected_status\"?",
        "polliwog.toml:8: target b: the secret \"token\": the environment variable NOT_SET is not set",
        "polliwog.toml:12: target b: settings: fields: it needs healthy or severity",
        "polliwog.toml:15: target c: no plugin serves kind not-yet: there are http, mapping, pbs, pmg, proactive-deps, pve; copy one into",
        "4 problems",
    ] {
        assert!(stdout.contains(words), "{words} is not in\n{stdout}");
    }
    let (_, later, _) = output(&folder, &["check", "--allow-missing-plugins"]);
    assert!(later.contains("3 problems") && later.contains("(a warning)"), "{later}");
    // An error in the file does not hide other problems.
    std::fs::write(folder.join("two.toml"), format!("{config}lables = {{}}\n")).unwrap();
    let (_, both, _) = output(&folder, &["check", "--config", "two.toml"]);
    for words in ["two.toml:6: target a: settings:", "two.toml:18: unknown key \"lables\"", "5 problems"] {
        assert!(both.contains(words), "{words} is not in\n{both}");
    }
    let (code, _, stderr) = output(&folder, &["run", "--data-dir", "data"]);
    assert!(code == 1 && stderr.contains("3 problems in the configuration; nothing was started"), "{stderr}");
    assert!(!folder.join("data/admin-token").exists(), "a failed start does not generate a token");
    let (code, stdout, _) = output(&folder, &["check", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, found["problems"].as_array().unwrap().len(), found["warnings"].as_array().unwrap().len()),
        (1, 4, 0)
    );
    std::fs::write(
        folder.join("polliwog.toml"),
        "[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"http://127.0.0.1:1/\"\n",
    )
    .unwrap();
    let (code, stdout, _) = output(&folder, &["check"]);
    assert_eq!((code, stdout.as_str()), (0, "all is well: 1 target\n"));
}

/// Valid configuration that would fail at the first poll, or that is probably a mistake.
#[test]
fn check_reports_configurations_whose_first_poll_would_fail() {
    let (_keep, folder) = folder();
    let target =
        |more: &str| format!("[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"http://127.0.0.1:1/x\"\n{more}");
    let http = |settings: &str| target(&format!("[target.settings]\n{settings}"));
    let mapping = |root: &str| {
        let settings = format!("[target.settings]\nroot = {root:?}\nfields = {{ name = \"a\", healthy = \"b\" }}");
        target(&settings).replace("\"http\"", "\"mapping\"")
    };
    let checked = |config: &str| {
        std::fs::write(folder.join("polliwog.toml"), config).unwrap();
        output(&folder, &["check"])
    };
    for (config, expected) in [
        (http("headers = { x-api-key = \"${secret.key}\" }"), "headers.x-api-key: there is no secret"),
        (http("headers = { \"x y\" = \"a\" }"), "\"x y\" is not the name of a header"),
        (http("headers = { xy = \"a\\nb: c\" }"), "line break or control character"),
        (http("headers = { Host = \"shop.example\" }"), "host_header"),
        (target("[plugins.limits.http]\npath_prefixes = [\"/health\"]"), "its first poll would fail: the path /x"),
        (
            target("[plugins.limits.http]\nmemory_bytes = 1048576"),
            "its first poll would fail: the plugin used more than",
        ),
        (http("expected_status = 200"), "write [200]"),
        (http("method = \"PATCH\""), "\"GET\", \"HEAD\", \"POST\""),
        (mapping("$.a[*]"), "paths are written with dots, as \"a\""),
        (mapping("/checks"), "paths are written with dots, as \"checks\""),
        (target("interval = \"30\""), "write \"30s\""),
        (target("interval = 30"), "write \"30s\""),
        (target("").replace("http://127.0.0.1:1/x", "nas.lan:8080"), "its scheme is missing"),
        (target("labels = { \"a b\" = \"c\" }"), "is not a label name"),
        (target("host_header = \"a/b\""), "is not a host"),
        (
            target("[[alias]]\nname = \"a\"\ncanonical = \"b\"\n[[alias]]\nname = \"a\"\ncanonical = \"c\""),
            "keep one of the two",
        ),
    ] {
        let (code, stdout, stderr) = checked(&config);
        assert!(code == 1 && stdout.contains(expected), "{config}\n{expected}\n{stdout}{stderr}");
    }
    for (config, expected) in [
        (target("interval = \"5s\"\ntimeout = \"60s\""), "longer than its interval"),
        (target("tls = { insecure = true }"), "nothing is encrypted"),
        (String::new(), "nothing would be polled"),
        (target("[plugins]\ndir = \"nowhere\""), "no folder nowhere"),
    ] {
        let (code, stdout, stderr) = checked(&config);
        assert!(code == 0 && stdout.contains(expected), "{config}\n{expected}\n{stdout}{stderr}");
    }
    // A problem of one target does not hide the refused request of another.
    let other = target("settings = { colour = 1 }").replace("\"a\"", "\"b\"");
    let (_, both, _) = checked(&format!("{}\n{other}", http("headers = { \"x y\" = \"a\" }")));
    assert!(
        both.contains("is not the name of a header") && both.contains("colour") && both.contains("2 problems"),
        "{both}"
    );
    // All problems of a target are reported together.
    let broken = target("").replace("http://127.0.0.1:1/x", "nas.lan:8080").replace("\"http\"", "\"htpp\"");
    let (_, both, _) = checked(&format!("{broken}{}", target("").replace("\"http\"", "\"pvee\"")));
    for expected in
        ["its scheme is missing", "did you mean \"http\"", "two targets", "did you mean \"pve\"", "4 problems"]
    {
        assert!(both.contains(expected), "{expected}\n{both}");
    }
    checked(&target("[server]\nlisten = \"localhost:7411\""));
    let checked_with = |name: &str| {
        let found = polliwog(&folder, &["check"]).env(name, "127.0.0.1:1").output().unwrap();
        (found.status.code(), String::from_utf8(found.stdout).unwrap())
    };
    let (code, stdout) = checked_with("POLLIWOG_SERVER_LISTN");
    assert!(code == Some(1) && stdout.contains("did you mean POLLIWOG_SERVER_LISTEN?"), "{stdout}");
    assert_eq!(checked_with("POLLIWOG_SERVICE_HOST").0, Some(0), "Kubernetes sets this variable");
}

#[test]
fn a_golden_report_is_written_only_if_the_recording_has_every_answer() {
    let (_keep, folder) = folder();
    std::fs::create_dir(folder.join("recordings")).unwrap();
    let plugin = builtin::ALL.iter().find(|plugin| plugin.kind == "http").unwrap();
    std::fs::write(folder.join("http.wasm"), plugin.component).unwrap();
    let recording = |name: &str, settings: serde_json::Value, exchanges: serde_json::Value| {
        let target = json!({ "url": "http://127.0.0.1:1/", "settings": settings, "now": 1, "timeoutMs": 1000 });
        let text = json!({ "kind": "http", "target": target, "exchanges": exchanges }).to_string();
        std::fs::write(folder.join("recordings").join(name), text).unwrap();
    };
    let request = json!({ "method": "GET", "url": "http://127.0.0.1:1/" });
    // The kind `http` reports a missing answer as a dependency and not as a failure.
    recording("missing.json", json!({}), json!([]));
    let (code, stdout, stderr) = output(&folder, &["plugin", "test", "http.wasm", "--update"]);
    assert!(code == 1 && stdout.contains("GET http://127.0.0.1:1/ was requested but not recorded"), "{stdout}{stderr}");
    assert!(!folder.join("recordings/missing.report.json").exists());
    std::fs::remove_file(folder.join("recordings/missing.json")).unwrap();
    let error = json!({ "class": "invalid_argument", "code": "secret_unknown", "message": "m", "retryable": false });
    let settings = json!({ "headers": { "x-api-key": "${secret.nope}" } });
    recording("refused.json", settings, json!([{ "request": request, "error": error }]));
    for arguments in [vec!["plugin", "test", "http.wasm", "--update"], vec!["plugin", "test", "http.wasm"]] {
        let (code, stdout, stderr) = output(&folder, &arguments);
        assert_eq!(code, 0, "a refused request was recorded too: {stdout}{stderr}");
    }
}

#[test]
fn plugins_are_listed_and_inspected() {
    let (_keep, folder) = folder();
    let plugins = folder.join(".local/share/polliwog/plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("cached.wasm"), tests::guests::CACHED).unwrap();
    std::fs::write(plugins.join("half.wasm"), &tests::guests::CACHED[..5000]).unwrap();
    std::fs::write(plugins.join("loop-1.wasm"), tests::guests::ENDLESS_LOOP).unwrap();
    std::fs::write(plugins.join("loop-2.wasm"), tests::guests::ENDLESS_LOOP).unwrap();
    std::fs::create_dir(plugins.join("folder.wasm")).unwrap();
    let (code, stdout, stderr) = output(&folder, &["plugin", "list", "--json"]);
    assert!(code == 0 && stderr.contains("no running host answers"), "{stderr}");
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let mut lines = String::new();
    for plugin in found["plugins"].as_array().unwrap() {
        let source = plugin["source"].as_str().unwrap().rsplit('/').next().unwrap();
        let refused = if plugin["refusal"].is_null() { "serves" } else { "refused" };
        writeln!(lines, "{} {source} {refused}", plugin["kind"].as_str().unwrap_or("-")).unwrap();
    }
    let built_in = |kind: &str| format!("{kind} built-in serves\n");
    let before = ["alertmanager"].map(built_in).concat();
    let after = [
        "discord",
        "gotify",
        "http",
        "mapping",
        "matrix",
        "ntfy",
        "pagerduty",
        "pbs",
        "pmg",
        "proactive-deps",
        "pushover",
        "pve",
        "slack",
        "teams",
        "telegram",
        "webhook",
    ];
    let refused = "- folder.wasm refused\n- half.wasm refused\n- loop-1.wasm refused\n- loop-2.wasm refused\n";
    let expected = format!("{before}cached cached.wasm serves\n{}{refused}", after.map(built_in).concat());
    assert_eq!(lines, expected);

    let file = plugins.join("cached.wasm");
    let (code, stdout, _) = output(&folder, &["plugin", "inspect", file.to_str().unwrap(), "--json"]);
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, found["kind"].as_str().unwrap(), found["contract"].as_str().unwrap()),
        (0, "cached", "polliwog:plugin@0.1")
    );
    assert_eq!(found["size"].as_u64().unwrap(), tests::guests::CACHED.len() as u64);
    let (code, stdout, _) = output(&folder, &["plugin", "inspect", plugins.join("half.wasm").to_str().unwrap()]);
    assert!(code == 1 && stdout.contains("refused (not_valid)"), "{stdout}");
    let (code, stdout, _) = output(&folder, &["plugin", "inspect", "nowhere.wasm", "--json"]);
    assert!(code == 1 && stdout.contains("unreadable"), "{stdout}");
}
