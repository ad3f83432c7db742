//! The bytes of the records that agents and operators exchange.
//!
//! A record is its version in one byte, then its fields in postcard's format
//! (<https://postcard.jamesmunns.com/wire-format>): integers as variable-length integers, texts with their length, in
//! the order of the types here. A reader refuses unknown versions and bytes that are left over, so a new field needs a
//! new version.
//!
//! Texts come from agents, which may be hostile: [`decode`] checks names, labels and lengths before a record is used.

mod assignment;
mod logs;
mod open_alerts;
mod reads;

use crate::labels::{InvalidLabel, check};
use crate::names::{self, is_name};
use crate::{Labels, Phase, Requirement, Selector, Stamp};
pub use assignment::{Assigned, Assignment, LARGEST_PLUGIN, OfferedPlugin};
pub use logs::{LogChunk, LogQuery, MOST_LINES, chunks};
use model::Timestamp;
pub use open_alerts::{AcknowledgementWire, LARGEST_ALERTS, NotifiedWire, OpenAlert, OpenAlerts};
pub use reads::{ReadPart, ReadQuery, read_parts};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of most records.
const VERSION: u8 = 2;
/// The maximum size of an agent's record in bytes. The streams refuse larger ones.
pub const LARGEST: usize = 4096;
/// The maximum size of an assignment in bytes: half of what the broker takes in one message.
pub const LARGEST_ASSIGNMENT: usize = 512 << 10;
/// The maximum length of an error in bytes.
const ERROR: usize = 1024;
/// The maximum length of other texts in bytes.
const TEXT: usize = 256;

/// Why bytes are not a record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The record has no byte.
    #[error("the record is empty")]
    Empty,
    /// The record is too large for the streams.
    #[error("the record has {0} bytes, more than {1}")]
    TooLarge(usize, usize),
    /// A newer or damaged record.
    #[error(
        "the record has version {0}, this program reads version {1}: update it, or the program that sent the record"
    )]
    Version(u8, u8),
    /// The bytes are not of this type.
    #[error("the record is damaged: {0}")]
    Damaged(postcard::Error),
    /// Bytes follow the record.
    #[error("{0} bytes follow the record")]
    LeftOver(usize),
    /// A name cannot be part of a subject.
    #[error("the record contains the name {0:?}; a name is {rule}", rule = names::RULE)]
    Name(String),
    /// A plugin cannot serve such a kind.
    #[error("the record contains the kind {0:?}; a kind is a-z, 0-9 and '-', and begins with a letter")]
    Kind(String),
    /// A label is not valid.
    #[error("the record contains a label that is not valid: {0}")]
    Label(InvalidLabel),
    /// A text is too long.
    #[error("the record's {0} is too long")]
    TooLong(&'static str),
    /// A record has no counter.
    #[error("the record has counter 0, which no record has")]
    NoCounter,
}

/// The description of a device by its agent: `info.<device>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Epoch and counter.
    pub stamp: (u32, u32),
    /// States of earlier epochs are void, because the database that they came from is lost.
    pub floor: u32,
    /// The labels that selectors match.
    pub labels: Labels,
    /// Facts for people, such as the operating system.
    pub inventory: BTreeMap<String, String>,
    /// The version of the agent's program.
    pub version: String,
}

/// The state of a deployment on a device: `state.<device>.<deployment>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentState {
    /// Epoch and counter.
    pub stamp: (u32, u32),
    /// The phase of the deployment on this device.
    pub phase: PhaseWire,
    /// The dependencies that are ok, warning, critical and unknown.
    pub counts: [u32; 4],
    /// The time of the change by the agent's clock, in milliseconds since 1970.
    pub at: i64,
    /// The last error.
    pub error: Option<String>,
    /// The term of the lease under which the device polls a deployment that one device polls at a time; 0 for others.
    pub term: u64,
}

/// A phase; the numbers are its position in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in Phase")]
pub enum PhaseWire {
    Pending,
    Succeeded,
    Failed,
    Removed,
}

/// Says that an agent lives: `heartbeat.<device>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatPayload {
    /// The agent's epoch.
    pub epoch: u32,
    /// The time by the agent's clock, in milliseconds since 1970.
    pub at: i64,
    /// The number of records that the broker has not acknowledged.
    pub dirty: u32,
    /// The sum of [`crate::digest`] over the agent's acknowledged states.
    pub digest: u64,
}

/// A set of targets for the devices that a selector chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Grows with each change.
    pub version: u64,
    /// Labels that a device must have.
    pub labels: Labels,
    /// Further requirements.
    pub requirements: Vec<RequirementWire>,
    /// The targets, each as JSON with the keys of the configuration file. None if the deployment is deleted: operators
    /// know by the version that it is not a new one.
    pub targets: Vec<String>,
    /// Which of the devices poll.
    pub mode: ModeWire,
}

/// A requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in Requirement")]
pub enum RequirementWire {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

/// Which devices of a deployment poll, and when it counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeWire {
    /// Every device; each counts alone.
    Each,
    /// One device at a time, by a lease.
    Once,
    /// Every device; failed if this many say so.
    Quorum(u32),
}

/// The right to act for a while: `shard.<deployment>` for devices, `operator` for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The device or operator that holds it.
    pub owner: String,
    /// Grows with each new owner. Results of an earlier term are refused.
    pub term: u64,
    /// Whether the owner gave it up, so that the next need not wait.
    pub is_free: bool,
}

/// A type of record with its checks.
pub trait Record: Serialize + DeserializeOwned {
    /// The maximum size in bytes.
    const LARGEST: usize = LARGEST;
    /// The version of the type.
    const VERSION: u8 = VERSION;

    /// Checks what the format does not.
    ///
    /// # Errors
    /// If a name, a label, a length or a counter is not valid.
    fn check(&self) -> Result<(), WireError>;
}

/// Returns the bytes of a record.
///
/// # Errors
/// If the record is not valid, or too large.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, WireError> {
    record.check()?;
    let bytes = postcard::to_extend(record, vec![R::VERSION]).map_err(WireError::Damaged)?;
    if bytes.len() > R::LARGEST { Err(WireError::TooLarge(bytes.len(), R::LARGEST)) } else { Ok(bytes) }
}

/// Returns the record that bytes stand for.
///
/// # Errors
/// If they are not a valid record of this type and version.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, WireError> {
    let (version, body) = bytes.split_first().ok_or(WireError::Empty)?;
    if bytes.len() > R::LARGEST {
        return Err(WireError::TooLarge(bytes.len(), R::LARGEST));
    }
    if *version != R::VERSION {
        return Err(WireError::Version(*version, R::VERSION));
    }
    let (record, rest): (R, _) = postcard::take_from_bytes(body).map_err(WireError::Damaged)?;
    if !rest.is_empty() {
        return Err(WireError::LeftOver(rest.len()));
    }
    record.check()?;
    Ok(record)
}

/// Returns an error text that fits into a record: at most 1,024 bytes, cut between characters.
pub fn fitting(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR)]
}

fn text(text: &str, longest: usize, field: &'static str) -> Result<(), WireError> {
    if text.len() <= longest { Ok(()) } else { Err(WireError::TooLong(field)) }
}

fn name(name: &str) -> Result<(), WireError> {
    if is_name(name) { Ok(()) } else { Err(WireError::Name(name.chars().take(80).collect())) }
}

fn counted(stamp: (u32, u32)) -> Result<(), WireError> {
    if stamp.1 == 0 { Err(WireError::NoCounter) } else { Ok(()) }
}

impl Record for DeviceInfo {
    fn check(&self) -> Result<(), WireError> {
        counted(self.stamp)?;
        check(&self.labels).map_err(WireError::Label)?;
        let facts = self.inventory.iter();
        facts.flat_map(|(key, value)| [key, value]).try_for_each(|fact| text(fact, TEXT, "inventory"))?;
        text(&self.version, TEXT, "version")
    }
}

impl Record for DeploymentState {
    fn check(&self) -> Result<(), WireError> {
        counted(self.stamp)?;
        text(self.error.as_deref().unwrap_or_default(), ERROR, "error")
    }
}

impl Record for HeartbeatPayload {
    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }
}

impl Record for Deployment {
    const LARGEST: usize = LARGEST_ASSIGNMENT;

    fn check(&self) -> Result<(), WireError> {
        self.selector().check().map_err(WireError::Label)
    }
}

impl Record for Lease {
    fn check(&self) -> Result<(), WireError> {
        name(&self.owner)
    }
}

impl Deployment {
    /// A deployment that is deleted.
    pub fn deleted(version: u64) -> Self {
        Self { version, labels: Labels::new(), requirements: Vec::new(), targets: Vec::new(), mode: ModeWire::Each }
    }

    /// Whether it is deleted.
    pub fn is_deleted(&self) -> bool {
        self.targets.is_empty()
    }

    /// Which devices it is for.
    pub fn selector(&self) -> Selector {
        let requirement = |wire: &RequirementWire| match wire.clone() {
            RequirementWire::In(key, values) => Requirement::In(key, values),
            RequirementWire::NotIn(key, values) => Requirement::NotIn(key, values),
            RequirementWire::Exists(key) => Requirement::Exists(key),
            RequirementWire::DoesNotExist(key) => Requirement::DoesNotExist(key),
        };
        Selector { labels: self.labels.clone(), requirements: self.requirements.iter().map(requirement).collect() }
    }
}

impl DeploymentState {
    /// Epoch and counter.
    pub fn stamp(&self) -> Stamp {
        stamp(self.stamp)
    }

    /// The time of the change by the agent's clock.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at)
    }
}

impl DeviceInfo {
    /// Epoch and counter.
    pub fn stamp(&self) -> Stamp {
        stamp(self.stamp)
    }
}

fn stamp((epoch, counter): (u32, u32)) -> Stamp {
    Stamp { epoch, counter }
}

impl From<PhaseWire> for Phase {
    fn from(wire: PhaseWire) -> Self {
        match wire {
            PhaseWire::Pending => Self::Pending,
            PhaseWire::Succeeded => Self::Succeeded,
            PhaseWire::Failed => Self::Failed,
            PhaseWire::Removed => Self::Removed,
        }
    }
}

impl From<Phase> for PhaseWire {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Pending => Self::Pending,
            Phase::Succeeded => Self::Succeeded,
            Phase::Failed => Self::Failed,
            Phase::Removed => Self::Removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> DeploymentState {
        let error = Some("the server answered 503".to_owned());
        DeploymentState {
            stamp: (1, 2),
            phase: PhaseWire::Failed,
            counts: [3, 0, 1, 0],
            at: 1_796_000_000_000,
            error,
            term: 0,
        }
    }

    fn info() -> DeviceInfo {
        let labels = [("site".to_owned(), "a".to_owned())].into();
        let inventory = [("os".to_owned(), "Debian 12".to_owned())].into();
        DeviceInfo { stamp: (1, 1), floor: 1, labels, inventory, version: "0.1.0".to_owned() }
    }

    fn round_trip<R: Record + PartialEq + std::fmt::Debug>(record: &R) {
        assert_eq!(decode::<R>(&encode(record).unwrap()).as_ref(), Ok(record));
    }

    #[test]
    fn every_record_survives_a_round_trip() {
        round_trip(&info());
        round_trip(&state());
        round_trip(&HeartbeatPayload { epoch: 1, at: -5, dirty: 7, digest: u64::MAX });
        round_trip(&Lease { owner: "host-1".to_owned(), term: 3, is_free: false });
        let requirements = vec![
            RequirementWire::In("a".to_owned(), vec!["b".to_owned()]),
            RequirementWire::NotIn("a".to_owned(), vec!["c".to_owned()]),
            RequirementWire::Exists("a".to_owned()),
            RequirementWire::DoesNotExist("d".to_owned()),
        ];
        let targets = vec![r#"{"id":"dns"}"#.to_owned()];
        let mode = ModeWire::Quorum(2);
        round_trip(&Deployment { version: 9, labels: info().labels, requirements, targets, mode });
        for phase in [Phase::Pending, Phase::Succeeded, Phase::Failed, Phase::Removed] {
            assert_eq!(Phase::from(PhaseWire::from(phase)), phase);
        }
    }

    #[test]
    fn the_bytes_of_version_2_stay_as_they_are() {
        let bytes = encode(&DeploymentState { error: None, ..state() }).unwrap();
        assert_eq!(bytes, [2, 1, 2, 2, 3, 0, 1, 0, 128, 160, 137, 159, 197, 104, 0, 0]);
    }

    #[test]
    fn what_is_not_a_valid_record_is_refused_with_the_reason() {
        let good = encode(&state()).unwrap();
        let refused = |bytes: &[u8]| decode::<DeploymentState>(bytes).unwrap_err();
        assert_eq!(refused(&[]), WireError::Empty);
        assert_eq!(refused(&[1, 1]), WireError::Version(1, VERSION));
        assert_eq!(refused(&[&good[..], &[0]].concat()), WireError::LeftOver(1));
        assert_eq!(refused(&vec![VERSION; LARGEST + 1]), WireError::TooLarge(LARGEST + 1, LARGEST));
        assert!(matches!(refused(&good[..good.len() - 1]), WireError::Damaged(_)));
        let long = DeploymentState { error: Some("x".repeat(ERROR + 1)), ..state() };
        assert_eq!(encode(&long), Err(WireError::TooLong("error")));
        assert_eq!(encode(&DeploymentState { stamp: (1, 0), ..state() }), Err(WireError::NoCounter));
        assert_eq!(
            encode(&Lease { owner: "a.b".to_owned(), term: 1, is_free: true }),
            Err(WireError::Name("a.b".to_owned()))
        );
        let labels = [("a b".to_owned(), String::new())].into();
        assert!(matches!(encode(&DeviceInfo { labels, ..info() }), Err(WireError::Label(_))));
        let inventory = (0..40).map(|n| (n.to_string(), "x".repeat(200))).collect();
        assert!(matches!(encode(&DeviceInfo { inventory, ..info() }), Err(WireError::TooLarge(..))));
        assert_eq!(fitting(&"é".repeat(600)).len(), 1024);
        assert_eq!(fitting("short"), "short");
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in any::<bool>()) {
            if let Some(first) = bytes.first_mut().filter(|_| version) {
                *first = VERSION;
            }
            let _ = decode::<DeviceInfo>(&bytes);
            let _ = decode::<DeploymentState>(&bytes);
            let _ = decode::<HeartbeatPayload>(&bytes);
            let _ = decode::<Deployment>(&bytes);
            let _ = decode::<Lease>(&bytes);
            let _ = decode::<OpenAlerts>(&bytes);
            let _ = decode::<LogQuery>(&bytes);
            let _ = decode::<LogChunk>(&bytes);
            let _ = decode::<ReadQuery>(&bytes);
            let _ = decode::<ReadPart>(&bytes);
        }
    }
}
