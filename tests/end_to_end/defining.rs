//! Targets that are made, changed and deleted while the host runs.

use crate::operating::{healthy, polled, target};
use crate::support::{Host, Server, TOKEN, folder, send, until};
use serde_json::{Value, json};

/// Private networks that targets made through the API may reach, and a secret for one origin.
fn permissions(origin: &str) -> String {
    format!(
        "[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]\n[secrets]\nkey = {{ env = \"KEY\", kinds = [\"proactive-deps\"], \
         origins = [\"{origin}\"] }}\n"
    )
}

/// Sends a request with the admin token. Returns status and body.
fn ask(host: &Host, request: (&str, &str), body: &Value) -> (u16, Value) {
    let (status, answer) = send(&host.api, request, &format!("Authorization: Bearer {TOKEN}\r\n"), body.to_string());
    (status, serde_json::from_str(&answer).unwrap())
}

#[test]
fn a_target_made_through_the_api_is_polled_changed_kept_and_deleted() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let start = || Host::start_with(&folder, &permissions(&server.url("/")), &[("KEY", "a-secret-for-tests")]);
    let host = start();
    let made = json!({
        "id": "web", "kind": "proactive-deps", "url": server.url("/a"), "name": "Web", "minInterval": "7s",
        "labels": { "site": "zurich" }, "secrets": { "token": "key" },
        "settings": { "headers": { "x-key": "${secret.token}" } },
    });
    let (status, answer) = ask(&host, ("POST", "/api/v1/targets"), &made);
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["minInterval"], "7s", "{answer}");
    assert_eq!(ask(&host, ("GET", "/api/v1/targets/web/definition"), &Value::Null), (200, answer));
    let web = until("it is polled", || get(&host, "web"), polled);
    assert_eq!((&web["source"], &web["name"]), (&json!("api"), &json!("Web")), "{web}");
    assert!(server.last("/a").contains("x-key: a-secret-for-tests"), "{}", server.last("/a"));

    // It has settings like the others, and survives a kill.
    assert_eq!(ask(&host, ("PATCH", "/api/v1/targets/web"), &json!({ "interval": "30s" })).0, 200);
    host.kill();
    let host = start();
    until("it is polled after the restart", || get(&host, "web"), polled);
    let interval = host.get("/api/v1/settings/target.web.interval");
    assert_eq!((&interval["value"], &interval["source"]), (&json!("30s"), &json!("setting")));

    let (status, answer) = ask(
        &host,
        ("PUT", "/api/v1/targets/web"),
        &json!({ "kind": "proactive-deps", "url": server.url("/b"), "enabled": true }),
    );
    assert_eq!(status, 200, "{answer}");
    until("its new URL is polled", || server.count("/b"), |count| *count > 0);
    assert_eq!(host.command(&folder, &["targets", "remove", "web"]).1.trim(), "web is deleted");
    until("it is gone", || ask(&host, ("GET", "/api/v1/targets/web"), &Value::Null).0, |status| *status == 404);
    assert_eq!(ask(&host, ("GET", "/api/v1/settings/target.web.interval"), &Value::Null).0, 404);
    host.kill();
    let host = start();
    assert_eq!(host.get("/api/v1/targets")["total"], 0, "a deleted target does not come back");
}

fn get(host: &Host, id: &str) -> Value {
    ask(host, ("GET", &format!("/api/v1/targets/{id}")), &Value::Null).1
}

#[test]
fn a_definition_that_is_not_permitted_or_not_valid_changes_nothing_and_says_why() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy())]);
    let config = permissions("http://elsewhere.example/") + &target("filed", &server.url("/a"), "");
    let host = Host::start_with(&folder, &config, &[("KEY", "a-secret-for-tests")]);
    let url = server.url("/a");
    let (post, other) = (("POST", "/api/v1/targets"), ("PUT", "/api/v1/targets/other"));
    let web = |more: Value| {
        let mut body = json!({ "id": "web", "kind": "proactive-deps", "url": url });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (request, body, status, expected) in [
        (post, web(json!({ "id": "filed" })), 409, "filed is defined in "),
        (post, web(json!({ "id": "UPPER" })), 400, "UPPER"),
        (post, json!({ "kind": "http", "url": url }), 400, "a target needs an id"),
        (post, json!({ "id": "web", "kind": "http" }), 400, "missing field `url`"),
        (post, web(json!({ "uri": 1 })), 400, "unknown field `uri`"),
        (post, web(json!({ "url": "no url" })), 400, "url: "),
        (post, web(json!({ "interval": "1s" })), 400, "interval: "),
        (post, web(json!({ "settings": { "pth": "/" } })), 400, "pth"),
        (
            post,
            web(json!({ "secrets": { "token": "kez" } })),
            400,
            "[secrets] in the file has no \"kez\": did you mean \"key\"?",
        ),
        (
            post,
            web(json!({ "secrets": { "token": "key" } })),
            400,
            "the secret \"key\" may not be sent to http://127.0.0.1",
        ),
        (
            post,
            web(json!({ "kind": "http", "secrets": { "token": "key" } })),
            400,
            "the secret \"key\" may be used for kind proactive-deps only",
        ),
        (post, web(json!({ "secrets": { "token": { "env": "HOME" } } })), 400, "invalid type: map"),
        (other, web(json!({ "id": "other" })), 404, "there is no target \"other\""),
        (other, web(json!({})), 400, "the id of a target cannot be changed"),
        (("DELETE", "/api/v1/targets/filed"), Value::Null, 409, "filed is defined in "),
        (("GET", "/api/v1/targets/filed/definition"), Value::Null, 409, "filed is defined in "),
    ] {
        let (seen, answer) = ask(&host, request, &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(seen == status && message.contains(expected), "{request:?} {body}: {seen} {answer}");
    }
    assert_eq!(host.get("/api/v1/targets")["total"], 1);
    let (code, _, why) = host.command(&folder, &["targets", "add", "web", "--kind", "htpp", "--url", &url]);
    assert_eq!(code, 0, "a kind without a plugin is accepted as in the file: {why}");
    assert_eq!(ask(&host, post, &web(json!({}))).0, 409, "the id is taken");
}

#[test]
fn private_networks_are_reached_only_if_the_file_lists_them() {
    for is_running in [true, false] {
        let (_keep, folder) = folder();
        let server = Server::start(vec![("/a", healthy())]);
        let mut host = Host::start(&folder, "");
        let url = server.url("/a");
        let add = ["targets", "add", "web", "--kind", "proactive-deps", "--url", &url, "--interval", "1h"];
        let (code, said, why) = host.command(&folder, &add);
        assert_eq!((code, said.trim()), (0, "web is polled: `polliwog targets show web`"), "{why}");
        let refused = |target: &Value| target["lastError"]["code"] == "denied";
        let web = until("its poll is refused", || get(&host, "web"), refused);
        assert!(web["lastError"]["message"].as_str().unwrap().contains("api_target_cidrs"), "{web}");
        assert_eq!(server.count("/a"), 0);
        // The next poll would be in an hour; the list has effect at once, also if the host did not run when it changed.
        let permitted = "[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]\n";
        if is_running {
            Host::configure(&folder, permitted);
            host.signal("HUP");
        } else {
            assert_eq!(host.terminate(), 0);
            host = Host::start(&folder, permitted);
        }
        until("it is polled", || get(&host, "web"), polled);
    }
}

#[test]
fn the_file_takes_precedence_and_a_definition_that_no_longer_fits_is_shown() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy()), ("/b", healthy())]);
    let permitted = permissions(&server.url("/"));
    let host = Host::start_with(&folder, &permitted, &[("KEY", "a-secret-for-tests")]);
    for (id, path) in [("web", "/a"), ("keyed", "/b")] {
        let body = json!({
            "id": id, "kind": "proactive-deps", "url": server.url(path), "secrets": { "token": "key" },
        });
        assert_eq!(ask(&host, ("POST", "/api/v1/targets"), &body).0, 201);
        until("it is polled", || get(&host, id), polled);
    }
    // The file defines one of them, and no longer has the secret of the other.
    let config = format!("[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]\n{}", target("web", &server.url("/a"), ""));
    Host::configure(&folder, &config);
    host.signal("HUP");
    let is_filed = |target: &Value| target["source"] == "file";
    until("the file wins", || get(&host, "web"), is_filed);
    let status = host.command(&folder, &["status"]);
    let shown = status.1 + &status.2;
    for expected in [
        "the target web, made through the API, is kept and not active",
        "defines a target with this id, which takes precedence",
        "the target keyed, made through the API, is kept and not active",
        "[secrets] in the file has no \"key\"",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    // The next start says the same, and polls the rest.
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config);
    until("the rest is polled", || get(&host, "web"), polled);
    assert!(host.log.lock().unwrap().contains("the target keyed, made through the API, is not active: "));
    Host::configure(&folder, &permitted);
    assert_eq!(ask(&host, ("DELETE", "/api/v1/targets/keyed"), &Value::Null).0, 200);
}

#[test]
fn a_target_is_tested_step_by_step_before_it_is_made_and_later() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy())]);
    let host = Host::start(&folder, &target("filed", &server.url("/a"), ""));
    until("it is polled", || get(&host, "filed"), polled);
    let steps = |answer: &Value| -> Vec<(String, Option<String>)> {
        let step = |step: &Value| (step["name"].as_str().unwrap().to_owned(), step["code"].as_str().map(str::to_owned));
        answer["steps"].as_array().unwrap().iter().map(step).collect()
    };
    let ok = |name: &str| (name.to_owned(), None);
    let (status, answer) = ask(&host, ("POST", "/api/v1/targets/filed/test"), &Value::Null);
    assert_eq!((status, &answer["passed"]), (200, &json!(true)), "{answer}");
    let names = ["name look-up", "address", "connect", "request", "report", "dependency"];
    assert_eq!(steps(&answer), names.map(ok), "{answer}");

    // A definition is checked as if it were made, with the permissions of the API.
    let mut body = json!({ "id": "fresh", "kind": "proactive-deps", "url": server.url("/a") });
    let (status, answer) = ask(&host, ("POST", "/api/v1/target-tests"), &body);
    let denied = |name: &str| (name.to_owned(), Some("denied".to_owned()));
    let expected = [ok("name look-up"), denied("address"), denied("request"), denied("report")];
    assert_eq!((status, steps(&answer)), (200, expected.to_vec()), "{answer}");
    assert_eq!(answer["passed"], false);
    assert_eq!(host.get("/api/v1/targets")["total"], 1, "a test makes no target");
    body["settings"] = json!({ "pth": 1 });
    let (status, answer) = ask(&host, ("POST", "/api/v1/target-tests"), &body);
    assert!(status == 400 && answer.to_string().contains("pth"), "{answer}");
    assert_eq!(ask(&host, ("POST", "/api/v1/targets/nope/test"), &Value::Null).0, 404);

    let (code, shown, why) = host.command(&folder, &["targets", "test", "filed"]);
    assert!(code == 0 && shown.contains("may be reached") && shown.contains("1 dependency"), "{shown}{why}");
    let (code, shown, _) =
        host.command(&folder, &["targets", "test", "fresh", "--kind", "http", "--url", "http://127.0.0.1:9/"]);
    assert!(code == 1 && shown.contains("denied") && shown.contains("api_target_cidrs"), "{shown}");
}

#[test]
fn an_alias_made_through_the_api_joins_dependencies_until_it_is_deleted() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/a", healthy())]);
    let config = target("a", &server.url("/a"), "interval = \"5s\"") + "[[alias]]\nname = \"x\"\ncanonical = \"y\"\n";
    let host = Host::start(&folder, &config);
    let canonical = || host.get("/api/v1/dependencies")["dependencies"][0]["canonicalName"].clone();
    until("it is polled", canonical, Value::is_null);
    let put = ("PUT", "/api/v1/aliases/db");
    let made = json!({ "name": "db", "canonical": "postgres main", "source": "api" });
    assert_eq!(ask(&host, put, &json!({ "canonical": "postgres main" })), (200, made.clone()));
    assert_eq!(ask(&host, ("POST", "/api/v1/targets/a/poll"), &Value::Null).0, 202);
    until("it has the canonical name", canonical, |name| name == "postgres main");
    let filed = json!({ "name": "x", "canonical": "y", "source": "file" });
    assert_eq!(host.get("/api/v1/aliases")["aliases"], json!([made, filed]));
    for (request, body, status, expected) in [
        (("PUT", "/api/v1/aliases/x"), json!({ "canonical": "z" }), 409, "change it there"),
        (("DELETE", "/api/v1/aliases/x"), Value::Null, 409, "delete it there"),
        (("DELETE", "/api/v1/aliases/nope"), Value::Null, 404, "there is no alias \"nope\""),
        (put, json!({ "canonical": " " }), 400, "1 to 200 visible characters"),
        (put, json!({ "to": "z" }), 400, "unknown field `to`"),
    ] {
        let (seen, answer) = ask(&host, request, &body);
        assert!(seen == status && answer.to_string().replace("\\\"", "\"").contains(expected), "{request:?}: {answer}");
    }
    host.kill();
    let host = Host::start(&folder, &config);
    assert_eq!(host.get("/api/v1/aliases")["aliases"].as_array().unwrap().len(), 2);
    assert_eq!(ask(&host, ("DELETE", "/api/v1/aliases/db"), &Value::Null).0, 200);
    assert_eq!(host.get("/api/v1/aliases")["aliases"].as_array().unwrap().len(), 1);
}
