//! The idle connections of a lane, by origin, TLS identity, reach and kind.
//!
//! Targets of different kinds never share a connection. A plugin can make a server send a second, late answer, and an
//! HTTP/1 client cannot distinguish that answer from the answer to the next request.

use crate::connect::Destination;
use crate::tls::Certificate;
use crate::{Origin, Reach};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Maximum number of idle connections per origin.
const IDLE_EACH: usize = 8;
/// Maximum number of idle connections of a lane. The oldest are closed first.
const IDLE_ALL: usize = 2048;
/// Maximum lifetime of a connection. It bounds the time until a renewed certificate or a changed address of a name is
/// noticed.
const AGE: Duration = Duration::from_secs(600);
/// Maximum idle time of a connection. It is longer than the longest default interval, so that a target with few polls
/// keeps its connection.
const IDLE_TIME: Duration = Duration::from_secs(330);

/// The request sender of a connection.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A connection and its properties.
pub(crate) struct Connection {
    pub sender: Sender,
    pub certificate: Option<Arc<Certificate>>,
    /// The number of bytes that may be read before the head of the answer is complete. `None` if the protocol limits
    /// it.
    pub patience: Option<Arc<AtomicUsize>>,
    born: Instant,
    /// The socket permit. All users of an HTTP/2 connection share it.
    socket: Arc<OwnedSemaphorePermit>,
}

/// The origin of a connection, and the settings with which it was established.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    origin: Origin,
    tls: Option<Arc<str>>,
    reach: Reach,
}

impl Route {
    pub(crate) fn of(destination: &Destination) -> Self {
        let Destination { origin, tls, reach } = destination;
        Self { origin: origin.clone(), tls: origin.https.then(|| tls.identity().clone()), reach: reach.clone() }
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
    by_key: HashMap<Key, Vec<(Instant, Connection)>>,
    count: usize,
}

impl Pool {
    /// Returns the most recently used connection that is still open. `None` if no connection is open.
    pub(crate) fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let held = idle.by_key.get_mut(key)?;
        let before = held.len();
        let mut found = None;
        while let Some((since, connection)) = held.pop() {
            if since.elapsed() >= IDLE_TIME || connection.is_over() {
                continue;
            }
            // An HTTP/2 connection carries many requests at once, so it stays in the pool.
            if let Sender::Http2(sender) = &connection.sender {
                let shared = Sender::Http2(sender.clone());
                let same = Connection {
                    sender: shared,
                    certificate: connection.certificate.clone(),
                    patience: None,
                    born: connection.born,
                    socket: connection.socket.clone(),
                };
                held.push((Instant::now(), connection));
                found = Some(same);
            } else {
                found = Some(connection);
            }
            break;
        }
        let gone = before - held.len();
        if held.is_empty() {
            idle.by_key.remove(key);
        }
        idle.count -= gone;
        found
    }

    pub(crate) fn put(&self, key: Key, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.count >= IDLE_ALL {
            idle.forget_old();
        }
        let held = idle.by_key.entry(key).or_default();
        let shared = held.iter().any(|(_, held)| matches!(held.sender, Sender::Http2(_)));
        if held.len() < IDLE_EACH && !shared {
            held.push((Instant::now(), connection));
            idle.count += 1;
        }
    }
}

impl Pool {
    /// Closes idle connections because descriptors are scarce.
    pub(crate) fn make_room(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).forget_old();
    }
}

impl Idle {
    /// Removes connections that are closed or too old, and the older half of the others.
    fn forget_old(&mut self) {
        let mut ages: Vec<Instant> = self.by_key.values().flatten().map(|(since, _)| *since).collect();
        ages.sort_unstable();
        let median = ages.get(ages.len() / 2).copied();
        self.by_key.retain(|_, held| {
            held.retain(|(since, connection)| !connection.is_over() && Some(*since) > median);
            !held.is_empty()
        });
        self.count = self.by_key.values().map(Vec::len).sum();
    }
}

impl Connection {
    pub(crate) fn new(sender: Sender, certificate: Option<Arc<Certificate>>, socket: OwnedSemaphorePermit) -> Self {
        Self { sender, certificate, patience: None, born: Instant::now(), socket: Arc::new(socket) }
    }

    fn is_over(&self) -> bool {
        let closed = match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        };
        closed || self.born.elapsed() >= AGE
    }
}
