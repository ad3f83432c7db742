//! The requests of one poll.

use crate::answer::{finished, response};
use crate::captures::{self, Answer, Captured, Place, Sent};
use crate::coalesce;
use crate::ended::Ended;
use crate::exchange;
use crate::in_flight::{Plan, Raw, Reading};
use crate::message::{Authentication, Capture, Exchanged, Request, Response, Timing};
use crate::peer::TlsSession;
use crate::plan::{Planned, Shared, plan};
use crate::process::Lane;
use crate::reading::Visible;
use crate::recording::Tape;
use crate::references::References;
use crate::secrets::AvailableSecrets;
use crate::signatures::Signing;
use crate::{Error, Grant, Seen};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::{Instant, timeout_at};

mod login;
mod shown;
mod taped;

use shown::{Shown, TlsSessions};

/// If a poll has more requests in flight than this, it waits for its own requests and not for other polls.
const MAX_OWN_WAITING: usize = 10;
/// Maximum size of all requests of one poll in bytes.
const MAX_SENT_BYTES: usize = 8 << 20;
/// The limits of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests.
    pub requests: u32,
    /// Maximum size of one body in bytes.
    pub body: usize,
    /// Maximum size of all bodies in bytes.
    pub bodies: usize,
}

/// The resources that a poll has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of requests.
    pub requests: u32,
    /// Number of body bytes received.
    pub bytes: u64,
}

/// The requests of one poll.
pub struct Session {
    lane: Lane,
    grant: Arc<Grant>,
    limits: Limits,
    deadline: Instant,
    requests: AtomicU32,
    /// The number of exchanges so far.
    exchanges: AtomicU32,
    /// The TLS sessions of the exchanges.
    tls: TlsSessions,
    bytes: AtomicUsize,
    /// Bytes of the requests sent so far.
    sent: AtomicUsize,
    /// The work of the signatures so far.
    signed: AtomicU64,
    /// Bytes that patterns have searched so far.
    searched: AtomicUsize,
    /// Whether a server has refused the answer to a challenge.
    login_refused: AtomicBool,
    /// The time of the poll in seconds since the Unix epoch.
    now: i64,
    share: Arc<str>,
    reading: Arc<Reading>,
    /// Number of requests of this poll in flight.
    waiting: AtomicUsize,
    /// The highest value of `waiting` so far.
    most_waiting: AtomicUsize,
    ended: Ended,
    /// Names of the secrets that were inserted so far.
    secrets: Mutex<BTreeSet<String>>,
    /// Serialises the masking of answers.
    masking: tokio::sync::Mutex<()>,
    captured: Arc<Captured>,
    /// Shows that the captured secrets are in use.
    _use: Option<OwnedRwLockReadGuard<()>>,
    references: References,
    tape: Tape,
}

impl Session {
    /// Creates the session of a poll that ends at `deadline` at the latest.
    pub fn new(lane: Lane, grant: Arc<Grant>, limits: Limits, deadline: Instant) -> Self {
        Self {
            lane,
            grant,
            limits,
            deadline,
            requests: AtomicU32::new(0),
            exchanges: AtomicU32::new(0),
            tls: TlsSessions::default(),
            bytes: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            signed: AtomicU64::new(0),
            searched: AtomicUsize::new(0),
            login_refused: AtomicBool::new(false),
            now: 0,
            share: "".into(),
            reading: Arc::new(Reading { limit: limits.bodies, ..Reading::default() }),
            waiting: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(0),
            ended: Ended::default(),
            secrets: Mutex::default(),
            masking: tokio::sync::Mutex::default(),
            captured: Arc::default(),
            _use: None,
            references: References::default(),
            tape: Tape::Off,
        }
    }

    /// Sets the time of the poll, for one-time passwords, in seconds since the Unix epoch.
    #[must_use]
    pub fn with_time(self, now: i64) -> Self {
        Self { now, ..self }
    }

    /// Sets whether the session records its exchanges or replays a recording.
    #[must_use]
    pub fn with_tape(self, tape: Tape) -> Self {
        Self { tape, ..self }
    }

    /// Sets the kind of the target. Request slots and connections are divided by kind.
    #[must_use]
    pub fn with_share(self, kind: impl Into<Arc<str>>) -> Self {
        Self { share: kind.into(), ..self }
    }

    /// Returns whether a request failed because this host lacked a resource, or because other polls held the resource
    /// that it waited for. The result of the poll then says nothing about its target.
    ///
    /// A poll is not starved if one of its requests was sent and never answered: it waited for the server, and perhaps
    /// for the slots of the other requests of the poll.
    pub fn was_starved(&self) -> bool {
        let waited_for_others = self.most_waiting.load(Ordering::Relaxed) <= MAX_OWN_WAITING
            && self.ended.is_held_up()
            && !self.ended.is_hung();
        self.ended.is_starved() || waited_for_others
    }

    /// Sets the store of captured secrets.
    #[must_use]
    pub fn with_captured(self, captured: Arc<Captured>) -> Self {
        let _use = captured.used();
        Self { captured, _use, ..self }
    }

    /// Returns whether the operator configured a secret with this name, or it was captured and has not expired.
    pub fn has_secret(&self, name: &str) -> bool {
        self.grant.secrets.contains(name) || self.captured.valid().contains_key(name)
    }

    /// Returns the reference to `secret.NAME` or `basic.NAME`, for header values, bodies and permitted paths of the
    /// requests of this session.
    pub fn reference(&self, name: &str) -> String {
        self.references.of(name)
    }

    /// Returns an operator's text with references in place of `${secret.NAME}` and `${basic.NAME}`, and `${` in place
    /// of `$${`.
    pub fn written(&self, text: &str) -> String {
        self.references.written(text)
    }

    /// Deletes a captured secret.
    pub async fn forget_secret(&self, name: &str) {
        self.captured.forget(name);
        // A secret that could not be deleted on disk expires there.
        let _ = self.captured.store_changed(name).await;
    }

    /// Returns the network access of the target.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the resources used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.load(Ordering::Relaxed).min(self.limits.requests),
            bytes: self.bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// Returns how the requests ended so far.
    pub fn seen(&self) -> Seen {
        self.ended.seen()
    }

    /// Returns the duration of each phase, summed over the answers so far.
    pub fn timing(&self) -> Timing {
        self.ended.timing()
    }

    /// Returns the names of the secrets inserted so far, in alphabetical order.
    pub fn secrets_used(&self) -> Vec<String> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn note_secrets(&self, request: &Request, known: &AvailableSecrets<'_>) {
        let names = |text: &str| known.named_in(text).map(str::to_owned).collect::<Vec<_>>();
        let mut used: Vec<String> = request.headers.iter().flat_map(|(_, value)| names(value)).collect();
        used.extend(
            request.body.as_deref().and_then(|body| std::str::from_utf8(body).ok()).into_iter().flat_map(names),
        );
        if self.grant.expands_path {
            used.extend(names(&self.requested_url(&request.path)));
        }
        used.extend(request.secrets().filter(|name| known.contains(name)).map(str::to_owned));
        used.extend(request.authentication.iter().flat_map(|authentication| match authentication {
            Authentication::Basic(login) | Authentication::Digest(login) => names(&login.user),
            Authentication::Bearer(_) => Vec::new(),
        }));
        if !used.is_empty() {
            self.secrets.lock().unwrap_or_else(PoisonError::into_inner).extend(used);
        }
    }

    /// Sends a request and returns its whole answer. Records the exchange if the session records.
    ///
    /// The future is boxed, so that this crate compiles its code, and not each crate that sends a request.
    pub fn fetch(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        self.exchange_and_record(Box::new(request)).map(|exchanged| exchanged.result).boxed()
    }

    /// Like [`Self::fetch`], with the number of the exchange.
    pub fn exchange(&self, request: Request) -> BoxFuture<'_, Exchanged> {
        // Boxed, as it is moved through several futures.
        self.exchange_and_record(Box::new(request)).boxed()
    }

    /// Returns the TLS session of an exchange, also of one whose certificate was refused. `None` without TLS.
    pub fn tls_of(&self, exchange: u32) -> BoxFuture<'_, Option<TlsSession>> {
        self.tls.masked(exchange, &self.grant).boxed()
    }

    async fn answer(&self, request: Box<Request>) -> Exchanged {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_waiting.fetch_max(waiting, Ordering::Relaxed);
        let begun = Begun::default();
        let result = self.exchanged(request, &begun).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.ended.note(&result);
        let (number, status) = (begun.number.get().copied(), begun.status());
        Exchanged { number, status, result }
    }

    /// Sends a request. `begun` gets what is known as soon as it is known.
    async fn exchanged(&self, request: Box<Request>, begun: &Begun) -> Result<Response, Error> {
        self.count_request()?;
        captures::check(&request, &self.grant.secrets)?;
        let times = Times { start: Instant::now(), timeout: request.timeout };
        let left = self.limits.bodies.saturating_sub(self.bytes.load(Ordering::Relaxed));
        let cap = self.limits.body.min(left);
        let captured = self.captured.valid();
        let references = &self.references;
        let known = AvailableSecrets { operators: &self.grant.secrets, captured: &captured, references };
        if !known.is_empty() {
            self.note_secrets(&request, &known);
        }
        let (captures, sent) = (request.captures.clone(), Sent::of(&request));
        let requested = self.is_replayed().then(|| self.recorded(&request, self.recorded_url(&request.path)));
        let planned = self.checked_plan(&known, request).await?;
        let exchange = self.exchanges.fetch_add(1, Ordering::Relaxed);
        let _ = begun.number.set(exchange);
        if let (Tape::Replay(player), Some(requested)) = (&self.tape, requested) {
            let (answer, tls) = player.answer(&requested);
            self.tls.keep(exchange, tls.map(Shown::Replayed));
            let response = answer.inspect_err(|error| begun.note_recorded(error))?.replayed(exchange)?;
            self.count_body(response.body.len(), cap)?;
            self.captured(&captures, &sent, (&response, false)).await?;
            return Ok(response);
        }
        let (raw, visible) = self.send(planned, Sending { exchange, cap, times, begun }).await?;
        // Answers of one poll are masked one at a time, so that hundreds of them do not share one turn of the runtime.
        let _turn = self.masking.lock().await;
        let unmasked = (!captures.is_empty()).then(|| (raw.headers.clone(), raw.body.clone()));
        let response = response(&visible, exchange, raw).await;
        // The length of a part was not known before.
        if !visible.is_whole() && response.body.len() > cap {
            return Err(Error::BodyTooLarge { limit: cap });
        }
        let Some((headers, body)) = unmasked else { return Ok(finished(response, Vec::new())) };
        let is_masked = headers != response.headers || !body.starts_with(&response.body);
        let places = self.captured(&captures, &sent, (&response, is_masked)).await?;
        Ok(finished(response, places))
    }

    /// Keeps the captured values of an answer. Returns their places.
    async fn captured(
        &self,
        captures: &[Capture],
        sent: &Sent,
        (response, is_masked): (&Response, bool),
    ) -> Result<Vec<Place>, Error> {
        let Response { status, headers, body, .. } = response;
        let matches = &captures::matches(captures, (*status, body), &self.searched).await?;
        let is_replayed = self.is_replayed();
        // A number that was captured is recorded as a single digit.
        let permits_short = self.grant.short_captures || is_replayed;
        let answer = Answer { status: *status, headers, body, is_masked, permits_short, is_replayed, matches };
        let places = self.captured.keep(captures, sent, &answer);
        // Values are kept although another one is missing.
        if !is_replayed {
            match captures.iter().rfind(|capture| capture.durable) {
                Some(last) => self.captured.store_changed(&last.name).await?,
                // A durable value that was replaced may stay on disk until it expires.
                None => drop(self.captured.store_changed("").await),
            }
        }
        places
    }

    /// Makes the plan of a request and counts its size.
    async fn checked_plan(&self, known: &AvailableSecrets<'_>, request: Box<Request>) -> Result<Planned, Error> {
        let signing = Signing { work: &self.signed, now: self.now, is_replayed: self.is_replayed() };
        let shared = Shared { grant: &self.grant, share: &self.share, reading: &self.reading, signing };
        let planned = plan(shared, known, request).await.map_err(|error| match error {
            Error::SecretUnknown(name) => match self.captured.missed(&name) {
                Some(why) => Error::CaptureMissing { name, why },
                None => Error::SecretUnknown(name),
            },
            error => error,
        })?;
        self.count_sent(&planned.plan)?;
        Ok(planned)
    }

    fn count_sent(&self, plan: &Plan) -> Result<(), Error> {
        if self.sent.fetch_add(plan.size(), Ordering::Relaxed).saturating_add(plan.size()) > MAX_SENT_BYTES {
            return Err(Error::TooMuchSent { limit: MAX_SENT_BYTES });
        }
        Ok(())
    }

    fn count_request(&self) -> Result<(), Error> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.limits.requests {
            return Err(Error::TooManyRequests(self.limits.requests));
        }
        Ok(())
    }

    /// Sends a request, a second time if the server answers with a challenge. Returns the unmasked answer, and
    /// its visible part.
    async fn send(&self, mut planned: Planned, of: Sending<'_>) -> Result<(Raw, Arc<Visible>), Error> {
        let Some(login) = planned.login.take() else {
            let visible = planned.plan.visible.clone();
            return Ok((self.send_once(planned.plan, of).await?, visible));
        };
        // Boxed, because few requests log in like that: the future of each request would be larger by a kilobyte.
        Box::pin(self.send_with_login(login, planned, of)).await
    }

    /// Sends a request, or joins an identical one in flight, and returns its unmasked answer.
    async fn send_once(&self, plan: Box<Plan>, of: Sending<'_>) -> Result<Raw, Error> {
        let visible = plan.visible.clone();
        let Sending { exchange, cap, times: Times { start, timeout }, begun } = of;
        let deadline = timeout.map_or(self.deadline, |timeout| self.deadline.min(start + timeout));
        let Lane { egress, handle, pool } = &self.lane;
        let (common, pool) = (egress.common.clone(), pool.clone());
        let caller = coalesce::Caller { cap, lane: handle, gauges: &egress.common.gauges };
        // Boxed, because a runtime moves the future of a task and its result several times.
        let in_flight = egress.coalescer.join(plan, caller, |plan, progress| {
            Box::pin(async move { exchange::exchange(&common, &pool, &plan, &progress).await })
        });
        let ended = timeout_at(deadline, in_flight.answer.clone()).await;
        self.tls.keep(exchange, in_flight.progress.peer().map(Shown::Live));
        begun.set_status(in_flight.progress.status());
        let raw = match ended {
            Ok(Ok(raw)) => raw,
            Ok(Err(error)) => return Err(Box::pin(visible.maskers().error(error)).await),
            Err(_) => {
                let (after, phase) = (start.elapsed(), in_flight.progress.phase());
                self.ended.timed_out(in_flight.progress.is_held_up());
                // If the poll ended before the timeout of the request, the server is not to blame.
                let cut = timeout.is_some_and(|timeout| start + timeout > self.deadline);
                return Err(if cut { Error::CallOver { after, phase } } else { Error::Timeout { after, phase } });
            }
        };
        let length = raw.body.len();
        match visible.is_whole() {
            true => self.count_body(length, cap)?,
            // The length of the visible part is not known yet.
            false => drop(self.bytes.fetch_add(length, Ordering::Relaxed)),
        }
        drop(in_flight);
        // The only holder of the answer takes its body, other holders copy it.
        match Arc::try_unwrap(raw) {
            Ok(raw) => Ok(raw),
            Err(shared) => {
                let budget = &egress.common.bytes;
                let held = budget.try_hold(length).ok_or(Error::Overloaded { limit: budget.limit() })?;
                Ok(shared.copy(held))
            }
        }
    }

    fn count_body(&self, length: usize, cap: usize) -> Result<(), Error> {
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        if length > cap || before.saturating_add(length) > self.limits.bodies {
            return Err(Error::BodyTooLarge { limit: cap });
        }
        Ok(())
    }
}

/// The number and status of an exchange that may fail.
#[derive(Debug, Default)]
struct Begun {
    number: OnceLock<u32>,
    /// That of the latest answer, or 0.
    status: AtomicU16,
}

impl Begun {
    fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    fn set_status(&self, status: Option<u16>) {
        self.status.store(status.unwrap_or_default(), Ordering::Relaxed);
    }

    fn note_recorded(&self, error: &Error) {
        if let Error::Recorded { status, .. } = error {
            self.set_status(*status);
        }
    }
}

/// An exchange, and the largest body that it may read in bytes.
#[derive(Clone, Copy)]
struct Sending<'a> {
    exchange: u32,
    cap: usize,
    times: Times,
    begun: &'a Begun,
}

/// When a request started, and its own timeout.
#[derive(Clone, Copy)]
struct Times {
    start: Instant,
    timeout: Option<Duration>,
}
