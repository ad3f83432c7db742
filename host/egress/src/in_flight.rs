//! A request in flight, and its answer.

use crate::budget::{Bytes as Budget, Gauges, Held, Slots, Sockets};
use crate::connect::{Destination, Resolve};
use crate::peer::Peer;
use crate::reading::Visible;
use crate::{Method, Timing};
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request with its secrets inserted. It is never printed.
#[derive(Clone)]
pub(crate) struct Plan {
    pub destination: Destination,
    pub method: Method,
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether other callers may share the answer.
    pub shared: bool,
    /// The kind of the target. Request slots and connections are divided by kind.
    pub share: Arc<str>,
    /// The bytes that the poll reads at a time, and their limit.
    pub reading: Arc<Reading>,
    /// The part of the answer to read.
    pub visible: Arc<Visible>,
}

/// The body bytes that one poll is reading now, and their limit.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub limit: usize,
    pub bytes: AtomicUsize,
    /// The bytes that were searched for secrets to find the end of an answer.
    pub compared: AtomicUsize,
}

/// Counts the bytes of one body in [`Reading`]. They no longer count after the drop.
pub(crate) struct Counted<'a> {
    reading: &'a Reading,
    bytes: usize,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(reading: &'a Reading) -> Self {
        Self { reading, bytes: 0 }
    }

    /// Counts one more piece. Returns `false` if the poll now exceeds its limit.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.reading.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.reading.limit
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.reading.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Plan {
    /// Returns the approximate size of the request on the wire in bytes.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        self.path_and_query.len() + headers + self.body.len()
    }
}

/// A whole unmasked answer.
#[derive(Debug)]
pub(crate) struct Raw {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body was read to its end.
    pub is_complete: bool,
    pub timing: Timing,
    /// The budget share of the body. It is released on drop.
    pub held: Option<Held>,
}

impl Raw {
    /// Returns a copy for another caller, with its own budget share.
    pub(crate) fn copy(&self, held: Held) -> Self {
        Self {
            status: self.status,
            reason: self.reason.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            is_complete: self.is_complete,
            timing: self.timing,
            held: Some(held),
        }
    }
}

/// State that the whole process shares.
#[derive(Debug)]
pub(crate) struct Common {
    pub own: Vec<SocketAddr>,
    pub resolver: Arc<dyn Resolve>,
    pub user_agent: HeaderValue,
    pub slots: Slots,
    pub bytes: Budget,
    pub sockets: Sockets,
    pub gauges: Gauges,
}

/// The progress of a request, for callers that time out, and the limit of its body.
#[derive(Debug)]
pub(crate) struct Progress {
    phase: Mutex<&'static str>,
    /// Whether the request waits for a resource of this host: a slot, a socket or a budget share.
    held_up: AtomicBool,
    /// The largest body cap of all waiting callers, in bytes.
    pub cap: AtomicUsize,
    /// The server of the latest TLS handshake.
    peer: Mutex<Option<Arc<Peer>>>,
    /// The status of the answer, as soon as its head is read. 0 before that.
    status: AtomicU16,
}

impl Progress {
    pub(crate) fn new(cap: usize) -> Self {
        let held_up = AtomicBool::new(true);
        Self {
            phase: Mutex::new("waiting for a free slot"),
            held_up,
            cap: AtomicUsize::new(cap),
            peer: Mutex::default(),
            status: AtomicU16::new(0),
        }
    }

    /// Notes the status of an answer whose head was read; `None` before that.
    pub(crate) fn set_status(&self, status: Option<u16>) {
        self.status.store(status.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Returns the status of the answer, if its head was read.
    pub(crate) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Returns whether the request waits for a resource of this host and not for the target.
    pub(crate) fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    /// Waits for a resource of this host.
    pub(crate) async fn held_up<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.held_up.store(true, Ordering::Relaxed);
        let result = waiting.await;
        self.held_up.store(false, Ordering::Relaxed);
        result
    }

    pub(crate) fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server of the TLS session, also of one whose certificate was refused.
    pub(crate) fn peer(&self) -> Option<Arc<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_peer(&self, peer: Option<Arc<Peer>>) {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    pub(crate) fn enter(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}
