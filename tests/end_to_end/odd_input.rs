//! Pages and API with names and texts that no one would choose: long, right-to-left, HTML, emoji, control characters,
//! thousands of dependencies.

use crate::operating::target;
use crate::support::{Host, Server, TOKEN, always, folder, get, get_as, ok, preloaded, send, until};
use serde_json::{Value, json};
use std::fs;

/// The pages on which the names of dependencies and the messages of a target appear.
const PAGES: [&str; 9] = [
    "/",
    "/?text=%3Cscript%3E",
    "/targets/odd",
    "/targets/odd?range=400d",
    "/graph?around=odd",
    "/events",
    "/scheduler",
    "/wall",
    "/scheduler/replay?range=1h",
];

#[test]
fn an_address_without_a_page_answers_a_browser_with_a_page() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![("/", always(ok(r#"[{"name":"db","healthy":true}]"#)))]);
    let host = Host::start(&folder, &target("odd", &server.url("/"), "name = \"The Shop\""));
    until("a poll", || host.target("odd"), |target| target["status"] == "ok");
    let headers = format!("Authorization: Bearer {TOKEN}\r\nAccept: text/html,*/*\r\n");
    for (path, words) in [
        ("/nowhere", "this path does not exist"),
        ("/targets/nowhere", "there is no target"),
        ("/targets/odd?range=9y", "range"),
        ("/dependencies/nowhere", "no target reports a dependency"),
    ] {
        let (status, body) = get_as(&host.api, path, &headers);
        let is_whole = body.contains(words) && body.contains("All targets") && body.trim_end().ends_with("</html>");
        assert!([400, 404].contains(&status) && is_whole, "{path}: {status} {body}");
    }
    let (status, body) = get_as(&host.api, "/api/v1/nowhere", &headers);
    assert!(status == 404 && body.contains(r#""code":"not_found""#), "{status} {body}");
    // Names lead to a target as its id does.
    for path in ["/graph?around=the+shop", "/graph?around=ODD", "/graph?around=DB"] {
        assert!(page(&host, path).contains("centre"), "{path}");
    }
    assert!(page(&host, "/graph?around=sho").contains("Similar: "));
    assert!(page(&host, "/events?target=the+shop").contains("id=\"events\""));
    assert!(page(&host, "/events?target=nowhere").contains("There is no target nowhere"));
    assert!(page(&host, "/targets/odd").contains("No other target depends on it"));
}

fn page(host: &Host, path: &str) -> String {
    let (status, body) = get(&host.api, path, Some(TOKEN));
    assert_eq!(status, 200, "{path}: {body}");
    assert!(body.trim_end().ends_with("</html>"), "{path} is not whole");
    body
}

#[test]
fn odd_names_and_texts_are_escaped_and_leave_every_page_whole() {
    let (_keep, folder) = folder();
    let names = [
        "<script>alert(1)</script>".to_owned(),
        "\"><img src=x onerror=alert(1)>".to_owned(),
        "قاعدة البيانات".to_owned(),
        "\u{202e}reversed".to_owned(),
        "👩‍👩‍👧‍👦 family".to_owned(),
        "line\nbreak\u{0}null\u{7}bell\u{1b}[31m".to_owned(),
        "'; DROP TABLE target; --".to_owned(),
        "%2e%2e/%00?a=b&c=d#e".to_owned(),
        "x".repeat(4_096),
    ];
    let item = |name: &String| {
        json!({ "name": name, "healthy": false, "errorMessage": format!("{name} {}", "<b>&amp;".repeat(500)),
                "description": name, "impact": name, "contact": { name.as_str(): name } })
    };
    let body: Value = names.iter().map(item).collect();
    let server = Server::start(vec![("/", always(ok(body.to_string())))]);
    let odd = target("odd", &server.url("/"), "name = \"<i>شركة</i> 👩‍👩‍👧‍👦 \\u202e\"");
    let host = Host::start(&folder, &odd);
    let found = until("a poll", || host.target("odd"), |target| target["status"] == "critical");
    let dependencies = host.get("/api/v1/dependencies?target=odd");
    let reported = dependencies["dependencies"].as_array().unwrap();
    assert_eq!(reported.len() as u64, found["dependencies"]["total"].as_u64().unwrap());
    assert!(reported.len() >= 7, "{found}");
    for path in PAGES {
        let body = page(&host, path);
        for raw in ["<script>alert", "<img src=x", "<b>&amp;", "<i>شركة", "\u{0}", "\u{1b}"] {
            assert!(!body.contains(raw), "{path} contains {raw:?}");
        }
        assert!(body.len() < 400_000, "{path} has {} bytes", body.len());
    }
    // A search that finds nothing does not say that all is well.
    let nothing = page(&host, "/?text=nowhere");
    assert!(nothing.contains("No target matches") && !nothing.contains("Nothing is wrong"), "{nothing}");
    let part = page(&host, "/?text=odd");
    assert!(part.contains("What is wrong: "), "all targets are chosen");
    // Each dependency has a page, whatever its name.
    for dependency in reported {
        let name = dependency["name"].as_str().unwrap();
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, body) = get(&host.api, &format!("/dependencies/{encoded}"), Some(TOKEN));
        assert!(status == 200 && !body.contains("<script>alert"), "{name:?}: {status}");
    }
}

#[test]
fn a_target_with_thousands_of_dependencies_has_a_page_of_bounded_size() {
    let (_keep, folder) = folder();
    let item = |n: usize| json!({ "name": format!("dependency {n:04}"), "healthy": !n.is_multiple_of(10) });
    let body: Value = (0..5_000).map(item).collect();
    let server = Server::start(vec![("/", always(ok(body.to_string())))]);
    let host = Host::start(&folder, &target("odd", &server.url("/"), ""));
    let found = until("a poll", || host.target("odd"), |target| !target["lastPolled"].is_null());
    let total = found["dependencies"]["total"].as_u64().unwrap();
    for path in PAGES {
        let body = page(&host, path);
        assert!(body.len() < 600_000, "{path} has {} bytes for {total} dependencies", body.len());
    }
}

#[test]
fn pages_stay_whole_and_say_so_when_the_clock_of_the_machine_is_set() {
    let (_keep, folder) = folder();
    let (library, moved) = (preloaded(&folder, "clock.c"), folder.join("moved"));
    fs::write(&moved, "0").unwrap();
    let server = Server::start(vec![("/", always(ok(r#"[{"name":"db","healthy":false}]"#)))]);
    let environment = [("LD_PRELOAD", &*library), ("CLOCK_MOVED", moved.to_str().unwrap())];
    let host = Host::start_with(&folder, &target("odd", &server.url("/"), ""), &environment);
    let polled = |host: &Host| host.target("odd")["lastPolled"].as_str().unwrap_or_default().to_owned();
    until("a poll", || host.target("odd"), |target| target["status"] == "critical");
    assert!(!page(&host, "/").contains("The clock of this machine"));
    // A draft is renamed, so that the host never reads half a number.
    let set = |seconds: i64| {
        fs::write(moved.with_extension("draft"), seconds.to_string()).unwrap();
        fs::rename(moved.with_extension("draft"), &moved).unwrap();
    };
    const DAY: i64 = 24 * 3600;
    for (seconds, said) in [(DAY, "set forward by 24 h"), (-DAY, "set back by 2 days"), (0, "set forward by 24 h")] {
        let before = polled(&host);
        set(seconds);
        send(&host.api, ("POST", "/api/v1/targets/odd/poll"), &format!("Authorization: Bearer {TOKEN}\r\n"), "");
        until("a poll after the clock was set", || polled(&host), |now| *now != before);
        for path in PAGES {
            // The replay shows what is stored, without the state of the host.
            let body = page(&host, path);
            assert!(body.contains(said) || path.starts_with("/scheduler/replay"), "{path}: {body}");
            assert!(!body.contains("-1 ") && !body.contains("NaN"), "{path}: {body}");
        }
        let changes = host.get("/api/v1/targets/odd/history?range=400d");
        assert!(changes.to_string().contains("db"), "{changes}");
    }
    assert_eq!(host.terminate(), 0);
}
