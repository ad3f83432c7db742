//! The TLS sessions of the exchanges of a poll.

use crate::Grant;
use crate::maskers::Maskers;
use crate::peer::{Peer, TlsSession};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The TLS session of an exchange.
pub(super) enum Shown {
    Live(Arc<Peer>),
    Replayed(TlsSession),
}

/// The TLS sessions by the number of their exchange.
#[derive(Default)]
pub(super) struct TlsSessions(Mutex<BTreeMap<u32, Shown>>);

impl TlsSessions {
    pub(super) fn keep(&self, exchange: u32, shown: Option<Shown>) {
        if let Some(shown) = shown {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(exchange, shown);
        }
    }

    /// Returns the TLS session of an exchange, with the secrets of a grant masked. `None` without TLS.
    pub(super) async fn masked(&self, exchange: u32, grant: &Arc<Grant>) -> Option<TlsSession> {
        let peer = match self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&exchange)? {
            Shown::Live(peer) => peer.clone(),
            Shown::Replayed(session) => return Some(session.clone()),
        };
        Some(Maskers::new(grant, &[]).session(peer.shown()).await)
    }
}
