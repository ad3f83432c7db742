//! Tokens with scopes, the sessions begun with them, and the link for a wall.

use crate::operating::{healthy, polled, target};
use crate::support::{Host, Server, TOKEN, always, folder, get, get_as, ok, send, until};
use serde_json::Value;

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The code of an error response.
fn code(body: &str) -> String {
    serde_json::from_str::<Value>(body).unwrap()["error"]["code"].as_str().unwrap().to_owned()
}

#[test]
fn tokens_have_scopes_expire_by_revocation_and_survive_a_kill() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/well", healthy())]);
    let config = target("well", &server.url("/well"), "");
    let host = Host::start(&folder, &config);
    let create = |host: &Host, scope: &str| {
        let (code, token, why) = host.command(&folder, &["token", "create", &format!("the {scope}"), "--scope", scope]);
        assert_eq!((code, token.trim().len()), (0, 64), "{why}");
        token.trim().to_owned()
    };
    let [wall, read, operate, admin] = ["wall", "read", "operate", "admin"].map(|scope| create(&host, scope));
    let poll = ("POST", "/api/v1/targets/well/poll");
    let set = ("PUT", "/api/v1/settings/scheduler.cadence");
    for (token, request, expected) in [
        (&wall, ("GET", "/wall"), 200),
        (&wall, ("GET", "/api/v1/targets"), 403),
        (&read, ("GET", "/api/v1/targets"), 200),
        (&read, ("GET", "/api/v1/tokens"), 403),
        (&read, poll, 403),
        (&operate, poll, 202),
        (&operate, set, 403),
        (&admin, set, 200),
        (&admin, ("GET", "/api/v1/tokens"), 200),
    ] {
        let (status, body) = send(&host.api, request, &bearer(token), r#"{"value":"fixed"}"#);
        assert_eq!(status, expected, "{request:?}: {body}");
        assert!(expected != 403 || code(&body) == "out_of_scope", "{body}");
    }
    let listed = host.asked(&folder, &["token", "list"]);
    let names: Vec<&str> = listed["tokens"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["the admin", "the operate", "the read", "the wall"]);
    assert!(!listed["tokens"][0]["lastUsed"].is_null() && !listed.to_string().contains(&admin), "{listed}");

    // A killed host forgets neither a token nor a revocation that it has acknowledged.
    let (code, said, why) = host.command(&folder, &["token", "revoke", "the operate"]);
    assert_eq!((code, said.trim()), (0, "the operate is no longer valid"), "{why}");
    host.kill();
    let host = Host::start(&folder, &config);
    let may = |token: &str| get(&host.api, "/api/v1/targets", Some(token)).0;
    assert_eq!((may(&read), may(&operate), may(TOKEN)), (200, 401, 200));
    let (code, _, why) = host.command(&folder, &["token", "revoke", "the operate"]);
    assert!(code == 1 && why.contains("there is no token \"the operate\""), "{why}");
    for (arguments, expected) in [
        (["create", "the read", "--scope", "read"], "there is a token \"the read\" already"),
        (["create", "x", "--scope", "all"], "the scope must be one of wall, read, operate, admin"),
        (["create", "a/b", "--scope", "read"], "without a slash"),
        (["create", "x", "--days", "0"], "from 1 to 36500"),
    ] {
        let arguments: Vec<&str> = ["token"].into_iter().chain(arguments).collect();
        let (code, _, why) = host.command(&folder, &arguments);
        assert!(code == 1 && why.contains(expected), "{arguments:?}: {why}");
    }
}

#[test]
fn a_wall_link_shows_problems_without_a_log_in_until_it_is_revoked() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/well", healthy())]);
    let lost = target("lost", "http://127.0.0.1:9/", "");
    let host = Host::start(&folder, &format!("{}{lost}", target("well", &server.url("/well"), "")));
    until("well is polled", || host.target("well"), polled);
    let unreachable = |target: &Value| target["status"] == "unreachable";
    until("lost is unreachable", || host.target("lost"), unreachable);
    let key = host.command(&folder, &["token", "create", "lobby", "--scope", "wall"]).1.trim().to_owned();
    for path in ["/wall", "/fragments/wall"] {
        let (status, page) = get(&host.api, &format!("{path}?key={key}"), None);
        assert_eq!(status, 200, "{page}");
        assert!(page.contains("1 problem") && page.contains("lost") && !page.contains("href=\"/targets"), "{page}");
    }
    // The key opens nothing else, and begins no session.
    assert_eq!(get(&host.api, &format!("/?key={key}"), None).0, 303);
    assert_eq!(get(&host.api, &format!("/api/v1/targets?key={key}"), None).0, 401);
    assert_eq!(get(&host.api, &format!("/login?token={key}"), None).0, 401);
    // A session sees the page without a key, and without either it asks for a log-in.
    let session = session(&host, TOKEN);
    assert_eq!(get_as(&host.api, "/wall", &session).0, 200);
    assert_eq!(get(&host.api, "/wall", None).0, 303);
    assert_eq!(host.command(&folder, &["token", "revoke", "lobby"]).0, 0);
    let (status, page) = get(&host.api, &format!("/wall?key={key}"), None);
    assert!(status == 401 && page.contains("This link is no longer valid"), "{page}");
}

#[test]
fn a_session_has_the_scope_of_its_token_and_ends_with_it() {
    let (_keep, folder) = folder();
    let host = Host::start(&folder, "");
    let read = host.command(&folder, &["token", "create", "reader"]).1.trim().to_owned();
    let session = session(&host, &read);
    let (status, page) = get_as(&host.api, "/settings", &session);
    assert!(status == 200 && !page.contains("New token"), "tokens are shown to administrators only: {page}");
    let csrf = page.split("name=\"csrf-token\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    let headers = format!("{session}X-CSRF-Token: {csrf}\r\n");
    let (status, body) = send(&host.api, ("POST", "/api/v1/tokens/rotate"), &headers, "");
    assert_eq!((status, code(&body).as_str()), (403, "out_of_scope"));
    assert_eq!(host.command(&folder, &["token", "revoke", "reader"]).0, 0);
    assert_eq!(get_as(&host.api, "/settings", &session).0, 303);
}

/// Logs in as a browser does. Returns the line of the cookie.
fn session(host: &Host, token: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(&host.api).unwrap();
    write!(stream, "GET /login?token={token} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let cookie = answer.split("set-cookie: ").nth(1).unwrap_or_else(|| panic!("{answer}")).split(';').next().unwrap();
    format!("Cookie: {cookie}\r\n")
}

#[test]
fn status_pages_and_badges_are_public_and_show_names_and_states_only() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/secret-path", always(ok(r#"[{"name":"inner-db","healthy":false}]"#)))]);
    let page = "[[status_page]]\nname = \"public\"\ntitle = \"Our <services>\"\ntargets = [\"shop\", \"gone\"]\n";
    let hidden = target("hidden", &server.url("/secret-path"), "");
    let config = format!("{page}{}{hidden}", target("shop", &server.url("/secret-path"), "name = \"The shop\""));
    let host = Host::start(&folder, &config);
    until("a poll", || host.target("shop"), |target| target["status"] == "critical");
    let (status, body) = get(&host.api, "/status/public", None);
    assert_eq!(status, 200);
    for shown in ["Our &lt;services&gt;", "The shop", "does not work", "There is no target with this id", "gone"] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    for private in ["secret-path", "inner-db", "hidden", "127.0.0.1"] {
        assert!(!body.contains(private), "{private}: {body}");
    }
    let (status, badge) = get(&host.api, "/badge/shop.svg", None);
    assert!(status == 200 && badge.contains("The shop: does not work"), "{badge}");
    for path in ["/badge/hidden.svg", "/badge/shop", "/badge/gone.svg", "/status/other", "/status/hidden"] {
        assert_eq!(get(&host.api, path, None).0, 404, "{path}");
    }
    // A changed file takes effect at once.
    Host::configure(&folder, &hidden);
    host.signal("HUP");
    until("the page is gone", || get(&host.api, "/status/public", None).0, |status| *status == 404);
}

#[test]
fn users_of_a_reverse_proxy_are_accepted_from_its_addresses_only() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", healthy())]);
    let config = |network: &str| {
        format!(
            "proxy_user_header = \"Remote-User\"\nproxies = [\"{network}\"]\nproxy_scope = \"operate\"\n{}",
            target("a", &server.url("/"), "")
        )
    };
    let ann = "Remote-User: ann\r\n";
    let host = Host::start(&folder, &config("127.0.0.0/8"));
    until("a poll", || host.target("a"), polled);
    assert_eq!(get_as(&host.api, "/api/v1/targets", "").0, 401);
    assert_eq!(get_as(&host.api, "/api/v1/targets", "X-Polliwog-Proxied-User: ann\r\n").0, 401);
    assert_eq!(get_as(&host.api, "/api/v1/targets", ann).0, 200);
    let (status, page) = get_as(&host.api, "/targets/a", ann);
    assert_eq!(status, 200);
    let csrf = page.split("name=\"csrf-token\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    let poll = |headers: &str| send(&host.api, ("POST", "/api/v1/targets/a/poll"), headers, "").0;
    assert_eq!(poll(ann), 403, "another site can make a browser send the request, but not the page's header");
    assert_eq!(poll(&format!("{ann}X-CSRF-Token: {csrf}\r\n")), 202);
    let (status, body) = send(
        &host.api,
        ("PUT", "/api/v1/settings/scheduler.cadence"),
        &format!("{ann}X-CSRF-Token: {csrf}\r\n"),
        "{\"value\": \"fixed\"}",
    );
    assert_eq!((status, code(&body).as_str()), (403, "out_of_scope"));
    until("the log names the user", || host.log.lock().unwrap().clone(), |log| log.contains("by the user \"ann\""));
    host.terminate();
    let host = Host::start(&folder, &config("192.0.2.0/24"));
    assert_eq!(get_as(&host.api, "/api/v1/targets", ann).0, 401);
}
