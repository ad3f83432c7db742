//! Leases: the right to act for a while, which one of several hosts has.
//!
//! A lease is a record with its owner and its term. The owner writes it again before it lapses; another host takes it
//! once the record has not changed for a while by that host's own clock, and writes a larger term. Every write is
//! conditional on the revision that was read, so one of two hosts that take it succeeds.
//!
//! A lease alone does not protect: an owner that was stopped acts for a moment after it continues. The reader of
//! results compares their term with that of the lease.

use crate::bucket::Bucket;
use crate::connection::Connection;
use crate::jitter::Jitter;
use crate::record::{Answer, answer, last};
use async_nats::jetstream::message::PublishMessage;
use fleet::wire::{Lease, decode, encode};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A lease lapses this long after the request that renewed it began.
const LAPSE: Duration = Duration::from_secs(12);
/// The time between two renewals, and between two reads of the leases of others.
const LOOK: Duration = Duration::from_secs(4);
/// The delay before a lease is read again that could not be read.
const RETRY: Duration = Duration::from_millis(500);
/// A host takes a lease that it has not seen change for this time: longer than [`LAPSE`], because clocks differ.
const TAKE: Duration = Duration::from_secs(15);
/// The first look is delayed by up to this time, so that the leases of several deployments go to several hosts.
const SPREAD: Duration = Duration::from_millis(500);

/// The leases that a host wants, by their keys in the bucket, and where each stands.
pub(crate) struct Leases {
    wanted: watch::Sender<BTreeSet<String>>,
    pub standing: watch::Receiver<BTreeMap<String, Standing>>,
}

impl Leases {
    /// Competes for these leases from now on, and for no other.
    pub(crate) fn want(&self, keys: BTreeSet<String>) {
        replace(&self.wanted, keys);
    }
}

/// Replaces the value of a channel. Its readers notice only a value that differs.
fn replace<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|held| {
        let is_new = *held != value;
        *held = value;
        is_new
    });
}

/// Where a lease stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub owner: String,
    pub term: u64,
    /// Until when this host has the right to act; `None` if it does not have it.
    pub until: Option<Instant>,
}

impl Standing {
    /// Returns the term under which this host may act now.
    pub(crate) fn right(&self) -> Option<u64> {
        self.until.is_some_and(|until| Instant::now() < until).then_some(self.term)
    }
}

/// Returns the handle of leases and the loop that competes for them.
pub(crate) fn leases(connection: Connection, me: String, seed: u64) -> (Leases, impl Future<Output = ()> + Send) {
    let (wanted, chosen) = watch::channel(BTreeSet::new());
    let (shown, standing) = watch::channel(BTreeMap::new());
    (Leases { wanted, standing }, compete(connection, (me, Jitter::new(seed)), chosen, shown))
}

/// Competes for the wanted leases until the handle is dropped, and gives them up then.
async fn compete(
    connection: Connection,
    (me, jitter): (String, Jitter),
    mut wanted: watch::Receiver<BTreeSet<String>>,
    shown: watch::Sender<BTreeMap<String, Standing>>,
) {
    let mut candidates: BTreeMap<String, Candidate> = BTreeMap::new();
    let mut connected = connection.connected();
    let mut look_at = Instant::now();
    let mut is_over = false;
    loop {
        let chosen = if is_over { BTreeSet::new() } else { wanted.borrow_and_update().clone() };
        let given_up: Vec<_> = candidates.extract_if(.., |key, _| !chosen.contains(key)).collect();
        for key in chosen {
            candidates.entry(key).or_default();
        }
        show(&shown, &candidates, &me);
        for (key, candidate) in given_up {
            candidate.give_up(&connection, &key, &me).await;
        }
        if is_over {
            return;
        }
        let lapse = candidates.values().filter_map(Candidate::until).min();
        let lapsed = async {
            match lapse {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(lapsed);
        tokio::select! {
            () = &mut lapsed => {}
            () = tokio::time::sleep_until(look_at), if !candidates.is_empty() => {
                let turns = candidates.iter_mut().map(|(key, candidate)| candidate.turn(&connection, key, &me));
                tokio::select! {
                    _ = join_all(turns) => {}
                    // A broker that does not answer must not delay the end of a lease.
                    () = &mut lapsed => {}
                }
                // The broker may not be ready yet.
                let is_known = candidates.values().all(Candidate::is_known);
                look_at = Instant::now() + if is_known { LOOK } else { RETRY }.mul_f64(jitter.between(0.8, 1.0));
            }
            changed = wanted.changed() => {
                is_over = changed.is_err();
                look_at = look_at.min(Instant::now() + SPREAD.mul_f64(jitter.between(0.0, 1.0)));
            }
            Ok(()) = connected.changed() => look_at = Instant::now(),
        }
        let now = Instant::now();
        candidates.values_mut().for_each(|candidate| candidate.expire(now));
    }
}

fn show(shown: &watch::Sender<BTreeMap<String, Standing>>, candidates: &BTreeMap<String, Candidate>, me: &str) {
    let standing = |candidate: &Candidate| match (&candidate.held, &candidate.seen) {
        (Some(held), _) => Some(Standing { owner: me.to_owned(), term: held.term, until: Some(held.until) }),
        (None, Some(seen)) => Some(Standing { owner: seen.lease.owner.clone(), term: seen.lease.term, until: None }),
        (None, None) => None,
    };
    let known = candidates.iter().filter_map(|(key, candidate)| Some((key.clone(), standing(candidate)?)));
    replace(shown, known.collect());
}

/// One lease, as a host that wants it knows it.
#[derive(Debug, Default)]
struct Candidate {
    held: Option<Held>,
    /// The record at the broker, unless this host wrote it.
    seen: Option<Seen>,
    /// The largest term that was seen.
    term: u64,
    /// The last term of this host.
    own: Option<u64>,
}

#[derive(Debug)]
struct Held {
    term: u64,
    revision: u64,
    until: Instant,
}

#[derive(Debug)]
struct Seen {
    lease: Lease,
    revision: u64,
    since: Instant,
}

impl Candidate {
    /// Whether its record has been read or written.
    fn is_known(&self) -> bool {
        self.held.is_some() || self.seen.is_some()
    }

    fn until(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    fn expire(&mut self, now: Instant) {
        self.held.take_if(|held| held.until <= now);
    }

    /// Notes the record at the broker. Returns the term and the revision with which the lease can be taken.
    fn look(&mut self, found: Option<(Lease, u64)>, me: &str, now: Instant) -> Option<(u64, u64)> {
        let Some((lease, revision)) = found else {
            (self.held, self.seen) = (None, None);
            return Some((self.term + 1, 0));
        };
        self.term = self.term.max(lease.term);
        let is_own = lease.owner == me;
        if let Some(held) = self.held.as_mut().filter(|held| is_own && held.term == lease.term) {
            // The answer to an earlier renewal was lost.
            held.revision = revision;
            return None;
        }
        self.held = None;
        // An earlier process of this host, or this one while it was stopped. Another host with the same name waits.
        let is_former = is_own && (self.seen.is_none() && self.own.is_none() || self.own == Some(lease.term));
        let is_free = lease.is_free || is_former;
        let seen = match self.seen.take().filter(|seen| seen.revision == revision) {
            Some(seen) => self.seen.insert(seen),
            None => self.seen.insert(Seen { lease, revision, since: now }),
        };
        (is_free || now.duration_since(seen.since) >= TAKE).then_some((self.term + 1, revision))
    }

    /// Notes that a write is stored; its request began at `asked`.
    fn stored(&mut self, term: u64, revision: u64, asked: Instant) {
        self.term = self.term.max(term);
        (self.seen, self.own) = (None, Some(term));
        self.held = Some(Held { term, revision, until: asked + LAPSE });
    }

    /// Renews the lease if this host has it, else takes it if that is possible.
    async fn turn(&mut self, connection: &Connection, key: &str, me: &str) {
        let write = match &self.held {
            Some(held) => Some((held.term, held.revision)),
            None => self.read(connection, key, me).await,
        };
        let Some((term, revision)) = write else { return };
        let asked = Instant::now();
        let lease = Lease { owner: me.to_owned(), term, is_free: false };
        match put(connection, key, &lease, revision).await {
            Answer::Stored(revision) => {
                if self.held.is_none() {
                    tracing::info!("this host has the lease {key} now, in term {term}");
                }
                self.stored(term, revision, asked);
            }
            Answer::Other(_) => {
                let was_held = self.held.is_some();
                let _ = self.read(connection, key, me).await;
                if was_held && self.held.is_none() {
                    tracing::warn!("another host has taken the lease {key}");
                }
            }
            Answer::Unknown(why) => tracing::debug!("the lease {key}: {why}"),
        }
    }

    async fn read(&mut self, connection: &Connection, key: &str, me: &str) -> Option<(u64, u64)> {
        let stream = connection.context.get_stream_no_info(Bucket::Leases.stream()).await.ok()?;
        let found = last(&stream, Bucket::Leases, key).await.inspect_err(|why| tracing::debug!("{why}")).ok()?;
        // A damaged record is one of an unknown owner.
        let unknown = || Lease { owner: "unknown".to_owned(), term: self.term, is_free: true };
        let found = found.map(|(payload, revision)| (decode(&payload).unwrap_or_else(|_| unknown()), revision));
        self.look(found, me, Instant::now())
    }

    /// Lets another host take the lease at once.
    async fn give_up(self, connection: &Connection, key: &str, me: &str) {
        let Some(Held { term, revision, .. }) = self.held else { return };
        let lease = Lease { owner: me.to_owned(), term, is_free: true };
        // Without an answer, it lapses.
        let _ = tokio::time::timeout(LOOK, put(connection, key, &lease, revision)).await;
    }
}

async fn put(connection: &Connection, key: &str, lease: &Lease, revision: u64) -> Answer {
    let payload = match encode(lease) {
        Ok(payload) => payload,
        Err(why) => return Answer::Unknown(why.to_string()),
    };
    let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(revision);
    match connection.context.send_publish(Bucket::Leases.subject(key), message).await {
        Ok(sent) => answer(sent).await,
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(owner: &str, term: u64) -> Lease {
        Lease { owner: owner.to_owned(), term, is_free: false }
    }

    #[test]
    fn a_lease_is_taken_only_after_it_has_not_changed_for_a_while() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut candidate = Candidate::default();
        assert_eq!(candidate.look(None, "a", at(0)), Some((1, 0)));
        // Another one was faster. Each renewal begins the wait again.
        assert_eq!(candidate.look(Some((lease("b", 1), 5)), "a", at(0)), None);
        assert_eq!(candidate.look(Some((lease("b", 1), 6)), "a", at(14)), None);
        assert_eq!(candidate.look(Some((lease("b", 1), 6)), "a", at(28)), None);
        assert_eq!(candidate.look(Some((lease("b", 1), 6)), "a", at(29)), Some((2, 6)));
        let free = Lease { is_free: true, ..lease("b", 4) };
        assert_eq!(candidate.look(Some((free, 7)), "a", at(30)), Some((5, 7)));
        // The broker lost it: the terms go on.
        assert_eq!(candidate.look(None, "a", at(31)), Some((5, 0)));
    }

    #[test]
    fn a_held_lease_lapses_from_the_begin_of_the_last_request() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut candidate = Candidate::default();
        candidate.stored(3, 8, at(0));
        candidate.expire(at(11));
        assert_eq!(candidate.until(), Some(at(12)));
        // The answer to a renewal was lost; then the renewal is found at the broker. That does not extend it.
        assert_eq!(candidate.look(Some((lease("a", 3), 9)), "a", at(11)), None);
        assert_eq!(candidate.held.as_ref().map(|held| (held.revision, held.until)), Some((9, at(12))));
        candidate.expire(at(12));
        assert!(candidate.held.is_none());
        // It was stopped, and no other host has taken the lease.
        assert_eq!(candidate.look(Some((lease("a", 3), 9)), "a", at(13)), Some((4, 9)));
        candidate.stored(4, 10, at(13));
        assert_eq!(candidate.look(Some((lease("b", 5), 11)), "a", at(14)), None);
        assert!(candidate.held.is_none());
    }

    #[test]
    fn a_restarted_host_takes_its_lease_at_once_and_two_with_one_name_do_not_fight() {
        let now = Instant::now();
        let (mut first, mut second) = (Candidate::default(), Candidate::default());
        first.stored(1, 5, now);
        assert_eq!(second.look(Some((lease("a", 1), 5)), "a", now), Some((2, 5)));
        second.stored(2, 6, now);
        assert_eq!(first.look(Some((lease("a", 2), 6)), "a", now), None);
        assert!(first.held.is_none());
        assert_eq!(first.look(Some((lease("a", 2), 7)), "a", now + LOOK), None);
        assert_eq!(second.look(Some((lease("a", 2), 7)), "a", now + LOOK), None);
        assert!(second.held.is_some());
    }
}
