//! The reports of a host to the operator of its fleet.

use crate::Timestamp;

/// The phase of a deployment on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not all targets have been polled.
    Pending,
    /// No target is unhealthy.
    Succeeded,
    /// A dependency is critical, a target is unreachable, or a target cannot be polled on this device.
    Failed,
    /// The device no longer runs the deployment.
    Removed,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Succeeded, Self::Failed, Self::Removed];

    /// Returns the phase with this word; `None` for other words.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// The word in pages, API and command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Removed => "removed",
        }
    }
}

/// The state of a deployment on this device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentReport {
    /// The name of the deployment.
    pub deployment: String,
    /// The phase.
    pub phase: Phase,
    /// The dependencies that are ok, warning, critical and unknown.
    pub counts: [u32; 4],
    /// The time of the change by this host's clock.
    pub at: Timestamp,
    /// Why it failed.
    pub error: Option<String>,
    /// The term of the lease under which this host polls; 0 for a deployment that needs none.
    pub term: u64,
}

/// A record from this host for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetRecord {
    /// The host's description of itself. The store compares it with the one before, and does not read it.
    Description(String),
    /// The state of a deployment.
    Report(DeploymentReport),
}

impl FleetRecord {
    /// The deployment that it is about; empty for the description of the host.
    pub fn deployment(&self) -> &str {
        match self {
            Self::Description(_) => "",
            Self::Report(report) => &report.deployment,
        }
    }
}

/// A record that the broker has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRecord {
    /// The record.
    pub record: FleetRecord,
    /// Epoch and counter of the record.
    pub stamp: (u32, u32),
    /// The revision of its key at the broker, if it is known.
    pub revision: Option<u64>,
}

/// The answer of the broker to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The deployment of the record; empty for the description of the host.
    pub deployment: String,
    /// Epoch and counter of the record that was sent.
    pub stamp: (u32, u32),
    /// The revision of the key at the broker.
    pub revision: u64,
    /// Whether the broker stores the record. Otherwise it stores another one, with the revision above.
    pub is_stored: bool,
}

/// A record at the broker, as an operator read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// The stream at the broker.
    pub stream: String,
    /// The key in the stream.
    pub key: String,
    /// The bytes of the record.
    pub payload: Vec<u8>,
}

/// How far an operator has read a stream. It has kept every record up to its own mark, which is a record too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPlace {
    /// The stream at the broker.
    pub stream: String,
    /// Identifies the stream among those that had its name.
    pub incarnation: String,
    /// The sequence of the mark.
    pub sequence: u64,
    /// The text of the mark. If the stream has it no longer at its sequence, it lost records.
    pub mark: String,
}

/// A change of the records of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetChange {
    /// The host begins as an agent. A host that was never one begins with this number of seconds since 1970 as its
    /// epoch, an earlier one with a larger epoch than before.
    Begin(u32),
    /// Another record of this device exists at the broker, with this epoch: this host continues with a larger one, and
    /// reports everything again.
    Outdo(u32),
    /// A new record, unless it is the same as before.
    Record(FleetRecord),
    /// Answers of the broker.
    Acknowledged(Vec<Acknowledged>),
    /// The broker is another one, or has lost records: everything is sent again. The text identifies the broker.
    SendAgain(String),
    /// This host, as an operator, has read records, and has all up to a place if there is one.
    Keep(Vec<KeptRecord>, Option<KeptPlace>),
}

/// The place of this host's reports at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPlace {
    /// The epoch of this run.
    pub epoch: u32,
    /// Records of earlier epochs are void, because the database that they came from is lost.
    pub floor: u32,
    /// Identifies the broker that acknowledged the records; `None` before the first.
    pub incarnation: Option<String>,
    /// The revision of the acknowledged description; `None` if it is not acknowledged.
    pub described: Option<u64>,
    /// The acknowledged report with the highest revision: its deployment and the revision.
    pub top: Option<(String, u64)>,
    /// The stamps of all acknowledged reports, by deployment.
    pub acknowledged: Vec<(String, (u32, u32))>,
    /// The number of records that are not acknowledged.
    pub queued: u32,
}
