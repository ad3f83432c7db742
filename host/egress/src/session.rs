//! The public face: the process's egress, a lane's, and one poll's.

use crate::budget::{Bytes, Gauges, Slots};
use crate::captures::{self, Captured};
use crate::coalesce::Flights;
use crate::connect::{Destination, Resolve, SystemResolver};
use crate::exchange::{Common, Plan, Raw, exchange};
use crate::message::{Request, Response};
use crate::pool::Pool;
use crate::recording::{RecordedRequest, Tape};
use crate::secrets::Known;
use crate::tls::Certificate;
use crate::{Error, Grant, Origin, OriginGrant, requested};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// What the host decides about each of these; a plugin's word would break the connection or a promise.
const FORBIDDEN_HEADERS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
];

/// The room's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Requests at a time for each host.
    pub max_requests_per_host: usize,
    /// Bytes of bodies held at a time, over the whole process.
    pub max_body_bytes_in_flight: usize,
    /// Where this process listens: never connected to by a name.
    pub own_listeners: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_requests_per_host: 20, max_body_bytes_in_flight: 256 << 20, own_listeners: Vec::new() }
    }
}

/// The process's way out.
#[derive(Clone)]
pub struct Egress {
    common: Arc<Common>,
    flights: Arc<Flights>,
}

/// A runtime's share of it: requests that begin here are carried out here.
#[derive(Clone)]
pub struct Lane {
    egress: Egress,
    handle: Handle,
    pool: Arc<Pool>,
}

impl Egress {
    /// The way out of a process; make one.
    pub fn new(config: Config) -> Self {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// The same, with another resolver than the system's.
    pub fn with_resolver(config: Config, resolver: Arc<dyn Resolve>) -> Self {
        let common = Common {
            resolver,
            own: config.own_listeners,
            user_agent: HeaderValue::from_static(concat!("polliwog/", env!("CARGO_PKG_VERSION"))),
            slots: Slots::new(config.max_requests_per_host),
            bytes: Bytes::new(config.max_body_bytes_in_flight),
            gauges: Gauges::default(),
        };
        Self { common: Arc::new(common), flights: Arc::default() }
    }

    /// The share of the runtime behind `handle`.
    pub fn lane(&self, handle: Handle) -> Lane {
        Lane { egress: self.clone(), handle, pool: Arc::default() }
    }

    /// What has happened so far.
    pub fn gauges(&self) -> &Gauges {
        &self.common.gauges
    }
}

/// What one poll may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in all.
    pub requests: u32,
    /// Bytes of one body.
    pub body: usize,
    /// Bytes of all bodies.
    pub bodies: usize,
}

/// What a poll has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests made.
    pub requests: u32,
    /// Bytes of bodies received.
    pub bytes: u64,
}

/// One poll's requests.
pub struct Session {
    lane: Lane,
    grant: Arc<Grant>,
    limits: Limits,
    deadline: Instant,
    requests: AtomicU32,
    bytes: AtomicUsize,
    secrets: Mutex<BTreeSet<String>>,
    captured: Arc<Captured>,
    tape: Tape,
}

impl Session {
    /// For a poll that ends at `deadline` at the latest.
    pub fn new(lane: Lane, grant: Arc<Grant>, limits: Limits, deadline: Instant) -> Self {
        let (requests, bytes, secrets) = (AtomicU32::new(0), AtomicUsize::new(0), Mutex::default());
        let captured = Arc::default();
        Self { lane, grant, limits, deadline, requests, bytes, secrets, captured, tape: Tape::Off }
    }

    /// The same, recording, or answered from a recording.
    #[must_use]
    pub fn with_tape(self, tape: Tape) -> Self {
        Self { tape, ..self }
    }

    /// The same, with what was captured before, and room for what will be.
    #[must_use]
    pub fn with_captured(self, captured: Arc<Captured>) -> Self {
        Self { captured, ..self }
    }

    /// Whether a secret of this name is the operator's, or was captured and has not expired.
    pub fn has_secret(&self, name: &str) -> bool {
        self.grant.secrets.contains(name) || self.captured.good().contains(name)
    }

    /// Drops a captured secret.
    pub fn forget_secret(&self, name: &str) {
        self.captured.forget(name);
    }

    /// What the target may reach.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// What was used up so far.
    pub fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.load(Ordering::Relaxed).min(self.limits.requests),
            bytes: self.bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// Names of the secrets that were filled in so far.
    pub fn secrets_used(&self) -> Vec<String> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn note_secrets(&self, request: &Request, known: &Known<'_>) {
        let names = |text: &str| known.named_in(text).map(str::to_owned).collect::<Vec<_>>();
        let mut used: Vec<String> = request.headers.iter().flat_map(|(_, value)| names(value)).collect();
        used.extend(
            request.body.as_deref().and_then(|body| std::str::from_utf8(body).ok()).into_iter().flat_map(names),
        );
        if !used.is_empty() {
            self.secrets.lock().unwrap_or_else(PoisonError::into_inner).extend(used);
        }
    }

    /// Sends a request and waits for its whole answer.
    pub async fn fetch(&self, request: Request) -> Result<Response, Error> {
        let Tape::Record(recorder) = &self.tape else { return self.answer(request).await };
        let url = address(&self.grant, &request.path)
            .map_or_else(|_| request.path.clone(), |(origin, path)| format!("{origin}{path}"));
        if self.requests.load(Ordering::Relaxed) >= self.limits.requests {
            // It is refused unsent, and so may be a million more.
            return self.answer(request).await;
        }
        let (place, recorded) = (recorder.place(), RecordedRequest::of(&request, url));
        let result = self.answer(request).await;
        recorder.keep(place, recorded, &result);
        result
    }

    async fn answer(&self, request: Request) -> Result<Response, Error> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.limits.requests {
            return Err(Error::TooManyRequests(self.limits.requests));
        }
        captures::check(&request, &self.grant.secrets)?;
        let start = Instant::now();
        let timeout = request.timeout;
        let deadline = timeout.map_or(self.deadline, |timeout| self.deadline.min(start + timeout));
        let left = self.limits.bodies.saturating_sub(self.bytes.load(Ordering::Relaxed));
        let cap = self.limits.body.min(left);
        let captured = self.captured.good();
        let all = [&self.grant.secrets, &*captured];
        let known = Known(&all);
        if !known.is_empty() {
            self.note_secrets(&request, &known);
        }
        let captures = request.captures.clone();
        let plan = plan(&self.grant, &known, request)?;
        if let Tape::Replay(player) = &self.tape {
            let url = format!("{}{}", plan.destination.origin, plan.path_and_query);
            let response = player.answer(plan.method.as_str(), &url)?.replayed()?;
            self.count_body(response.body.len(), cap)?;
            self.captured.keep(&captures, &captures::Answer::of(&response))?;
            return Ok(response);
        }
        let Lane { egress, handle, pool } = &self.lane;
        let (common, pool) = (egress.common.clone(), pool.clone());
        let flight = egress.flights.join(plan, cap, (handle, &egress.common.gauges), |plan, progress| async move {
            exchange(&common, &pool, &plan, &progress).await
        });
        let raw = match timeout_at(deadline, flight.answer.clone()).await {
            Ok(result) => result.map_err(|error| masked(&known, error))?,
            Err(_) => {
                let (after, phase) = (start.elapsed(), flight.progress.phase());
                // Whoever gave it longer than the poll has left cannot blame the server.
                let cut = timeout.is_some_and(|timeout| start + timeout > self.deadline);
                return Err(if cut { Error::PollOver { after, phase } } else { Error::Timeout { after, phase } });
            }
        };
        let length = raw.body.len();
        self.count_body(length, cap)?;
        drop(flight);
        // Whoever is alone with the answer takes its body; the others copy it.
        let budget = &egress.common.bytes;
        let raw = match Arc::try_unwrap(raw) {
            Ok(raw) => raw,
            Err(shared) => {
                let held = budget.try_hold(length).ok_or(Error::Overloaded { limit: budget.limit() })?;
                shared.copy(held)
            }
        };
        let Raw { status, headers, body, .. } = &raw;
        self.captured.keep(&captures, &captures::Answer { status: *status, headers, body })?;
        // What was good when it was asked, and what this answer brought: a ticket may come back that it replaces.
        let brought = self.captured.good();
        if Arc::ptr_eq(&brought, &captured) {
            return Ok(respond(&known, raw));
        }
        Ok(respond(&Known(&[&self.grant.secrets, &captured, &brought]), raw))
    }

    fn count_body(&self, length: usize, cap: usize) -> Result<(), Error> {
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        if length > cap || before.saturating_add(length) > self.limits.bodies {
            return Err(Error::BodyTooLarge { limit: cap });
        }
        Ok(())
    }
}

/// The answer as the plugin may see it.
fn respond(known: &Known<'_>, raw: Raw) -> Response {
    let certificate = |tls: Arc<Certificate>| {
        let tls = Certificate::clone(&tls);
        Certificate { subject: known.masked(tls.subject), issuer: known.masked(tls.issuer), ..tls }
    };
    Response {
        status: raw.status,
        reason: known.masked(raw.reason),
        headers: raw.headers.into_iter().map(|(name, value)| (known.masked(name), known.masked(value))).collect(),
        body: known.masked_body(raw.body),
        timing: raw.timing,
        tls: raw.tls.map(certificate),
        _held: raw.held,
    }
}

/// A server's words can stand in an error, and a secret in them.
fn masked(known: &Known<'_>, error: Error) -> Error {
    match error {
        Error::Protocol { name, why } => Error::Protocol { name, why: known.masked(why) },
        Error::TlsFailed { name, why } => Error::TlsFailed { name, why: known.masked(why) },
        Error::EncodedBody(encoding) => Error::EncodedBody(known.masked(encoding)),
        other => other,
    }
}

/// Checks a request against the grant and fills in its secrets.
fn plan(grant: &Grant, known: &Known<'_>, request: Request) -> Result<Plan, Error> {
    let (origin, path_and_query) = address(grant, &request.path)?;
    grant.narrowing.check(request.method, &path_and_query)?;
    let OriginGrant { tls, .. } = grant.origins.iter().find(|granted| granted.origin == origin).ok_or_else(|| {
        let what = format!("{origin} is not an origin of this target");
        Error::Denied { what, why: "a request goes to the target's url or one of its also, and nowhere else" }
    })?;
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for (name, value) in &request.headers {
        let (name, value) = header(known, name, value)?;
        headers.append(name, value);
    }
    let body = match request.body {
        Some(body) => known.expand_body(body, request.body_encoding)?,
        None => Vec::new(),
    };
    let destination = Destination { origin, tls: tls.clone(), reach: grant.reach.clone() };
    // Whoever joined would get an answer with a secret in it that is not theirs.
    let shared = request.captures.is_empty();
    Ok(Plan { destination, method: request.method, path_and_query, headers, body: body.into(), shared })
}

fn address(grant: &Grant, path: &str) -> Result<(Origin, String), Error> {
    // What a URL parser would silently drop or turn round is refused, so that what was judged is what is sent.
    if let Some(odd) = path.chars().find(|c| c.is_control() || matches!(c, ' ' | '\\')) {
        return Err(Error::BadRequest(format!("its path has the character {odd:?}, which must be percent-encoded")));
    }
    let url = grant.base.join(path).map_err(|error| Error::BadRequest(format!("its path {path:?}: {error}")))?;
    requested(&url).map_err(|error| Error::BadRequest(error.to_string()))
}

fn header(known: &Known<'_>, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let name: HeaderName = name.parse().map_err(|_| Error::BadRequest(format!("{name:?} is no name of a header")))?;
    if FORBIDDEN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        return Err(Error::BadRequest(format!("the header {name} is the host's to set")));
    }
    let expanded = known.expand_header(value)?;
    let mut value = HeaderValue::from_bytes(expanded.as_bytes()).map_err(|_| {
        Error::BadRequest(format!("the value of its header {name} has a line break or control character"))
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}
