//! Writing the assignment of each device: the deployments that choose it.
//!
//! Every write is conditional on the revision that was read, so a second operator is noticed instead of overwritten.

use crate::agent::{Answer, answer};
use crate::bucket::Bucket;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use foldhash::fast::FixedState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

/// Assignments that are written together.
const AT_ONCE: usize = 256;

/// The assignments at the broker, and the devices whose assignment may have to be written.
#[derive(Default)]
pub(super) struct Assignments {
    /// The revision and the hash of each device's assignment at the broker.
    written: HashMap<String, (u64, u64)>,
    /// Devices whose assignment may have changed.
    waiting: BTreeSet<String>,
}

/// An assignment that is being written.
pub(super) struct Draft {
    device: String,
    payload: Vec<u8>,
    /// The revision that it replaces.
    revision: u64,
    hash: u64,
}

/// The answer of the broker to an assignment.
pub(super) struct Outcome {
    pub device: String,
    pub answer: Answer,
    hash: u64,
}

impl Assignments {
    /// Forgets what the broker holds: it is read again.
    pub(super) fn forget(&mut self) {
        self.written.clear();
    }

    /// Notes what the broker holds.
    pub(super) fn note(&mut self, device: &str, payload: &[u8], revision: u64) {
        self.written.insert(device.to_owned(), (revision, hash(payload)));
    }

    /// Adds devices whose assignment may have changed.
    pub(super) fn recheck(&mut self, devices: impl IntoIterator<Item = String>) {
        self.waiting.extend(devices);
    }

    /// Returns the next assignments that differ from those at the broker. `payload` returns the bytes of a device's
    /// assignment, or `None` if it cannot be made.
    pub(super) fn next(&mut self, mut payload: impl FnMut(&str) -> Option<Vec<u8>>) -> Vec<Draft> {
        let mut drafts = Vec::new();
        while drafts.len() < AT_ONCE
            && let Some(device) = self.waiting.pop_first()
        {
            let Some(payload) = payload(&device) else { continue };
            let hash = hash(&payload);
            let (revision, held) = self.written.get(&device).copied().unwrap_or_default();
            if revision == 0 || held != hash {
                drafts.push(Draft { device, payload, revision, hash });
            }
        }
        drafts
    }

    /// Notes the answer of the broker. Returns whether the device has a new assignment.
    pub(super) fn settle(&mut self, outcome: &Outcome) -> bool {
        let device = outcome.device.clone();
        match outcome.answer {
            Answer::Stored(revision) => {
                self.written.insert(device, (revision, outcome.hash));
                return true;
            }
            // Another operator, or this one before a restart. Whatever it wrote is replaced.
            Answer::Other(revision) => {
                self.written.insert(device.clone(), (revision, !outcome.hash));
                self.waiting.insert(device);
            }
            Answer::Unknown(_) => drop(self.waiting.insert(device)),
        }
        false
    }
}

/// Writes assignments, all at once, and awaits the answers.
pub(super) async fn write(context: Context, drafts: Vec<Draft>) -> Vec<Outcome> {
    let (mut outcomes, mut sent) = (Vec::with_capacity(drafts.len()), Vec::with_capacity(drafts.len()));
    for Draft { device, payload, revision, hash } in drafts {
        let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(revision);
        match context.send_publish(Bucket::Assignments.subject(&device), message).await {
            Ok(pending) => sent.push((device, hash, pending)),
            Err(error) => outcomes.push(Outcome { device, hash, answer: Answer::Unknown(error.to_string()) }),
        }
    }
    for (device, hash, pending) in sent {
        outcomes.push(Outcome { device, hash, answer: answer(pending).await });
    }
    outcomes
}

fn hash(payload: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_broker_is_written_and_a_lost_race_is_repeated() {
        let mut assignments = Assignments::default();
        let next = |assignments: &mut Assignments, text: &str| {
            let drafts = assignments.next(|_| Some(text.into()));
            drafts.into_iter().map(|draft| (draft.device, draft.revision, draft.hash)).collect::<Vec<_>>()
        };
        assignments.note("a", b"one", 7);
        assignments.recheck(["a".to_owned(), "b".to_owned()]);
        assert_eq!(next(&mut assignments, "one"), [("b".to_owned(), 0, hash(b"one"))]);
        assert_eq!(next(&mut assignments, "one"), []);
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two"), [("a".to_owned(), 7, hash(b"two"))]);
        let outcome = |answer| Outcome { device: "a".to_owned(), hash: hash(b"two"), answer };
        assert!(!assignments.settle(&outcome(Answer::Other(9))));
        assert_eq!(next(&mut assignments, "two"), [("a".to_owned(), 9, hash(b"two"))]);
        assert!(!assignments.settle(&outcome(Answer::Unknown("late".to_owned()))));
        assert_eq!(next(&mut assignments, "two").len(), 1);
        assert!(assignments.settle(&outcome(Answer::Stored(10))));
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two"), []);
        assignments.forget();
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two").len(), 1);
    }
}
