//! The streams at the broker that hold one record for each key, and the subjects of messages that are not stored.
//!
//! A bucket is a stream that keeps the last message of each subject. It is made with explicit settings instead of those
//! of the client's key-value buckets: a roll-up header would let one agent erase the records of all, and version 2.9 of
//! the broker does not answer what the client asks for such a bucket.

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use std::time::Duration;

/// The shortest time that the broker accepts. It would be memory for message ids, which are not used.
const DUPLICATES: Duration = Duration::from_secs(2);

/// A stream with one record for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bucket {
    /// The descriptions of the devices, by agents.
    Info,
    /// The states of deployments on devices, by agents.
    State,
    /// The deployments of each device, by the operator, and the definitions of all deployments.
    Assignments,
    /// Which host acts, where one of several does.
    Leases,
    /// The alerts of deployments that one device polls at a time, by that device.
    Alerts,
    /// The parts of plugin files, by the digest of the file, by the operator.
    Plugins,
}

/// The size of the parts of a plugin file in bytes; the last one may be smaller.
pub(crate) const PART: usize = 256 << 10;

/// The bytes that the broker counts in addition to a record: its seal, and the header of a conditional write.
const AROUND: usize = 256;

impl Bucket {
    /// The buckets that an operator follows, in the order in which it attaches to them.
    pub(crate) const FOLLOWED: [Self; 4] = [Self::Info, Self::State, Self::Assignments, Self::Leases];

    const fn name(self) -> &'static str {
        match self {
            Self::Info => "device-info",
            Self::State => "device-state",
            Self::Assignments => "assignments",
            Self::Leases => "leases",
            Self::Alerts => "open-alerts",
            Self::Plugins => "plugins",
        }
    }

    /// The name of the stream.
    pub(crate) fn stream(self) -> String {
        format!("KV_{}", self.name())
    }

    /// The subject of a key.
    pub(crate) fn subject(self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name())
    }

    /// The key of a subject; `None` if the subject is not of this bucket.
    pub(crate) fn key(self, subject: &str) -> Option<&str> {
        subject.strip_prefix("$KV.")?.strip_prefix(self.name())?.strip_prefix('.')
    }

    /// The largest record in bytes.
    pub(crate) const fn largest(self) -> usize {
        match self {
            Self::Info | Self::State | Self::Leases => fleet::wire::LARGEST,
            Self::Alerts => fleet::wire::LARGEST_ALERTS,
            Self::Assignments => fleet::wire::LARGEST_ASSIGNMENT,
            Self::Plugins => PART,
        }
    }

    /// The maximum size of the stream in bytes: a million devices with two states each fit. A broker reserves it on its
    /// disk, so that together they must fit on a small one.
    pub(crate) const fn bytes(self) -> i64 {
        match self {
            Self::Info | Self::Plugins => 256 << 20,
            Self::State | Self::Assignments => 1 << 30,
            Self::Leases => 16 << 20,
            Self::Alerts => 64 << 20,
        }
    }

    /// The settings with which the operator makes the stream.
    pub(crate) fn config(self, replicas: usize) -> Config {
        Config {
            name: self.stream(),
            subjects: vec![self.subject(">")],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            allow_rollup: false,
            allow_direct: true,
            deny_delete: true,
            storage: StorageType::File,
            num_replicas: replicas,
            duplicate_window: DUPLICATES,
            max_message_size: i32::try_from(self.largest() + AROUND).unwrap_or(i32::MAX),
            max_bytes: self.bytes(),
            max_messages: -1,
            max_consumers: -1,
            ..Config::default()
        }
    }
}

/// The key of the text that identifies the present stream of states. The operator writes it once.
pub(crate) const META: &str = "meta";

/// The key of the mark of an operator, which says how far it has read the stream.
pub(crate) fn mark(operator: &str) -> String {
    format!("{MARK}{operator}")
}

/// Whether a record is the mark of an operator.
pub(crate) fn is_mark(key: &str) -> bool {
    key.starts_with(MARK)
}

const MARK: &str = "mark.";

/// The key of a deployment's definition among the assignments. Ids of devices have no full stop.
pub(crate) fn definition(deployment: &str) -> String {
    format!("deployment.{deployment}")
}

/// The deployment of a definition's key.
pub(crate) fn of_definition(key: &str) -> Option<&str> {
    key.strip_prefix("deployment.").filter(|deployment| fleet::names::is_name(deployment))
}

/// The key of the lease under which one of several operators writes assignments.
pub(crate) const LEADER: &str = "operator";

/// The key of the lease of a deployment that one device polls at a time.
pub(crate) fn shard(deployment: &str) -> String {
    format!("shard.{deployment}")
}

/// The deployment of a lease's key; `None` for the lease of the operators.
pub(crate) fn of_shard(key: &str) -> Option<&str> {
    key.strip_prefix("shard.").filter(|deployment| fleet::names::is_name(deployment))
}

/// The key of a part of the plugin file with a digest.
pub(crate) fn plugin_part(digest: &[u8; 32], part: usize) -> String {
    format!("{}.{part}", model::hex(digest))
}

/// The number of parts of a plugin file.
pub(crate) fn plugin_parts(size: u32) -> usize {
    (size as usize).div_ceil(PART).max(1)
}

/// The subject on which a device says that it lives.
pub(crate) fn heartbeat(device: &str) -> String {
    format!("heartbeat.{device}")
}

/// The device of a heartbeat's subject.
pub(crate) fn of_heartbeat(subject: &str) -> Option<&str> {
    subject.strip_prefix("heartbeat.").filter(|device| fleet::names::is_name(device))
}

/// The subjects of requests to an agent.
pub(crate) fn of_agent(device: &str) -> String {
    format!("agent.{device}.*")
}

/// The subject on which an operator asks an agent to read its assignment.
pub(crate) fn assigned(device: &str) -> String {
    format!("agent.{device}.assigned")
}

/// The subject on which an operator asks an agent for lines of its log.
pub(crate) fn log_request(device: &str) -> String {
    format!("agent.{device}.logs")
}

/// The subject on which an operator asks an agent for what its API answers.
pub(crate) fn read_request(device: &str) -> String {
    format!("agent.{device}.read")
}

/// The subject of the answer to a request to an agent.
pub(crate) fn logs(device: &str, token: u64) -> String {
    format!("logs.{device}.{token}")
}

/// The subject on which an operator asks an agent to send all its records.
pub(crate) fn resync(device: &str) -> String {
    format!("agent.{device}.resync")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_subjects_correspond() {
        for bucket in Bucket::FOLLOWED {
            assert_eq!(bucket.key(&bucket.subject("state.a.b")), Some("state.a.b"));
            assert_eq!(bucket.config(1).subjects, [bucket.subject(">")]);
        }
        assert_eq!([0, 1, 256 << 10, (256 << 10) + 1].map(plugin_parts), [1, 1, 1, 2]);
        assert_eq!(Bucket::Info.key("$KV.device-state.meta"), None);
        assert_eq!(Bucket::Info.key("$KV.device-information.a"), None);
        assert_eq!(of_heartbeat(&heartbeat("host-1")), Some("host-1"));
        assert_eq!(of_heartbeat("heartbeat.a.b"), None);
        assert_eq!((of_shard(&shard("dns")), of_shard("operator"), of_shard("shard.a.b")), (Some("dns"), None, None));
    }
}
