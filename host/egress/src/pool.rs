//! A lane's idle connections, by origin, TLS identity, reach and kind.
//!
//! Targets of different kinds share no connection. A plugin can make a server send a second, late answer, and an HTTP/1 client
//! cannot tell that answer from the answer to the next request.

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

/// An origin's idle connections beyond this many are closed.
const IDLE_EACH: usize = 8;
/// A lane's idle connections beyond this many make room by age.
const IDLE_ALL: usize = 2048;
/// No connection serves longer: a certificate that was renewed, and a name that stands for another address, are seen by
/// then.
const AGE: Duration = Duration::from_secs(600);
/// Longer than the longest default interval, so that a quiet target keeps its connection.
const IDLE_TIME: Duration = Duration::from_secs(330);

/// A connection that requests can be sent on.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A connection with what is known of it.
pub(crate) struct Connection {
    pub sender: Sender,
    pub certificate: Option<Arc<Certificate>>,
    /// What may be read before the answer's head is complete; `None` where the protocol bounds it.
    pub patience: Option<Arc<AtomicUsize>>,
    born: Instant,
    /// Shared by those who share the connection.
    socket: Arc<OwnedSemaphorePermit>,
}

/// Where a connection leads, and what it may be used for.
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

/// A route, and the kind whose connections these are.
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
    /// The connection used last of those that are still open.
    pub(crate) fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let held = idle.by_key.get_mut(key)?;
        let before = held.len();
        let mut found = None;
        while let Some((since, connection)) = held.pop() {
            if since.elapsed() >= IDLE_TIME || connection.is_over() {
                continue;
            }
            // An HTTP/2 connection carries many requests at once; it stays for the others.
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
    /// Closes idle connections where descriptors are short.
    pub(crate) fn make_room(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).forget_old();
    }
}

impl Idle {
    /// Closes what is closed or too old, and where that is not enough, the older half.
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
