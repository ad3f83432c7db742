//! Simulated Proxmox products: Virtual Environment, Backup Server and Mail Gateway.
//!
//! The URL selects the product and one or more scenarios: `http://127.0.0.1:7412/pve/healthy`,
//! `/pve/node-offline+storage-full`, `/pve/nodes-16+guests-5000`. The path of the real product follows:
//! `/api2/json/...`. So clients can use any number of scenarios at once, and the server has no state to reset.
//!
//! The values are invented. Where the public API documentation is incomplete, a comment names the source file of the
//! product that defines the behaviour: fields, envelope, reason phrases, the three seconds of a refused login, the
//! answers for a node that cannot be reached, and the data that is hidden without privileges.

mod mangle;
mod pbs;
mod pmg;
mod pve;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use hyper::ext::ReasonPhrase;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The token that the simulated Virtual Environment accepts.
pub const PVE_TOKEN: &str = "monitor@pve!polliwog=11111111-2222-3333-4444-555555555555";
/// The token that the simulated Backup Server accepts.
pub const PBS_TOKEN: &str = "monitor@pbs!polliwog:11111111-2222-3333-4444-555555555555";
/// The account of the simulated Mail Gateway.
pub const PMG_USER: &str = "monitor@pmg";
/// The password of [`PMG_USER`].
pub const PMG_PASSWORD: &str = "simulated & of no use";
/// Maximum size of a login form in bytes.
const FORM: usize = 64 << 10;
/// Duration of a refused login (pve-http-server: PVE/APIServer/AnyEvent.pm; proxmox-rest-server: rest.rs).
const REFUSED: Duration = Duration::from_secs(3);
/// A delay that is longer than the timeout of every client.
const NEVER: Duration = Duration::from_secs(3600);
/// How long the scenario `timetable` is healthy.
const WELL: Duration = Duration::from_secs(40);
/// How long the scenario `timetable` then lacks a node.
const LACKING: Duration = Duration::from_secs(20);

/// The scenarios of a URL.
#[derive(Clone, Debug, Default)]
struct Scenario {
    names: BTreeSet<String>,
    nodes: usize,
    guests: usize,
    groups: usize,
}

impl Scenario {
    /// Parses names separated by `+`. `nodes-N`, `guests-N` and `groups-N` set a count.
    fn read(spec: &str, start: Instant) -> Self {
        let number = |prefix: &str| spec.split('+').find_map(|word| word.strip_prefix(prefix)?.parse().ok());
        let mut names: BTreeSet<String> = spec.split('+').map(str::to_owned).collect();
        let cycle = WELL + LACKING;
        let phase = start.elapsed().as_secs() % cycle.as_secs();
        if names.contains("timetable") && phase >= WELL.as_secs() {
            names.insert("node-offline".to_owned());
        }
        Self {
            names,
            nodes: number("nodes-").unwrap_or(3),
            guests: number("guests-").unwrap_or(8),
            groups: number("groups-").unwrap_or(4),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// The parts of a request that the products use.
struct ApiRequest<'a> {
    path: &'a str,
    query: &'a str,
    authorization: Option<&'a str>,
    cookie: Option<&'a str>,
    /// The fields of a form body.
    form: &'a [(String, String)],
    /// Seconds since the Unix epoch.
    now: i64,
}

/// The answer of a product.
enum Reply {
    /// Status 200 with data in an envelope.
    Data(Value),
    /// Another status: status, reason phrase and body.
    Error(u16, String, String),
    /// Status 200 with a part of a list, in an envelope with the total number of entries.
    Counted(Value, usize),
    /// Status 401 after three seconds: reason phrase and body.
    Refused(Cow<'static, str>, &'static str),
    /// No answer.
    Never,
}

impl Reply {
    /// A refused login without a body.
    fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(reason.into(), "")
    }

    /// The answer for a node that the requested node cannot reach. The codes are those of AnyEvent::HTTP.
    fn proxy(status: u16, reason: &str) -> Self {
        Self::Error(status, reason.to_owned(), String::new())
    }
}

/// Returns the list of a node's certificates (PVE/CertHelpers.pm) with these two files. The first expires in ten years,
/// or in two days with `ca-ends`. The second expires in a year, in two days with `certificate-ends`, or has expired two
/// days ago with `certificate-ended`.
fn certificates(scenario: &Scenario, now: i64, files: [&str; 2]) -> Value {
    const DAY: i64 = 24 * 3600;
    let days = if scenario.has("certificate-ends") {
        2
    } else if scenario.has("certificate-ended") {
        -2
    } else {
        365
    };
    let entry = |file: &str, days: i64| {
        json!({
            "filename": file, "subject": "/CN=simulated.example", "issuer": "/CN=Simulated CA", "san": ["simulated.example"],
            "notbefore": now - 30 * DAY, "notafter": now + days * DAY, "public-key-type": "rsaEncryption", "public-key-bits": 4096,
            "fingerprint": "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99",
        })
    };
    let [long, own] = files;
    json!([entry(long, if scenario.has("ca-ends") { 2 } else { 3650 }), entry(own, days)])
}

/// Returns the subscription in the format of all three products. There is none by default, an active one with
/// `subscribed`, and an expired one with `subscription-expired`.
fn subscription(scenario: &Scenario) -> Value {
    let status = if scenario.has("subscribed") { "active" } else { "expired" };
    if scenario.has("subscribed") || scenario.has("subscription-expired") {
        return json!({ "status": status, "productname": "Simulated Community Subscription", "nextduedate": "2027-03-01" });
    }
    json!({ "status": "notfound", "message": "There is no subscription key" })
}

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
