//! The idle connections of a lane, by origin, TLS identity, reach and kind.
//!
//! Targets of different kinds never share a connection. A plugin can make a server send a second, late answer, and an
//! HTTP/1 client cannot distinguish that answer from the answer to the next request.

use crate::connect::Destination;
use crate::http1;
use crate::peer::Peer;
use crate::{Origin, Reach};
use bytes::Bytes;
use foldhash::fast::RandomState;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper::header::HeaderValue;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

/// Idle connections that an origin and kind may keep in any case. It may keep more if more were in use together: see
/// [`Peak`].
const IDLE_EACH: usize = 8;
/// Time after which a peak is forgotten, at the earliest, unless no connection is left. It is forgotten after twice
/// this time, at the latest. Targets whose polls come in bursts at least this often keep theirs.
const PEAK_TIME: Duration = Duration::from_secs(20);
/// Time between two searches for closed connections. A connection that the server has closed keeps its descriptor until
/// then, unless a request finds it before.
const SWEEP: Duration = Duration::from_secs(20);
/// Maximum number of turns of the runtime in one search. The runtime's budget for a task ends a turn after about 60
/// closed TLS connections.
const SWEEP_TURNS: usize = 32;
/// Maximum number of idle connections of a lane. The oldest are closed first.
const IDLE_ALL: usize = 2048;
/// Maximum lifetime of a connection. It bounds the time until a renewed certificate or a changed address of a name is
/// noticed.
const AGE: Duration = Duration::from_secs(600);
/// Maximum idle time of a connection. It is longer than the longest default interval, so that a target with few polls
/// keeps its connection.
const IDLE_TIME: Duration = Duration::from_secs(330);

/// The way in which a connection carries requests.
pub(crate) enum Transport {
    /// One request at a time.
    Http1(http1::Stream),
    /// Many requests at once.
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A connection and its properties.
pub(crate) struct Connection {
    pub transport: Transport,
    /// The host and port of its origin, as in a `Host` header.
    pub authority: HeaderValue,
    pub peer: Option<Arc<Peer>>,
    pub born: Instant,
    /// The socket permit. All users of an HTTP/2 connection share it.
    pub socket: Arc<OwnedSemaphorePermit>,
}

/// The origin of a connection, and the settings with which it was established.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    origin: Origin,
    tls: Option<Arc<str>>,
    server_name: Option<Arc<str>>,
    reach: Reach,
}

impl Route {
    pub(crate) fn of(destination: &Destination) -> Self {
        let Destination { origin, server_name, tls, reach } = destination;
        let tls = origin.https.then(|| tls.identity().clone());
        Self { origin: origin.clone(), tls, server_name: server_name.clone(), reach: reach.clone() }
    }
}

/// The route and the kind of a group of connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    route: Route,
    kind: Arc<str>,
}

impl Key {
    pub(crate) fn of(destination: &Destination, kind: &Arc<str>) -> Self {
        Self { route: Route::of(destination), kind: kind.clone() }
    }
}

#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_key: HashMap<Key, Group, RandomState>,
    count: usize,
}

/// The connections of an origin and kind.
#[derive(Default)]
struct Group {
    /// Idle connections and since when. The most recently used is last.
    idle: VecDeque<(Instant, Connection)>,
    /// The number of requests in flight.
    in_flight: usize,
    peak: Peak,
}

/// The largest number of requests in flight together in the last one to two [`PEAK_TIME`]s.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    /// When the current period began. `None` before the first request.
    since: Option<Instant>,
    current: usize,
    previous: usize,
}

impl Peak {
    fn note(&mut self, in_flight: usize, now: Instant) {
        self.turn(now);
        self.current = self.current.max(in_flight);
    }

    fn most(&mut self, now: Instant) -> usize {
        self.turn(now);
        self.current.max(self.previous)
    }

    /// Begins a new period if the current one is over.
    fn turn(&mut self, now: Instant) {
        let age = now.duration_since(*self.since.get_or_insert(now));
        if age >= PEAK_TIME {
            self.previous = if age < 2 * PEAK_TIME { self.current } else { 0 };
            // The previous period ended when this one began, even if nothing was noted since.
            self.since = Some(if age < 2 * PEAK_TIME { now - (age - PEAK_TIME) } else { now });
            self.current = 0;
        }
    }
}

/// A request in flight. It no longer counts after the drop.
pub(crate) struct InFlight<'a> {
    pool: &'a Pool,
    key: &'a Key,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut idle = self.pool.lock();
        if let Some(group) = idle.by_key.get_mut(self.key) {
            group.in_flight -= 1;
            idle.forget_empty(self.key);
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in flight. Later, as many connections are kept idle as requests were in flight together.
    /// Otherwise a busy host would open a new connection for most of its requests.
    pub(crate) fn enter<'a>(&'a self, key: &'a Key) -> InFlight<'a> {
        let mut idle = self.lock();
        let group = idle.group(key);
        group.in_flight += 1;
        group.peak.note(group.in_flight, Instant::now());
        InFlight { pool: self, key }
    }

    /// Returns the most recently used connection that is still open. `None` if no connection is open.
    pub(crate) fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.lock();
        let held = &mut idle.by_key.get_mut(key)?.idle;
        let before = held.len();
        let mut found = None;
        while let Some((since, mut connection)) = held.pop_back() {
            if since.elapsed() >= IDLE_TIME || connection.is_over() {
                continue;
            }
            // An HTTP/2 connection carries many requests at once, so it stays in the pool.
            if let Transport::Http2(sender) = &connection.transport {
                let same = Connection {
                    transport: Transport::Http2(sender.clone()),
                    authority: connection.authority.clone(),
                    peer: connection.peer.clone(),
                    born: connection.born,
                    socket: connection.socket.clone(),
                };
                held.push_back((Instant::now(), connection));
                found = Some(same);
            } else {
                found = Some(connection);
            }
            break;
        }
        idle.count -= before - held.len();
        idle.forget_empty(key);
        found
    }

    /// Keeps a connection for the next request, in place of the oldest if there are enough.
    pub(crate) fn put(&self, key: &Key, connection: Connection) {
        let mut idle = self.lock();
        let now = Instant::now();
        if idle.count >= IDLE_ALL {
            idle.forget_old();
        }
        let group = idle.group(key);
        if group.idle.iter().any(|(_, held)| matches!(held.transport, Transport::Http2(_))) {
            return;
        }
        let before = group.idle.len();
        group.idle.push_back((now, connection));
        let most = group.peak.most(now).max(IDLE_EACH);
        let is_old = |(since, _): &(Instant, Connection)| now.duration_since(*since) >= IDLE_TIME;
        while group.idle.len() > most || group.idle.front().is_some_and(is_old) {
            group.idle.pop_front();
        }
        let after = group.idle.len();
        idle.count = idle.count + after - before;
    }

    /// Gives up connections that are closed or too old, at intervals, as long as the pool exists.
    pub(crate) fn sweep(self: &Arc<Self>, lane: &Handle) {
        let pool = Arc::downgrade(self);
        lane.spawn(async move {
            loop {
                sleep(SWEEP).await;
                for _ in 0..SWEEP_TURNS {
                    let Some(pool) = pool.upgrade() else { return };
                    pool.lock().keep(|since| since.elapsed() < IDLE_TIME);
                    drop(pool);
                    if has_budget_remaining() {
                        break;
                    }
                    yield_now().await;
                }
            }
        });
    }

    /// Closes idle connections because descriptors are scarce.
    pub(crate) fn make_room(&self) {
        self.lock().forget_old();
    }
}

impl Idle {
    fn group(&mut self, key: &Key) -> &mut Group {
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.clone(), Group::default());
        }
        self.by_key.get_mut(key).expect("it was just inserted")
    }

    /// Removes a group that has no connections and no requests.
    fn forget_empty(&mut self, key: &Key) {
        if self.by_key.get(key).is_some_and(Group::is_empty) {
            self.by_key.remove(key);
        }
    }

    /// Removes connections that are closed or too old, and the older half of the others.
    fn forget_old(&mut self) {
        let mut ages: Vec<Instant> =
            self.by_key.values().flat_map(|group| &group.idle).map(|(since, _)| *since).collect();
        ages.sort_unstable();
        let median = ages.get(ages.len() / 2).copied();
        self.keep(|since| Some(since) > median);
    }

    /// Removes connections that are closed or too old, and those that `keeps` refuses by the time since when they are
    /// idle.
    fn keep(&mut self, keeps: impl Fn(Instant) -> bool) {
        self.by_key.retain(|_, group| {
            group.idle.retain_mut(|(since, connection)| keeps(*since) && !connection.is_over());
            !group.is_empty()
        });
        self.count = self.by_key.values().map(|group| group.idle.len()).sum();
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.in_flight == 0
    }
}

impl Connection {
    pub(crate) fn new(
        transport: Transport,
        authority: HeaderValue,
        peer: Option<Arc<Peer>>,
        socket: OwnedSemaphorePermit,
    ) -> Self {
        Self { transport, authority, peer, born: Instant::now(), socket: Arc::new(socket) }
    }

    fn is_over(&mut self) -> bool {
        let closed = match &mut self.transport {
            Transport::Http1(stream) => stream.is_over(),
            Transport::Http2(sender) => sender.is_closed(),
        };
        closed || self.born.elapsed() >= AGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_forgotten_after_one_to_two_periods() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut peak = Peak::default();
        peak.note(20, at(0));
        peak.note(3, at(16));
        assert_eq!(peak.most(at(19)), 20);
        peak.note(5, at(21));
        assert_eq!(peak.most(at(36)), 20, "the peak was in the previous period");
        assert_eq!(peak.most(at(41)), 5);
        assert_eq!(peak.most(at(100)), 0, "nothing was in flight for two periods");
        let mut rare = Peak::default();
        rare.note(20, at(0));
        assert_eq!((rare.most(at(39)), rare.most(at(41))), (20, 0));
    }
}
