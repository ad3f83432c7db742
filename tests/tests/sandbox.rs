//! Honest and misbehaving plugins in the sandbox, against a real server.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use axum::Router;
use axum::routing::get;
use egress::{Egress, Grant, Origin, OriginGrant, Secrets, Tape, Tls};
use model::{Cause, FailureCategory, Outcome, Status, TargetId, Timestamp};
use sandbox::{
    Backtrace, Compiler, Config, Done, Job, Limits, Plugin, Sandbox, SettingsProblem, SettingsVersion, Target,
};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tests::{built_in, guests};
use tokio::net::TcpListener;

fn sandbox_with(slots: u32) -> Arc<Sandbox> {
    sandbox_with_backtrace(slots, Backtrace::Functions)
}

fn sandbox_with_backtrace(slots: u32, backtrace: Backtrace) -> Arc<Sandbox> {
    let egress = Egress::new(egress::Config::default());
    let compiler = Compiler::temporary((env!("CARGO_BIN_EXE_compile"), &[]), [7; 32], 2).unwrap();
    Arc::new(
        Sandbox::new(
            Config { instance_slots: slots, lanes: NonZeroUsize::MIN, backtrace, ..Config::default() },
            compiler,
            &egress,
        )
        .unwrap(),
    )
}

/// Starts a server that answers `/` and never answers `/never`.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let routes = Router::new().route("/", get(async || "fine")).route("/never", get(std::future::pending::<()>));
    tokio::spawn(async { axum::serve(listener, routes).await });
    url
}

fn job(plugin: &Plugin, url: &str, timeout: Duration) -> Job {
    let (base, origin) = Origin::parse(url).unwrap();
    let origins = vec![OriginGrant { origin, tls: Tls::system().unwrap() }];
    let target = Target {
        id: TargetId::new("test").unwrap(),
        name: "Test".to_owned(),
        url: url.to_owned(),
        also: Vec::new(),
        labels: Vec::new(),
        settings: "{}".to_owned(),
        secrets: Vec::new(),
    };
    Job {
        plugin: plugin.clone(),
        target: Arc::new(target),
        grant: Arc::new(Grant::new(base, origins, Secrets::default())),
        limits: Limits::default(),
        timeout,
        now: Timestamp::from_millis(1_784_578_620_000),
        tape: Tape::Off,
        zone: None,
        stored: model::PluginValues::default(),
    }
}

/// Loads a guest and polls it once.
async fn poll(guest: &[u8], timeout: Duration) -> Done {
    let sandbox = sandbox_with(8);
    let plugin = sandbox.load(guest).await.unwrap();
    sandbox.poll(job(&plugin, &server().await, timeout)).await
}

fn failure(done: &Done) -> (FailureCategory, &str, &str) {
    match &done.outcome {
        Outcome::Failure(failure) => (failure.category, failure.code.as_str(), failure.message.as_str()),
        other => panic!("{other:?}"),
    }
}

fn builtin(kind: &str) -> &'static [u8] {
    builtin::ALL.iter().find(|plugin| plugin.kind == kind).unwrap().component
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_honest_plugin_reports() {
    let done = poll(builtin("http"), LONG).await;
    let Outcome::Success(report) = &done.outcome else { panic!("{done:?}") };
    assert_eq!(report.dependencies.len(), 1);
    assert_eq!((report.dependencies[0].status, report.dependencies[0].code), (Status::Ok, Some(200)));
    // Nothing is checked in the body, so it is not read.
    assert_eq!((done.usage.requests, done.usage.bytes), (1, 0));
    assert!(done.usage.memory > 0 && done.usage.cpu > Duration::ZERO && done.usage.wall >= done.usage.cpu);
}

#[tokio::test]
async fn the_cause_of_a_failure_is_what_happened_to_its_requests() {
    let sandbox = sandbox_with(8);
    let plugin = built_in(&sandbox, "proactive-deps").await;
    let server = server().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (url, timeout, code, cause) in [
        (server.clone(), LONG, "not_json", Cause::Other),
        (format!("http://{closed}/"), LONG, "connect_refused", Cause::Unreachable),
        (format!("{server}never"), Duration::from_millis(200), "timeout", Cause::Unreachable),
    ] {
        let done = sandbox.poll(job(&plugin, &url, timeout)).await;
        let Outcome::Failure(failure) = done.outcome else { panic!("{url}: {:?}", done.outcome) };
        assert_eq!((failure.code.as_str(), failure.cause), (code, cause), "{url}");
    }
}

/// The build generated their machine code. The host needs no compiler, and no component.
#[tokio::test]
async fn builtin_plugins_load_without_a_compiler() {
    let compiler = Compiler::temporary(("/no/such/program", &[]), [7; 32], 1).unwrap();
    let config = Config { instance_slots: 8, lanes: NonZeroUsize::MIN, ..Config::default() };
    let sandbox = Sandbox::new(config, compiler, &Egress::new(egress::Config::default())).unwrap();
    assert_eq!(builtin_code::ALL.len(), builtin::ALL.len());
    for (code, plugin) in builtin_code::ALL.iter().zip(builtin::ALL) {
        assert!(!sandbox.is_judged(plugin.component));
        let loaded = sandbox.load_built_in(*code, &Arc::default()).await.unwrap();
        assert_eq!((loaded.descriptor().kind.as_str(), code.kind), (plugin.kind, plugin.kind));
        assert_eq!(loaded.size(), Some(plugin.component.len()));
        // The machine code is stored under the digest of the component.
        assert_eq!(sandbox.load(plugin.component).await.unwrap().digest(), loaded.digest());
    }
    let http = builtin_code::ALL.iter().find(|code| code.kind == "http").unwrap();
    let plugin = sandbox.load_built_in(*http, &Arc::default()).await.unwrap();
    let done = sandbox.poll(job(&plugin, &server().await, LONG)).await;
    assert!(matches!(done.outcome, Outcome::Success(_)), "{done:?}");
    // A plugin that rests has no machine code until it is called.
    plugin.rest();
    assert!(plugin.image().is_empty());
    let done = sandbox.poll(job(&plugin, &server().await, LONG)).await;
    assert!(matches!(done.outcome, Outcome::Success(_)) && !plugin.image().is_empty(), "{done:?}");
}

/// The problems of settings of a plugin's own version.
async fn problems(sandbox: &Sandbox, plugin: &Plugin, settings: &serde_json::Value) -> Vec<SettingsProblem> {
    let accepted = sandbox.accept_settings(plugin, settings, SettingsVersion::Assumed(1)).await.unwrap();
    accepted.err().unwrap_or_default()
}

#[tokio::test]
async fn every_builtin_plugin_describes_itself() {
    let sandbox = sandbox_with(8);
    for plugin in builtin::ALL {
        let loaded = built_in(&sandbox, plugin.kind).await;
        assert_eq!(loaded.descriptor().kind.as_str(), plugin.kind);
        assert!(loaded.descriptor().settings_schema.is_object() && !loaded.descriptor().summary.is_empty());
        let problems = problems(&sandbox, &loaded, &serde_json::json!({ "no_such_key": 1 })).await;
        assert!(
            problems.iter().any(|problem| problem.message.contains("no_such_key")),
            "{}: {problems:?}",
            plugin.kind
        );
    }
    let mapping = built_in(&sandbox, "mapping").await;
    let settings = serde_json::json!({ "fields": { "name": "n" } });
    let problems = problems(&sandbox, &mapping, &settings).await;
    assert!(
        problems[0].message.contains("severity"),
        "the plugin checks rules that the schema cannot express: {problems:?}"
    );
}

#[tokio::test]
async fn a_trap_message_names_the_active_functions() {
    let text = include_str!("../guests/wat/recurses.wat");
    let done = poll(&tests::wat::plugin("recurses", "0.1.0", text), LONG).await;
    let (category, code, message) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "stack"));
    assert!(
        message.ends_with(
            "not its own in deep, called by deep, called by deep, called by deep, called by deep, called by deep"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_trap_message_names_files_and_lines_if_the_plugin_contains_them() {
    let text = "(func $inner (unreachable))\n(func $poll (type $poll) (call $inner) (i32.const 0))";
    let plugin = tests::wat::plugin_with_lines("trapping", "0.1.0", text);
    let message = async |backtrace| {
        let sandbox = sandbox_with_backtrace(8, backtrace);
        let plugin = sandbox.load(&plugin).await.unwrap();
        failure(&sandbox.poll(job(&plugin, &server().await, LONG)).await).2.to_owned()
    };
    assert_eq!(Backtrace::of(&plugin), Backtrace::SourceLines);
    let traced = message(Backtrace::of(&plugin)).await;
    let (inner, poll) = traced.split_once(", called by ").unwrap();
    assert!(inner.contains("in inner (./trapping.wat:") && poll.contains("poll (./trapping.wat:"), "{traced}");
    // A host does not read debug information, because the file may be untrusted.
    assert_eq!(message(Backtrace::Functions).await, "the plugin panicked or aborted in inner, called by poll");
    assert_eq!(Backtrace::of(&tests::wat::plugin("trapping", "0.1.0", text)), Backtrace::Functions);
}

#[tokio::test]
async fn a_limit_message_names_the_active_functions() {
    let text = "(func $round (loop (br 0)))\n(func $poll (type $poll) (call $round) (i32.const 0))";
    let done = poll(&tests::wat::plugin("round", "0.1.0", text), LONG).await;
    let (category, code, message) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "cpu_limit"));
    assert!(message.ends_with("of CPU time in round, called by poll"), "{message}");
}

#[tokio::test]
async fn a_host_panic_fails_only_the_current_poll() {
    let sandbox = sandbox_with(8);
    let (plugin, url) = (built_in(&sandbox, "http").await, server().await);
    // The deadline overflows, which panics.
    let done = sandbox.poll(job(&plugin, &url, Duration::MAX)).await;
    let (category, code, message) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "host_panic"));
    assert!(message.contains("please report it"), "{message}");
    let done = sandbox.poll(job(&plugin, &url, LONG)).await;
    assert!(matches!(done.outcome, Outcome::Success(_)), "{done:?}");
}

#[tokio::test]
async fn an_endless_loop_ends_at_the_cpu_limit() {
    let done = poll(guests::ENDLESS_LOOP, LONG).await;
    let (category, code, _) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "cpu_limit"));
    assert!(done.usage.cpu >= Limits::default().cpu);
}

#[tokio::test]
async fn an_endless_loop_ends_at_the_wall_clock_limit() {
    // Shorter than the CPU limit. A busy machine must leave the guest a quarter of it, and does not within 100 ms.
    let done = poll(guests::ENDLESS_LOOP, Duration::from_millis(900)).await;
    assert_eq!(failure(&done).1, "wall_clock_limit");
}

#[tokio::test]
async fn a_memory_bomb_ends_at_its_limit() {
    let done = poll(guests::MEMORY_BOMB, LONG).await;
    let (category, code, _) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "memory_limit"));
    assert!(done.usage.memory <= Limits::default().memory);
}

#[tokio::test]
async fn an_oversized_report_is_refused() {
    let done = poll(guests::OVERSIZED_REPORT, LONG).await;
    let (category, code, _) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "output_limit"));
}

#[tokio::test]
async fn waiting_for_an_answer_is_not_a_plugin_fault() {
    let done = poll(guests::STUCK_IN_FETCH, Duration::from_millis(200)).await;
    let (category, code, _) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Transient, "timeout"));
    assert!(done.usage.cpu < Duration::from_millis(100), "waiting does not use CPU time: {:?}", done.usage.cpu);
}

#[tokio::test]
async fn a_panic_is_reported_with_its_message() {
    let done = poll(guests::PANICKING, LONG).await;
    let (category, code, message) = failure(&done);
    assert_eq!((category, code), (FailureCategory::Plugin, "panic"));
    assert!(message.contains("did not expect test") && !message.contains("RUST_BACKTRACE"), "{message}");
}

#[tokio::test]
async fn every_poll_has_a_fresh_instance_and_the_targets_cache() {
    let sandbox = sandbox_with(8);
    let plugin = sandbox.load(guests::CACHED).await.unwrap();
    for expected in 1..=3 {
        let done = sandbox.poll(job(&plugin, "http://127.0.0.1:9/", LONG)).await;
        let Outcome::Success(report) = &done.outcome else { panic!("{done:?}") };
        let codes: Vec<_> = report.dependencies.iter().map(|dependency| dependency.code).collect();
        assert_eq!(codes, [Some(expected), Some(1)]);
        assert_eq!(done.usage.log_lines, 100);
    }
}

#[tokio::test]
async fn healthy_polls_continue_beside_eight_endless_loops() {
    let sandbox = sandbox_with(32);
    let endless = sandbox.load(guests::ENDLESS_LOOP).await.unwrap();
    let honest = built_in(&sandbox, "http").await;
    let url = server().await;
    let ended = Arc::new(AtomicUsize::new(0));
    let loops: Vec<_> = (0..8)
        .map(|_| {
            let (sandbox, job, ended) = (sandbox.clone(), job(&endless, &url, LONG), ended.clone());
            tokio::spawn(async move {
                let done = sandbox.poll(job).await;
                ended.fetch_add(1, Ordering::SeqCst);
                done
            })
        })
        .collect();
    for _ in 0..20 {
        let done = sandbox.poll(job(&honest, &url, LONG)).await;
        assert!(matches!(done.outcome, Outcome::Success(_)), "{done:?}");
    }
    assert!(ended.load(Ordering::SeqCst) < 8, "the healthy polls did not wait for the loops to end");
    for one in loops {
        assert_eq!(failure(&one.await.unwrap()).1, "cpu_limit");
    }
    assert!(sandbox.counters().0 >= 8, "loops are moved to the slow lane");
}

#[tokio::test]
async fn a_poll_that_never_gets_a_slot_is_skipped() {
    let sandbox = sandbox_with(1);
    let stuck = sandbox.load(guests::STUCK_IN_FETCH).await.unwrap();
    let url = server().await;
    let holder = {
        let (sandbox, job) = (sandbox.clone(), job(&stuck, &url, LONG));
        tokio::spawn(async move { sandbox.poll(job).await })
    };
    // Either poll may take the only slot first; after a few rounds, the one that waits forever holds it.
    let mut outcome = None;
    for _ in 0..100 {
        outcome = Some(sandbox.poll(job(&stuck, &url, Duration::from_millis(50))).await.outcome);
        if outcome == Some(Outcome::Skipped) {
            break;
        }
    }
    assert_eq!(outcome, Some(Outcome::Skipped));
    assert!(sandbox.counters().1 > 0, "the wait is counted");
    holder.abort();
}

#[tokio::test]
async fn files_that_are_not_plugins_are_refused_with_a_remedy() {
    let sandbox = sandbox_with(8);
    let component = |text: &str| wat::parse_str(text).unwrap();
    let importing = |name: &str| component(&format!("(component (import {name:?} (instance)))"));
    let exporting = |interfaces: &[&str]| {
        let export =
            |name: &&str| format!("(instance ${name}) (export \"polliwog:plugin/{name}@0.1.0\" (instance ${name}))");
        component(&format!("(component {})", interfaces.iter().map(export).collect::<String>()))
    };
    let cases: Vec<(Vec<u8>, &str, &str)> = vec![
        (vec![], "empty", "copy"),
        (b"\x7fELF...".to_vec(), "not_wasm", "machine code"),
        (b"hello".to_vec(), "not_wasm", "component"),
        (b"(component)".to_vec(), "not_wasm", "text"),
        (wat::parse_str("(module)").unwrap(), "core_module", "wasm32-wasip2"),
        (component("(component)"), "wrong_exports", "SDK"),
        (importing("wasi:http/outgoing-handler@0.2.0"), "import_refused", "wasi:http/outgoing-handler@0.2.0"),
        (importing("evil:corp/shell@1.0.0"), "import_refused", "evil:corp/shell@1.0.0"),
        (importing("wasi:keyvalue/store@0.2.0"), "import_refused", "wasi:keyvalue/store@0.2.0"),
        (importing("wasi:clocks/timezone@0.2.0"), "import_refused", "wasi:clocks/timezone@0.2.0"),
        (importing("wasi:cli/exit@0.3.0"), "import_refused", "wasi:cli/exit@0.3.0"),
        (importing("wasi:sockets/tcp@0.2.9"), "wrong_exports", "SDK"),
        (importing("wasi:filesystem/types@0.2.0"), "wrong_exports", "SDK"),
        (importing("polliwog:plugin/http@0.3.0"), "contract_version", "0.3"),
        (importing("polliwog:poller/http@0.1.0"), "contract_version", "polliwog plugin update"),
        (exporting(&["definition"]), "wrong_exports", "neither"),
        (exporting(&["poller"]), "wrong_exports", "polliwog:plugin/definition"),
        (exporting(&["definition", "notifier", "poller"]), "wrong_exports", "two plugins"),
        (builtin("http")[..1000].to_vec(), "not_valid", "compile"),
    ];
    for (bytes, code, word) in cases {
        let refusal = sandbox.load(&bytes).await.expect_err(code);
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(word), "{refusal}");
    }
}

#[tokio::test]
async fn memory_is_cleared_before_the_next_poll() {
    // With one slot, both plugins use the same memory in turn.
    let sandbox = sandbox_with(1);
    let text = |kind, text| tests::wat::plugin(kind, "1.0.0", text);
    let leaves = sandbox.load(&text("leaves", guests::LEAVES_TRACES_TEXT)).await.unwrap();
    let looks = sandbox.load(&text("looks", guests::LOOKS_FOR_TRACES_TEXT)).await.unwrap();
    for _ in 0..5 {
        for plugin in [&leaves, &looks] {
            let done = sandbox.poll(job(plugin, "http://127.0.0.1:9/", LONG)).await;
            assert!(matches!(done.outcome, Outcome::Success(_)), "{done:?}");
        }
    }
}

#[tokio::test]
async fn a_plugin_written_as_text_loads_and_polls() {
    let sandbox = sandbox_with(8);
    let plugin = sandbox.load(&tests::wat::plugin("written", "1.2.3", "")).await.unwrap();
    assert_eq!((plugin.descriptor().kind.as_str(), plugin.descriptor().version.as_str()), ("written", "1.2.3"));
    assert_eq!(problems(&sandbox, &plugin, &serde_json::json!({})).await, []);
    let url = server().await;
    let done = sandbox.poll(job(&plugin, &url, LONG)).await;
    assert!(matches!(&done.outcome, Outcome::Success(report) if report.dependencies.is_empty()), "{done:?}");
    let one = format!("(func $poll (type $poll) i32.const {})", tests::wat::DEPENDENCY);
    let plugin = sandbox.load(&tests::wat::plugin("written", "1.2.3", &one)).await.unwrap();
    let done = sandbox.poll(job(&plugin, &url, LONG)).await;
    let Outcome::Success(report) = &done.outcome else { panic!("{done:?}") };
    assert_eq!((report.dependencies[0].name.as_str(), report.dependencies[0].status), ("dependency", Status::Ok));
}
