//! The cost of one poll: `cargo bench -p tests`.
//!
//! A body of 2.4 KB with 10 dependencies, in the format of proactive-deps. Three ways to make a report of it, without a
//! network: natively, in a plugin's instance that is used again, and in a fresh instance as every real poll gets one;
//! the harness sets wasmtime as `sandbox` does, and answers the plugin's one request from memory. Then a whole poll
//! through `sandbox` and `egress`, over a kept connection to a server in this process, and the comparison with what is
//! known. First, the CPU of a later poll of two simulated Proxmox clusters, as the host counts it.

use divan::{Bencher, black_box};
use model::{Dependency, Outcome, Report, Status, TargetId, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod contract {
    wasmtime::component::bindgen!({
        world: "poller-plugin",
        path: "../wit",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

use contract::polliwog::plugin::{cache, clock, http, log, progress, store as plugin_store, tls, types};

fn main() {
    for (nodes, guests) in [(3, 50), (16, 5_000)] {
        let (least, median) = proxmox(nodes, guests);
        println!("pve, {nodes} nodes, {guests} guests: a later poll uses {median:.2?} of CPU (at least {least:.2?})");
    }
    println!("body: {} bytes, 10 dependencies", body().len());
    divan::main();
}

/// Returns the least and the median CPU time of 20 polls after the first one.
fn proxmox(nodes: usize, guests: usize) -> (Duration, Duration) {
    let runtime = Runtime::new().expect("a runtime");
    let bench = runtime.block_on(tests::proxmox::Bench::new("pve"));
    let path = format!("pve/nodes-{nodes}+guests-{guests}");
    let mut times: Vec<Duration> = (0..=20)
        .map(|n| {
            let now = tests::proxmox::NOW + n;
            let done = runtime.block_on(bench.poll_at(&path, Some("cluster"), now));
            assert!(matches!(done.outcome, Outcome::Success(_)), "{path}: {:?}", done.outcome);
            done.usage.cpu
        })
        .skip(1)
        .collect();
    times.sort_unstable();
    (times[0], times[times.len() / 2])
}

/// 10 dependencies in about 2.4 KB.
fn body() -> Vec<u8> {
    let item = |n: usize| {
        serde_json::json!({
            "name": format!("dependency-{n}"), "type": "database", "description": "Primary database of the order service",
            "healthy": true, "health": { "state": 0, "code": 200, "latency": 12 + n },
            "lastChecked": "2026-02-21T10:30:00.000Z", "contact": { "email": "db-team@example.com" },
        })
    };
    serde_json::Value::from((0..10).map(item).collect::<Vec<_>>()).to_string().into_bytes()
}

/// The same parse without a sandbox.
#[divan::bench]
fn native_parse(bencher: Bencher<'_, '_>) {
    #[derive(serde::Deserialize)]
    struct Health {
        state: u8,
        code: i32,
        latency: f64,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Item {
        name: String,
        #[serde(rename = "type")]
        kind: String,
        description: String,
        healthy: bool,
        health: Health,
        contact: Box<serde_json::value::RawValue>,
        last_checked: String,
    }
    let body = body();
    bencher.bench(|| {
        let items: Vec<Item> = serde_json::from_slice(black_box(&body)).expect("the body is of this form");
        let dependencies = items.into_iter().map(|item| {
            black_box(item.last_checked);
            let status = if item.healthy && item.health.state == 0 { Status::Ok } else { Status::Critical };
            Dependency {
                kind: item.kind,
                description: Some(item.description),
                code: Some(item.health.code),
                latency_ms: Some(item.health.latency),
                contact: Some(model::Json::checked(String::from(Box::<str>::from(item.contact)))),
                ..Dependency::new(item.name, status)
            }
        });
        dependencies.collect::<Vec<_>>()
    });
}

/// A plugin's instance, and the target of its poll.
struct Harness {
    runtime: Runtime,
    engine: Engine,
    pre: contract::PollerPluginPre<State>,
    body: Arc<Vec<u8>>,
}

struct State {
    wasi: Option<WasiCtx>,
    table: ResourceTable,
    body: Arc<Vec<u8>>,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: self.wasi.get_or_insert_with(|| WasiCtx::builder().build()), table: &mut self.table }
    }
}

impl types::Host for State {}

impl tls::Host for State {}

impl http::Host for State {
    async fn reference(&mut self, name: String) -> wasmtime::Result<String> {
        Ok(name)
    }

    async fn has_secret(&mut self, _: String) -> wasmtime::Result<bool> {
        Ok(false)
    }

    async fn forget_secret(&mut self, _: String) -> wasmtime::Result<()> {
        Ok(())
    }

    async fn fetch(&mut self, _: http::Request) -> wasmtime::Result<Result<http::Response, http::HttpError>> {
        let timing = http::Timing { dns_ms: 0.0, connect_ms: 0.0, tls_ms: 0.0, first_byte_ms: 1.0, total_ms: 1.0 };
        let header = http::Header { name: "content-type".to_owned(), value: "application/json".to_owned() };
        let (reason, body) = ("OK".to_owned(), self.body.to_vec());
        Ok(Ok(http::Response {
            exchange: 0,
            status: 200,
            reason,
            headers: vec![header],
            body,
            body_complete: true,
            timing,
        }))
    }

    async fn fetch_all(
        &mut self,
        _: Vec<http::Request>,
    ) -> wasmtime::Result<Vec<Result<http::Response, http::HttpError>>> {
        Ok(Vec::new())
    }

    async fn tls_of(&mut self, _: u32) -> wasmtime::Result<Option<tls::TlsSession>> {
        Ok(None)
    }
}

impl cache::Host for State {
    async fn get(&mut self, _: String) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn set(&mut self, _: String, _: Vec<u8>, _: u32) -> wasmtime::Result<Result<(), cache::CacheError>> {
        Ok(Ok(()))
    }

    async fn remove(&mut self, _: String) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl clock::Host for State {
    async fn now(&mut self) -> wasmtime::Result<i64> {
        Ok(1_784_578_620_000)
    }

    async fn utc_offset_minutes(&mut self, _: i64) -> wasmtime::Result<i32> {
        Ok(0)
    }

    async fn time_zone(&mut self) -> wasmtime::Result<String> {
        Ok("UTC".to_owned())
    }

    async fn remaining_ms(&mut self) -> wasmtime::Result<u32> {
        Ok(10_000)
    }
}

impl progress::Host for State {
    async fn sent(&mut self, _: String) -> wasmtime::Result<()> {
        Ok(())
    }

    async fn refused(&mut self, _: String, _: types::Failure) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl plugin_store::Host for State {
    async fn get(&mut self, _: String) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn set(&mut self, _: String, _: Vec<u8>) -> wasmtime::Result<Result<(), plugin_store::StoreError>> {
        Ok(Ok(()))
    }

    async fn remove(&mut self, _: String) -> wasmtime::Result<()> {
        Ok(())
    }

    async fn keys(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl log::Host for State {
    async fn write(&mut self, _: log::Level, _: String) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl Harness {
    fn new() -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(64)
            .total_stacks(64)
            .total_memories(128)
            .total_tables(512)
            .max_memory_size(64 << 20);
        if PoolingAllocationConfig::is_pagemap_scan_available() {
            pool.pagemap_scan(Enabled::Yes).linear_memory_keep_resident(64 << 10).table_keep_resident(16 << 10);
        }
        let mut config = Config::new();
        config.epoch_interruption(true).concurrency_support(false).allocation_strategy(pool);
        let engine = Engine::new(&config).expect("the pool fits");
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).expect("WASI links");
        contract::PollerPlugin::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)
            .expect("the contract links");
        let plugin = builtin::ALL.iter().find(|plugin| plugin.kind == "proactive-deps").expect("it is built in");
        let component = Component::from_binary(&engine, plugin.component).expect("it compiles");
        let pre =
            contract::PollerPluginPre::new(linker.instantiate_pre(&component).expect("it links")).expect("it fits");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, engine, pre, body: Arc::new(body()) }
    }

    fn store(&self) -> Store<State> {
        let state = State { wasi: None, table: ResourceTable::new(), body: self.body.clone() };
        let mut store = Store::new(&self.engine, state);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
        store
    }
}

fn wire_target() -> types::Endpoint {
    types::Endpoint {
        id: "bench".to_owned(),
        name: "Bench".to_owned(),
        url: "http://127.0.0.1/".to_owned(),
        also: Vec::new(),
        labels: Vec::new(),
        settings: "{}".to_owned(),
        secrets: Vec::new(),
        timeout_ms: 10_000,
        extra: Vec::new(),
    }
}

/// One instance for all polls: what a host saves that lets one target's poll see another's memory.
#[divan::bench]
fn reused_instance(bencher: Bencher<'_, '_>) {
    let harness = Harness::new();
    let mut store = harness.store();
    let plugin = harness.runtime.block_on(harness.pre.instantiate_async(&mut store)).expect("it starts");
    let target = wire_target();
    bencher.bench_local(|| {
        let polled = harness.runtime.block_on(plugin.polliwog_plugin_poller().call_poll(&mut store, &target));
        polled.expect("it does not trap").expect("it reports").dependencies.len()
    });
}

/// An instance for each poll: what every real one gets.
#[divan::bench]
fn fresh_instance(bencher: Bencher<'_, '_>) {
    let harness = Harness::new();
    let target = wire_target();
    bencher.bench_local(|| {
        harness.runtime.block_on(async {
            let mut store = harness.store();
            let plugin = harness.pre.instantiate_async(&mut store).await.expect("it starts");
            let polled = plugin.polliwog_plugin_poller().call_poll(&mut store, &target).await;
            polled.expect("it does not trap").expect("it reports").dependencies.len()
        })
    });
}

/// A whole poll: sandbox, egress, a kept connection to a server in this process, and the conversion of its report.
#[divan::bench]
fn whole_poll_over_loopback(bencher: Bencher<'_, '_>) {
    let runtime = Runtime::new().expect("a runtime");
    let server = async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let body = String::from_utf8(body()).expect("the body is text");
        let routes = axum::Router::new().route("/", axum::routing::get(async move || body.clone()));
        tokio::spawn(async { axum::serve(listener, routes).await });
        address
    };
    let url = format!("http://{}/", runtime.block_on(server));
    let egress = egress::Egress::new(egress::Config::default());
    let compile = (env!("CARGO_BIN_EXE_compile"), [].as_slice());
    let compiler = sandbox::Compiler::temporary(compile, [7; 32], 1).expect("a temporary folder");
    let sandbox = sandbox::Sandbox::new(sandbox::Config::default(), compiler, &egress).expect("the sandbox");
    let plugin = builtin::ALL.iter().find(|plugin| plugin.kind == "proactive-deps").expect("it is built in");
    let plugin = runtime.block_on(sandbox.load(plugin.component)).expect("it loads");
    let (base, origin) = egress::Origin::parse(&url).expect("a URL");
    let origins = vec![egress::OriginGrant { origin, tls: egress::Tls::system().expect("roots") }];
    let secrets = egress::Secrets::default();
    let grant = Arc::new(egress::Grant::new(base, origins, secrets));
    let target = Arc::new(sandbox::Target {
        id: TargetId::new("bench").expect("an id"),
        name: "Bench".to_owned(),
        url,
        also: Vec::new(),
        labels: Vec::new(),
        settings: "{}".to_owned(),
        secrets: Vec::new(),
    });
    let job = || sandbox::Job {
        plugin: plugin.clone(),
        target: target.clone(),
        grant: grant.clone(),
        limits: sandbox::Limits::default(),
        timeout: Duration::from_secs(10),
        now: Timestamp::from_millis(0),
        tape: egress::Tape::Off,
        zone: None,
        stored: model::PluginValues::default(),
    };
    bencher.bench_local(|| match runtime.block_on(sandbox.poll(job())).outcome {
        Outcome::Success(report) => report.dependencies.len(),
        other => panic!("{other:?}"),
    });
}

/// The comparison of a report with what is known, when nothing changed.
#[divan::bench]
fn comparison(bencher: Bencher<'_, '_>) {
    let dependency = |n: usize| Dependency {
        latency_ms: Some(12.0),
        description: Some("Primary database of the order service".to_owned()),
        contact: Some(model::Json::checked(r#"{"email":"db-team@example.com"}"#)),
        ..Dependency::new(format!("dependency-{n}"), Status::Ok)
    };
    let report = Report { dependencies: (0..10).map(dependency).collect(), ..Report::default() };
    let mut known = store::KnownState::default();
    let aliases = store::Aliases::new();
    known.merge(Outcome::Success(report.clone()), Timestamp::from_millis(0), &aliases);
    bencher
        .with_inputs(|| Outcome::Success(report.clone()))
        .bench_local_values(|outcome| known.merge(outcome, Timestamp::from_millis(1), &aliases));
}
