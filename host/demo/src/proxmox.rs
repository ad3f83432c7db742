//! Simulated Proxmox products: Virtual Environment, Backup Server and Mail Gateway.
//!
//! The URL selects the product and one or more scenarios: `http://127.0.0.1:7412/pve/healthy`,
//! `/pve/node-offline+storage-full`, `/pve/nodes-16+guests-5000`. The path of the real product follows:
//! `/api2/json/...`. So clients can use any number of scenarios at once, and the server has no state to reset.
//!
//! The values are invented. Where the public API documentation is incomplete, a comment names the source file of the
//! product that defines the behaviour: fields, envelope, reason phrases, the three seconds of a refused login, the
//! answers for a node that cannot be reached, and the data that is hidden without privileges.

mod api;
mod mangle;
mod pbs;
mod pmg;
mod pve;

pub use api::{PBS_TOKEN, PMG_PASSWORD, PMG_USER, PVE_TOKEN};

use api::{ApiRequest, Reply, Scenario};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use hyper::ext::ReasonPhrase;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum size of a login form in bytes.
const FORM: usize = 64 << 10;
/// Duration of a refused login (pve-http-server: PVE/APIServer/AnyEvent.pm; proxmox-rest-server: rest.rs).
const REFUSED: Duration = Duration::from_secs(3);
/// A delay that is longer than the timeout of every client.
const NEVER: Duration = Duration::from_secs(3600);
/// Returns the scenarios of a product with their descriptions. `None` if the product does not exist.
fn scenarios(product: &str) -> Option<impl Iterator<Item = &'static (&'static str, &'static str)>> {
    let own = match product {
        "pve" => pve::SCENARIOS,
        "pbs" => pbs::SCENARIOS,
        "pmg" => pmg::SCENARIOS,
        _ => return None,
    };
    Some(mangle::SCENARIOS.iter().chain(own))
}

/// Returns status 404 with the list of scenarios, after `problem`.
fn scenario_list(product: &str, problem: &str) -> Response {
    let Some(scenarios) = scenarios(product) else { return StatusCode::NOT_FOUND.into_response() };
    let line = |(name, description): &(&str, &str)| format!("  {name:<24}{description}").trim_end().to_owned();
    let lines: Vec<String> = scenarios.map(line).collect();
    let counts = "  nodes-N, guests-N, groups-N  the number of nodes, guests or groups";
    let text = format!(
        "{problem}use /{product}/SCENARIO or /{product}/SCENARIO+SCENARIO, where SCENARIO is one of\n{counts}\n{}\n",
        lines.join("\n")
    );
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Returns the first name in a URL that is not a scenario of the product.
fn unknown<'a>(product: &str, spec: &'a str) -> Option<&'a str> {
    let known: BTreeSet<&str> = scenarios(product)?.map(|(name, _)| *name).collect();
    let is_count = |name: &str| {
        ["nodes-", "guests-", "groups-"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|number| number.parse::<usize>().is_ok()))
    };
    spec.split('+').find(|name| !known.contains(name) && !is_count(name))
}

/// Answers a request for `/PRODUCT/SCENARIO/...`.
pub(crate) async fn answer(request: Request, start: Instant, now: i64) -> Response {
    let uri = request.uri().clone();
    let path = percent_decoded(uri.path());
    let mut parts = path.splitn(4, '/').skip(1);
    let (product, spec) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if spec.is_empty() {
        return scenario_list(product, "");
    }
    if let Some(name) = unknown(product, spec) {
        return scenario_list(product, &format!("unknown scenario {name:?}; "));
    }
    let scenario = Scenario::read(spec, start);
    let rest = format!("/{}", parts.next().unwrap_or_default());
    if scenario.has("silent") {
        sleep(NEVER).await;
    }
    if scenario.has("login-page") {
        return Html("<!DOCTYPE html><html><head><title>Log in</title></head><body><form></form></body></html>")
            .into_response();
    }
    if scenario.has("redirect") {
        return (StatusCode::FOUND, [(header::LOCATION, "https://sso.example/login")]).into_response();
    }
    let Some(path) = rest.strip_prefix("/api2/json") else { return StatusCode::NOT_FOUND.into_response() };
    let (parts, body) = request.into_parts();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let (authorization, cookie) = (header(header::AUTHORIZATION), header(header::COOKIE));
    let body = axum::body::to_bytes(body, FORM).await.unwrap_or_default();
    let form = url::form_urlencoded::parse(&body).into_owned().collect::<Vec<_>>();
    let api_request =
        ApiRequest { path, query: uri.query().unwrap_or_default(), authorization, cookie, form: &form, now };
    let reply = match product {
        "pve" => pve::answer(&scenario, &api_request),
        "pbs" => pbs::answer(&scenario, &api_request),
        "pmg" => pmg::answer(&scenario, &api_request),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    respond(&scenario, reply).await
}

async fn respond(scenario: &Scenario, reply: Reply) -> Response {
    let (status, reason, body) = match reply {
        Reply::Data(data) => (200, "OK".to_owned(), mangle::body(scenario, data, None)),
        Reply::Counted(data, total) => (200, "OK".to_owned(), mangle::body(scenario, data, Some(total))),
        Reply::Error(status, reason, body) => (status, reason, body),
        Reply::Refused(reason, body) => {
            sleep(REFUSED).await;
            (401, reason.into_owned(), body.to_owned())
        }
        Reply::Never => {
            sleep(NEVER).await;
            return StatusCode::GATEWAY_TIMEOUT.into_response();
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json;charset=UTF-8"));
    // Set the reason phrase of the product, because the default phrase does not describe the problem.
    if let Ok(reason) = ReasonPhrase::try_from(reason.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Decodes `+` in a path, because some clients encode it.
fn percent_decoded(path: &str) -> String {
    path.replace("%2B", "+").replace("%2b", "+")
}
