//! The answers of the simulated services.

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Delay of the slow service.
const SLOW: Duration = Duration::from_millis(2500);
/// The flaky service fails the last two of this many requests.
const FLAKY: u32 = 7;

/// Returns a router with all services except the one that restarts.
pub(crate) fn router(start: Instant) -> Router {
    let seconds = move || start.elapsed().as_secs();
    let requests = Arc::new(AtomicU32::new(0));
    Router::new()
        .route("/", get(async || Html("<h1>Welcome</h1>")))
        .route("/shop/dependencies", get(async move || body(&shop(seconds()))))
        .route("/legacy/health", get(async move || body(&legacy(seconds()))))
        .route("/actuator/health", get(async move || health(&spring(seconds()), "DOWN")))
        .route("/aspnet/health", get(async move || health(&aspnet(seconds()), "Unhealthy")))
        .route("/status", get(async move || body(&status_page(seconds()))))
        .route("/queues", get(async move || body(&queues(seconds()))))
        .route("/sites/{site}/{part}", get(async move |Path((site, _)): Path<(String, String)>| line(&site, seconds())))
        .route("/flaky", get(async move || flaky(requests.fetch_add(1, Ordering::Relaxed))))
        .route("/slow", get(slow))
        .route(
            "/vault",
            get(async || (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "token required")),
        )
}

/// The line of one site is cut for a minute in three.
fn line(site: &str, seconds: u64) -> Response {
    const PERIOD: u64 = 180;
    match site == "basel-1" && (60..120).contains(&(seconds % PERIOD)) {
        true => (StatusCode::BAD_GATEWAY, "the provider of this site does not answer").into_response(),
        false => body(&json!({ "site": site, "line": "up" })),
    }
}

/// Returns a router of the service that stops and restarts.
pub(crate) fn phoenix() -> Router {
    let answer = json!([item("ashes", "OK", 3.0), item("feathers", "OK", 5.0)]);
    Router::new().route("/dependencies", get(async move || body(&answer)))
}

fn body(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Returns a report like Spring Boot and ASP.NET: with status 503 if the field `status` equals `down`.
fn health(report: &Value, down: &str) -> Response {
    let status = if report["status"] == down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, body(report)).into_response()
}

/// Returns an item like the proactive-deps library, with a state and a code that does not represent the state.
fn item(name: &str, state: &str, latency: f64) -> Value {
    let code = match state {
        "OK" => 0,
        "CRITICAL" => 1,
        _ => 2,
    };
    let mut item = json!({
        "name": name,
        "description": format!("{name} of the shop"),
        "impact": "Orders may be late",
        "healthy": state != "CRITICAL",
        "health": { "state": state, "code": code, "latency": latency, "skipped": false },
        "contact": { "team": "Platform" },
    });
    if state == "CRITICAL" {
        item["error"] = json!({ "name": "Error", "message": "connect ECONNREFUSED" });
        item["errorMessage"] = json!(format!("{name} does not answer"));
    }
    item
}

/// The state of the queue changes over time. One check is skipped, and one item is broken.
fn shop(seconds: u64) -> Value {
    let queue = ["OK", "OK", "WARNING", "CRITICAL", "WARNING"][(seconds / 15 % 5) as usize];
    let mut skipped = item("carrier-pigeon", "OK", 0.0);
    skipped["health"]["skipped"] = json!(true);
    let wave = 10.0 + (seconds % 20) as f64;
    let mut items = vec![item("postgres", "OK", wave), item("redis", "OK", 1.5), item("queue", queue, 40.0), skipped];
    if (seconds / 30).is_multiple_of(2) {
        items.push(item("recommendations", "OK", 80.0));
    }
    items.push(json!({ "name": "broken item", "healthy": "perhaps" }));
    Value::from(items)
}

fn legacy(seconds: u64) -> Value {
    json!([
        { "name": "mainframe", "healthy": true, "healthCode": 200, "latencyMs": 120 },
        { "name": "printer", "healthy": (seconds / 40).is_multiple_of(2), "healthCode": 200, "latencyMs": 30 },
    ])
}

fn spring(seconds: u64) -> Value {
    let disk = if seconds / 25 % 4 == 3 { "DOWN" } else { "UP" };
    json!({ "status": disk, "components": {
        "db": { "status": "UP", "details": { "database": "PostgreSQL" } },
        "diskSpace": { "status": disk, "details": { "total": 107_374_182_400_u64, "free": 85_899_345_920_u64 } },
        "ping": { "status": "UP" },
    } })
}

fn aspnet(seconds: u64) -> Value {
    let redis = ["Healthy", "Degraded", "Unhealthy", "Degraded"][(seconds / 20 % 4) as usize];
    json!({ "status": redis, "totalDuration": "00:00:00.1734567", "entries": {
        "sqlserver": { "status": "Healthy", "duration": "00:00:00.0234567", "description": "SQL Server", "data": {}, "tags": [] },
        "redis": { "status": redis, "duration": "00:00:00.1500000", "description": "Redis", "data": {}, "tags": ["ready"] },
        "oracle": { "status": "Bewildered", "description": "The state is unknown", "data": {}, "tags": [] },
    } })
}

fn status_page(seconds: u64) -> Value {
    json!({ "meta": { "version": "2.1.0" }, "data": { "services": [
        { "serviceName": "Payment gateway", "isActive": true, "metrics": { "latencyMs": 45 }, "severity": "high", "label": "Card payments" },
        { "serviceName": "Email", "isActive": (seconds / 60).is_multiple_of(2), "metrics": { "latencyMs": 20 }, "severity": "low", "label": "Mail" },
    ] } })
}

/// Returns the number of messages in each queue, the input of the plugins that `polliwog plugin new` creates. One
/// number is a string.
fn queues(seconds: u64) -> Value {
    let wave = [12, 80, 240, 1200][(seconds / 20 % 4) as usize];
    json!({ "mail": 12, "orders": wave.to_string(), "invoices": 40 })
}

fn flaky(request: u32) -> Response {
    if request % FLAKY >= FLAKY - 2 {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "2")], "try again").into_response();
    }
    body(&json!([item("upstream", "OK", 12.0)]))
}

async fn slow() -> &'static str {
    sleep(SLOW).await;
    "at last"
}
