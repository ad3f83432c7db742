//! Applies the records of devices.

use super::state::State;
use crate::bucket::Bucket;
use crate::seal::Keys;
use fleet::names::{of_info_key, of_state_key};
use fleet::wire::{DeploymentState, DeviceInfo};
use fleet::{Applied, Input};
use model::Timestamp;

/// Applies a record of a device. Returns whether it is valid.
pub(super) fn apply(
    state: &mut State,
    keys: &Keys,
    (bucket, key, payload): (Bucket, &str, &[u8]),
    now: Timestamp,
) -> bool {
    let subject = bucket.subject(key);
    let problem = if bucket == Bucket::Info {
        match of_info_key(key).map(|id| (id, keys.read::<DeviceInfo>((id, &subject), payload))) {
            Some((device, Ok(info))) => {
                let (stamp, floor, labels) = (info.stamp(), info.floor, Some(&info.labels));
                state.aggregator.apply(&Input::Info { device, stamp, floor, labels });
                None
            }
            Some((_, Err(why))) => Some(why),
            None => Some("this is not the key of a device".to_owned()),
        }
    } else {
        match of_state_key(key).map(|(id, name)| (id, name, keys.read((id, &subject), payload))) {
            Some((device, deployment, Ok(found))) => {
                let found: DeploymentState = found;
                let applied = state.aggregator.apply(&Input::State {
                    device,
                    deployment,
                    stamp: found.stamp(),
                    phase: found.phase.into(),
                    at: found.at().min(now),
                    error: found.error.as_deref(),
                    term: found.term,
                });
                let invented = "the device reports too many deployments that it was not assigned";
                (applied == Applied::Refused).then(|| invented.to_owned())
            }
            Some((_, _, Err(why))) => Some(why),
            None => Some("this is not the key of a state".to_owned()),
        }
    };
    if let Some(why) = &problem {
        state.refuse(key, why);
    }
    problem.is_none()
}
