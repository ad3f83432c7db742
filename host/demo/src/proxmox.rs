//! A simulated estate of Proxmox products: Virtual Environment, Backup Server and Mail Gateway.
//!
//! An address says which product, and what is wrong with it: `http://127.0.0.1:7412/pve/healthy`,
//! `/pve/node-offline+storage-full`, `/pve/nodes-16+guests-5000`. Behind it follows what the real one serves,
//! `/api2/json/...`. So any number of them can be asked at once, and nothing has to be switched back.
//!
//! Values are made up. Each shape names the source file of the product that makes it, where the public API's own
//! documentation is silent: field by field, envelope, reason phrases, the three seconds that a refused log-in takes,
//! what is answered for a node that cannot be reached, what is hidden from whom.

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

/// The token that the simulated Virtual Environment takes.
pub const PVE_TOKEN: &str = "monitor@pve!polliwog=11111111-2222-3333-4444-555555555555";
/// The token that the simulated Backup Server takes.
pub const PBS_TOKEN: &str = "monitor@pbs!polliwog:11111111-2222-3333-4444-555555555555";
/// Who may log in to the simulated Mail Gateway.
pub const PMG_USER: &str = "monitor@pmg";
/// That account's password.
pub const PMG_PASSWORD: &str = "simulated & of no use";
/// The longest log-in form.
const FORM: usize = 64 << 10;
/// How long a refused log-in takes (pve-http-server: PVE/APIServer/AnyEvent.pm; proxmox-rest-server: rest.rs).
const REFUSED: Duration = Duration::from_secs(3);
/// Longer than anybody waits.
const NEVER: Duration = Duration::from_secs(3600);
/// How long the estate of the demo is well, and how long it then lacks a node.
const WELL: Duration = Duration::from_secs(40);
const LACKING: Duration = Duration::from_secs(20);

/// What an address asks for.
#[derive(Clone, Debug, Default)]
struct Wish {
    words: BTreeSet<String>,
    nodes: usize,
    guests: usize,
    groups: usize,
}

impl Wish {
    /// Words with `+` between them; `nodes-N`, `guests-N` and `groups-N` say how many.
    fn read(spec: &str, start: Instant) -> Self {
        let number = |prefix: &str| spec.split('+').find_map(|word| word.strip_prefix(prefix)?.parse().ok());
        let mut words: BTreeSet<String> = spec.split('+').map(str::to_owned).collect();
        let cycle = WELL + LACKING;
        let phase = start.elapsed().as_secs() % cycle.as_secs();
        if words.contains("timetable") && phase >= WELL.as_secs() {
            words.insert("node-offline".to_owned());
        }
        Self {
            words,
            nodes: number("nodes-").unwrap_or(3),
            guests: number("guests-").unwrap_or(8),
            groups: number("groups-").unwrap_or(4),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(word)
    }
}

/// A request as the products see it.
struct Asked<'a> {
    path: &'a str,
    query: &'a str,
    authorization: Option<&'a str>,
    cookie: Option<&'a str>,
    /// What a form holds.
    form: &'a [(String, String)],
    /// Seconds since 1970.
    now: i64,
}

/// What a product answers.
enum Reply {
    /// 200, in an envelope.
    Data(Value),
    /// Anything else: status, reason phrase, and body.
    Error(u16, String, String),
    /// 200, in an envelope that says how many there are of what it holds a part of.
    Counted(Value, usize),
    /// 401, after three seconds: reason phrase and body.
    Refused(Cow<'static, str>, &'static str),
    /// None.
    Never,
}

impl Reply {
    /// A log-in that is refused, without a body.
    fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(reason.into(), "")
    }

    /// A node cannot be reached by the one that was asked (AnyEvent::HTTP's own codes, passed through).
    fn proxy(status: u16, reason: &str) -> Self {
        Self::Error(status, reason.to_owned(), String::new())
    }
}

/// What is listed of a node's certificates (PVE/CertHelpers.pm), of these two files: the first ends in ten years, or, with
/// `ca-ends`, in two days; the second ends in a year, or, with `certificate-ends`, in two days, or, with `certificate-ended`,
/// two days ago.
fn certificates(wish: &Wish, now: i64, files: [&str; 2]) -> Value {
    const DAY: i64 = 24 * 3600;
    let days = if wish.has("certificate-ends") {
        2
    } else if wish.has("certificate-ended") {
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
    json!([entry(long, if wish.has("ca-ends") { 2 } else { 3650 }), entry(own, days)])
}

/// What all three say of a subscription: most nodes have none. With `subscribed` there is one, and with
/// `subscription-expired` there was.
fn subscription(wish: &Wish) -> Value {
    let status = if wish.has("subscribed") { "active" } else { "expired" };
    if wish.has("subscribed") || wish.has("subscription-expired") {
        return json!({ "status": status, "productname": "Simulated Community Subscription", "nextduedate": "2027-03-01" });
    }
    json!({ "status": "notfound", "message": "There is no subscription key" })
}

/// What can be wished of a product; nothing where it is none.
fn wishes(product: &str) -> Option<impl Iterator<Item = &'static (&'static str, &'static str)>> {
    let own = match product {
        "pve" => pve::WISHES,
        "pbs" => pbs::WISHES,
        "pmg" => pmg::WISHES,
        _ => return None,
    };
    Some(mangle::WISHES.iter().chain(own))
}

/// The list of what can be wished, for whoever asks for none of it.
fn told(product: &str, why: &str) -> Response {
    let Some(wishes) = wishes(product) else { return StatusCode::NOT_FOUND.into_response() };
    let line = |(word, what): &(&str, &str)| format!("  {word:<24}{what}").trim_end().to_owned();
    let lines: Vec<String> = wishes.map(line).collect();
    let numbers = "  nodes-N, guests-N, groups-N  so many of them";
    let text = format!(
        "{why}/{product}/WISH or /{product}/WISH+WISH, where WISH is one of\n{numbers}\n{}\n",
        lines.join("\n")
    );
    (StatusCode::NOT_FOUND, text).into_response()
}

/// A word that is no wish.
fn unknown<'a>(product: &str, spec: &'a str) -> Option<&'a str> {
    let known: BTreeSet<&str> = wishes(product)?.map(|(word, _)| *word).collect();
    let counts = |word: &str| {
        ["nodes-", "guests-", "groups-"]
            .iter()
            .any(|of| word.strip_prefix(of).is_some_and(|number| number.parse::<usize>().is_ok()))
    };
    spec.split('+').find(|word| !known.contains(word) && !counts(word))
}

/// Answers a request for `/PRODUCT/WISH/...`.
pub(crate) async fn answer(request: Request, start: Instant, now: i64) -> Response {
    let uri = request.uri().clone();
    let path = percent_decoded(uri.path());
    let mut parts = path.splitn(4, '/').skip(1);
    let (product, spec) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if spec.is_empty() {
        return told(product, "");
    }
    if let Some(word) = unknown(product, spec) {
        return told(product, &format!("{word:?} is no wish. Ask for "));
    }
    let wish = Wish::read(spec, start);
    let rest = format!("/{}", parts.next().unwrap_or_default());
    if wish.has("silent") {
        sleep(NEVER).await;
    }
    if wish.has("login-page") {
        return Html("<!DOCTYPE html><html><head><title>Log in</title></head><body><form></form></body></html>")
            .into_response();
    }
    if wish.has("redirect") {
        return (StatusCode::FOUND, [(header::LOCATION, "https://sso.example/login")]).into_response();
    }
    let Some(path) = rest.strip_prefix("/api2/json") else { return StatusCode::NOT_FOUND.into_response() };
    let (parts, body) = request.into_parts();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let (authorization, cookie) = (header(header::AUTHORIZATION), header(header::COOKIE));
    let body = axum::body::to_bytes(body, FORM).await.unwrap_or_default();
    let form = url::form_urlencoded::parse(&body).into_owned().collect::<Vec<_>>();
    let asked = Asked { path, query: uri.query().unwrap_or_default(), authorization, cookie, form: &form, now };
    let reply = match product {
        "pve" => pve::answer(&wish, &asked),
        "pbs" => pbs::answer(&wish, &asked),
        "pmg" => pmg::answer(&wish, &asked),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    respond(&wish, reply).await
}

async fn respond(wish: &Wish, reply: Reply) -> Response {
    let (status, reason, body) = match reply {
        Reply::Data(data) => (200, "OK".to_owned(), mangle::body(wish, data, None)),
        Reply::Counted(data, total) => (200, "OK".to_owned(), mangle::body(wish, data, Some(total))),
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
    // What an HTTP library would write by itself says nothing about what is wrong.
    if let Ok(reason) = ReasonPhrase::try_from(reason.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// `+` and `!` in paths come encoded from some.
fn percent_decoded(path: &str) -> String {
    path.replace("%2B", "+").replace("%2b", "+")
}
