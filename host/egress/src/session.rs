//! The public face: the process's egress, a lane's, and one poll's.

use crate::budget::{Bytes, Gauges, Slots, Sockets};
use crate::captures::{self, Answer, Captured, Place, Sent};
use crate::coalesce::Flights;
use crate::connect::{Destination, Resolve, SystemResolver};
use crate::exchange::{Common, Plan, Raw, Reading, exchange};
use crate::message::{Request, Response};
use crate::pool::Pool;
use crate::recording::{RecordedRequest, Tape};
use crate::secrets::{Known, Secrets};
use crate::tls::Certificate;
use crate::{Error, Grant, Narrowing, Origin, OriginGrant, requested};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// What the host decides about each of these; a plugin's word would break the connection or a promise. The answer to a
/// request for a range, a difference or a character set of the plugin's choice can hold a secret in a form that is not
/// recognised.
const FORBIDDEN_HEADERS: [&str; 16] = [
    "a-im",
    "accept-charset",
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
];

/// Headers of one request, and bytes of their names and values.
const HEADERS: (usize, usize) = (100, 64 << 10);
/// Bytes of one request's body, with its secrets filled in.
const BODY: usize = 1 << 20;
/// A poll that had more requests under way than this waits for itself, and not for others.
const OWN: usize = 10;
/// Bytes that one poll may send in all.
const SENT: usize = 8 << 20;

/// The room's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Requests at a time for each host.
    pub max_requests_per_host: usize,
    /// Bytes of bodies held at a time, over the whole process.
    pub max_body_bytes_in_flight: usize,
    /// Connections that may be open at a time, idle ones too.
    pub max_connections: usize,
    /// Where this process listens: never connected to by a name.
    pub own_listeners: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests_per_host: 20,
            max_body_bytes_in_flight: 256 << 20,
            max_connections: 16_384,
            own_listeners: Vec::new(),
        }
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
            sockets: Sockets::new(config.max_connections),
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
    /// Bytes of requests.
    sent: AtomicUsize,
    share: Arc<str>,
    reading: Arc<Reading>,
    /// Requests of this poll that wait for their answer, and the most that there were.
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
    /// Whether a request failed for want of something that this host should have had.
    starved: AtomicBool,
    /// Whether a request timed out before it was sent, while it waited for a slot.
    held_up: AtomicBool,
    /// Whether a request timed out after it was sent: the server did not answer.
    hung: AtomicBool,
    secrets: Mutex<BTreeSet<String>>,
    masking: tokio::sync::Mutex<()>,
    captured: Arc<Captured>,
    tape: Tape,
}

impl Session {
    /// For a poll that ends at `deadline` at the latest.
    pub fn new(lane: Lane, grant: Arc<Grant>, limits: Limits, deadline: Instant) -> Self {
        Self {
            lane,
            grant,
            limits,
            deadline,
            requests: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            share: "".into(),
            reading: Arc::new(Reading { limit: limits.bodies, bytes: AtomicUsize::new(0) }),
            waiting: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(0),
            starved: AtomicBool::new(false),
            held_up: AtomicBool::new(false),
            hung: AtomicBool::new(false),
            secrets: Mutex::default(),
            masking: tokio::sync::Mutex::default(),
            captured: Arc::default(),
            tape: Tape::Off,
        }
    }

    /// The same, recording, or answered from a recording.
    #[must_use]
    pub fn with_tape(self, tape: Tape) -> Self {
        Self { tape, ..self }
    }

    /// The same, for targets of this kind: slots are shared out by it.
    #[must_use]
    pub fn with_share(self, kind: &str) -> Self {
        Self { share: kind.into(), ..self }
    }

    /// Whether a request failed because this host lacked something, or because others held what it waited for. What came of
    /// the poll then says nothing of its target.
    ///
    /// A poll is not starved if one of its requests was sent and never answered: it waited for the server, and perhaps for slots
    /// that its own requests held.
    pub fn was_starved(&self) -> bool {
        let waited_for_others = self.most_waiting.load(Ordering::Relaxed) <= OWN
            && self.held_up.load(Ordering::Relaxed)
            && !self.hung.load(Ordering::Relaxed);
        self.starved.load(Ordering::Relaxed) || waited_for_others
    }

    /// The same, with what was captured before, and room for what will be.
    #[must_use]
    pub fn with_captured(self, captured: Arc<Captured>) -> Self {
        Self { captured, ..self }
    }

    /// Whether a secret of this name is the operator's, or was captured and has not expired.
    pub fn has_secret(&self, name: &str) -> bool {
        self.grant.secrets.contains(name) || self.captured.good().contains_key(name)
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
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_waiting.fetch_max(waiting, Ordering::Relaxed);
        let result = self.exchanged(request).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if result.as_ref().is_err_and(Error::is_ours) {
            self.starved.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn exchanged(&self, request: Request) -> Result<Response, Error> {
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
        let secrets = &self.grant.secrets;
        let known = Known { operators: secrets, captured: &captured };
        if !known.is_empty() {
            self.note_secrets(&request, &known);
        }
        let (captures, sent) = (request.captures.clone(), Sent::of(&request));
        let asked = matches!(self.tape, Tape::Replay(_)).then(|| RecordedRequest::of(&request, String::new()));
        let plan = plan((&self.grant, &self.share, &self.reading), &known, request).map_err(|error| match error {
            Error::SecretUnknown(name) => match self.captured.missed(&name) {
                Some(why) => Error::CaptureMissing { name, why },
                None => Error::SecretUnknown(name),
            },
            error => error,
        })?;
        if self.sent.fetch_add(plan.size(), Ordering::Relaxed).saturating_add(plan.size()) > SENT {
            return Err(Error::TooMuchSent { limit: SENT });
        }
        if let (Tape::Replay(player), Some(asked)) = (&self.tape, asked) {
            let url = format!("{}{}", plan.destination.origin, plan.path_and_query);
            let response = player.answer(&RecordedRequest { url, ..asked })?.replayed()?;
            self.count_body(response.body.len(), cap)?;
            self.captured.keep((&captures, &sent), &Answer::of(&response))?;
            return Ok(response);
        }
        let Lane { egress, handle, pool } = &self.lane;
        let (common, pool) = (egress.common.clone(), pool.clone());
        let flight = egress.flights.join(plan, cap, (handle, &egress.common.gauges), |plan, progress| async move {
            exchange(&common, &pool, &plan, &progress).await
        });
        let raw = match timeout_at(deadline, flight.answer.clone()).await {
            Ok(Ok(raw)) => raw,
            Ok(Err(error)) => return Err(masked(secrets, error).await),
            Err(_) => {
                let (after, phase) = (start.elapsed(), flight.progress.phase());
                let whose = if flight.progress.is_held_up() { &self.held_up } else { &self.hung };
                whose.store(true, Ordering::Relaxed);
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
        let mut raw = raw;
        let answer = Answer { status: raw.status, headers: &raw.headers, body: &raw.body };
        let places = self.captured.keep((&captures, &sent), &answer)?;
        Place::star(places, &mut raw.headers, &mut raw.body);
        // One answer of a poll at a time: hundreds that come together would share a turn.
        let _turn = self.masking.lock().await;
        Ok(respond(secrets, raw).await)
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
async fn respond(secrets: &Secrets, raw: Raw) -> Response {
    let body = secrets.masked_body(raw.body).await;
    let mut headers = Vec::with_capacity(raw.headers.len());
    for (name, value) in raw.headers {
        // The length before masking tells how many characters of a secret had to be escaped.
        let is_length = name == "content-length" && !body.is_empty();
        let value = if is_length { body.len().to_string() } else { secrets.masked(value).await };
        headers.push((secrets.masked(name).await, value));
    }
    let tls = match raw.tls {
        Some(tls) => {
            let tls = Certificate::clone(&tls);
            let (subject, issuer) = (secrets.masked(tls.subject).await, secrets.masked(tls.issuer).await);
            Some(Certificate { subject, issuer, ..tls })
        }
        None => None,
    };
    let reason = secrets.masked(raw.reason).await;
    Response { status: raw.status, reason, headers, body, timing: raw.timing, tls, _held: raw.held }
}

/// A server's words can stand in an error, and a secret in them.
async fn masked(secrets: &Secrets, error: Error) -> Error {
    match error {
        Error::Protocol { name, why } => Error::Protocol { name, why: secrets.masked(why).await },
        Error::TlsFailed { name, why } => Error::TlsFailed { name, why: secrets.masked(why).await },
        Error::EncodedBody(encoding) => Error::EncodedBody(secrets.masked(encoding).await),
        other => other,
    }
}

/// Checks a request against the grant and fills in its secrets.
fn plan(
    (grant, share, reading): (&Grant, &Arc<str>, &Arc<Reading>),
    known: &Known<'_>,
    request: Request,
) -> Result<Plan, Error> {
    let (origin, path_and_query) = address(grant, &request.path)?;
    grant.narrowing.check(request.method, &path_and_query)?;
    let OriginGrant { tls, .. } = grant.origins.iter().find(|granted| granted.origin == origin).ok_or_else(|| {
        let what = format!("{origin} is not an origin of this target");
        Error::Denied { what, why: "a request goes to the target's url or one of its also, and nowhere else" }
    })?;
    let (most, longest) = HEADERS;
    if request.headers.len() > most {
        return Err(Error::BadRequest(format!("it has {} headers, more than {most}", request.headers.len())));
    }
    let mut headers = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in &request.headers {
        let (name, value) = header(&grant.narrowing, known, (name, value))?;
        bytes += name.as_str().len() + value.len();
        if bytes > longest {
            return Err(Error::BadRequest(format!("its headers are longer than {longest} bytes in all")));
        }
        headers.append(name, value);
    }
    if let Some(host) = grant.host.as_ref().filter(|_| grant.origins.first().is_some_and(|own| own.origin == origin)) {
        let value = HeaderValue::from_str(host).map_err(|error| Error::BadRequest(error.to_string()))?;
        headers.insert(HOST, value);
    }
    let body = match request.body {
        Some(body) if body.len() <= BODY => known.expand_body(body, request.body_encoding)?,
        Some(body) => body,
        None => Vec::new(),
    };
    if body.len() > BODY {
        return Err(Error::BadRequest(format!("its body is longer than {BODY} bytes")));
    }
    let destination = Destination { origin, tls: tls.clone(), reach: grant.reach.clone() };
    // Whoever joined would get an answer with a secret in it that is not theirs.
    let shared = request.captures.is_empty();
    let (share, reading) = (share.clone(), reading.clone());
    Ok(Plan { destination, method: request.method, path_and_query, headers, body: body.into(), shared, share, reading })
}

fn address(grant: &Grant, path: &str) -> Result<(Origin, String), Error> {
    // What a URL parser would silently drop or turn round is refused, so that what was judged is what is sent.
    if let Some(odd) = path.chars().find(|c| c.is_control() || matches!(c, ' ' | '\\')) {
        return Err(Error::BadRequest(format!("its path has the character {odd:?}, which must be percent-encoded")));
    }
    if ["${secret.", "${basic."].iter().any(|reference| path.contains(reference)) {
        let why = "its path refers to a secret: paths stand in the logs of servers and proxies; send it in a header or the body";
        return Err(Error::BadRequest(why.to_owned()));
    }
    let url = grant.base.join(path).map_err(|error| Error::BadRequest(format!("its path {path:?}: {error}")))?;
    requested(&url).map_err(|error| Error::BadRequest(error.to_string()))
}

fn header(
    narrowing: &Narrowing,
    known: &Known<'_>,
    (name, value): (&str, &str),
) -> Result<(HeaderName, HeaderValue), Error> {
    let bad =
        || Error::BadRequest(format!("{:?} is not the name of a header", name.chars().take(60).collect::<String>()));
    let name: HeaderName = name.parse().map_err(|_| bad())?;
    // Some servers take the one for the other.
    let usual = name.as_str().replace('_', "-");
    if FORBIDDEN_HEADERS.contains(&usual.as_str()) || usual.starts_with("proxy-") {
        let remedy = if usual == "host" { ": write it as host_header of the target" } else { "" };
        return Err(Error::BadRequest(format!("the header {name} is set by the host itself{remedy}")));
    }
    narrowing.check_header(&usual)?;
    let expanded = known.expand_header(value)?;
    let mut value = HeaderValue::from_bytes(expanded.as_bytes()).map_err(|_| {
        Error::BadRequest(format!("the value of its header {name} has a line break or control character"))
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}
