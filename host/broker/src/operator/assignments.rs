//! Writing the assignment of each device, which are the deployments that choose it, and the definitions of the
//! deployments.
//!
//! Every write is conditional on the revision that was read, so a second operator is noticed instead of overwritten.

use crate::accounts::OPERATOR;
use crate::bucket::{Bucket, of_definition};
use crate::record::{Answer, answer};
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use fleet::wire::Assignment;
use foldhash::fast::FixedState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

/// Assignments that are written together.
const AT_ONCE: usize = 256;

/// The records at the broker, and those that may have to be written. A key is a device, or that of a definition.
#[derive(Default)]
pub(super) struct Assignments {
    /// The revision and the hash of each record at the broker.
    written: HashMap<String, (u64, u64)>,
    /// Keys whose record may have changed.
    waiting: BTreeSet<String>,
}

/// A record that is being written.
pub(super) struct Draft {
    key: String,
    payload: Vec<u8>,
    /// The revision that it replaces.
    revision: u64,
    hash: u64,
}

/// The answer of the broker to a record.
pub(super) struct Outcome {
    pub key: String,
    pub answer: Answer,
    hash: u64,
}

impl Assignments {
    /// Forgets what the broker holds: it is read again.
    pub(super) fn forget(&mut self) {
        self.written.clear();
    }

    /// Notes what the broker holds. Returns whether it is new.
    pub(super) fn note(&mut self, key: &str, hash: u64, revision: u64) -> bool {
        let is_new = self.written.get(key).is_none_or(|(known, _)| *known < revision);
        if is_new {
            self.written.insert(key.to_owned(), (revision, hash));
        }
        is_new
    }

    /// Adds keys whose record may have changed.
    pub(super) fn recheck(&mut self, keys: impl IntoIterator<Item = String>) {
        self.waiting.extend(keys);
    }

    /// Returns the next records that differ from those at the broker. `record` returns the bytes of a key's record and
    /// a hash of what they mean, or `None` if the record is not to be written.
    pub(super) fn next(&mut self, mut record: impl FnMut(&str) -> Option<(Vec<u8>, u64)>) -> Vec<Draft> {
        let mut drafts = Vec::new();
        while drafts.len() < AT_ONCE
            && let Some(key) = self.waiting.pop_first()
        {
            let Some((payload, hash)) = record(&key) else { continue };
            let (revision, held) = self.written.get(&key).copied().unwrap_or_default();
            if revision == 0 || held != hash {
                drafts.push(Draft { key, payload, revision, hash });
            }
        }
        drafts
    }

    /// Notes the answer of the broker. Returns whether the record is stored.
    pub(super) fn settle(&mut self, outcome: &Outcome) -> bool {
        match outcome.answer {
            Answer::Stored(revision) => {
                self.note(&outcome.key, outcome.hash, revision);
                return true;
            }
            // Another operator, or this one before a restart. A definition is compared once it has been read.
            Answer::Other(_) if of_definition(&outcome.key).is_some() => {}
            // Whatever it wrote for a device is replaced.
            Answer::Other(revision) => {
                self.written.insert(outcome.key.clone(), (revision, !outcome.hash));
                self.waiting.insert(outcome.key.clone());
            }
            Answer::Unknown(_) => drop(self.waiting.insert(outcome.key.clone())),
        }
        false
    }
}

/// Writes records, all at once, and awaits the answers.
pub(super) async fn write(context: Context, drafts: Vec<Draft>) -> Vec<Outcome> {
    let (mut outcomes, mut sent) = (Vec::with_capacity(drafts.len()), Vec::with_capacity(drafts.len()));
    for Draft { key, payload, revision, hash } in drafts {
        let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(revision);
        match context.send_publish(Bucket::Assignments.subject(&key), message).await {
            Ok(pending) => sent.push((key, hash, pending)),
            Err(error) => outcomes.push(Outcome { key, hash, answer: Answer::Unknown(error.to_string()) }),
        }
    }
    for (key, hash, pending) in sent {
        outcomes.push(Outcome { key, hash, answer: answer(pending).await });
    }
    outcomes
}

/// Returns the hash of a record's bytes.
pub(super) fn hash(payload: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(payload)
}

/// Returns the hash of what an assignment means to its device, without the term of the operator that wrote it.
pub(super) fn meaning(assignment: &Assignment) -> u64 {
    FixedState::with_seed(0).hash_one((&assignment.deployments, &assignment.plugins))
}

/// The device whose key seals the record of a key among the assignments. Definitions are the operators' own.
pub(super) fn owner(key: &str) -> &str {
    if of_definition(key).is_some() { OPERATOR } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_broker_is_written_and_a_lost_race_is_repeated() {
        let mut assignments = Assignments::default();
        let next = |assignments: &mut Assignments, text: &str| {
            let drafts = assignments.next(|_| Some((text.into(), hash(text.as_bytes()))));
            drafts.into_iter().map(|draft| (draft.key, draft.revision, draft.hash)).collect::<Vec<_>>()
        };
        assert!(assignments.note("a", hash(b"one"), 7));
        // A message that was on its way while a newer record was written.
        assert!(!assignments.note("a", hash(b"none"), 6));
        assignments.recheck(["a".to_owned(), "b".to_owned()]);
        assert_eq!(next(&mut assignments, "one"), [("b".to_owned(), 0, hash(b"one"))]);
        assert_eq!(next(&mut assignments, "one"), []);
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two"), [("a".to_owned(), 7, hash(b"two"))]);
        let outcome = |answer| Outcome { key: "a".to_owned(), hash: hash(b"two"), answer };
        assert!(!assignments.settle(&outcome(Answer::Other(9))));
        assert_eq!(next(&mut assignments, "two"), [("a".to_owned(), 9, hash(b"two"))]);
        assert!(!assignments.settle(&outcome(Answer::Unknown("late".to_owned()))));
        assert_eq!(next(&mut assignments, "two").len(), 1);
        assert!(assignments.settle(&outcome(Answer::Stored(10))));
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two"), []);
        // The definition of another operator is read before it is replaced.
        assignments.recheck(["deployment.dns".to_owned()]);
        let drafts = next(&mut assignments, "dns");
        let outcome = Outcome { key: "deployment.dns".to_owned(), hash: drafts[0].2, answer: Answer::Other(3) };
        assert!(!assignments.settle(&outcome));
        assert_eq!(next(&mut assignments, "dns"), []);
        assignments.forget();
        assignments.recheck(["a".to_owned()]);
        assert_eq!(next(&mut assignments, "two").len(), 1);
    }
}
