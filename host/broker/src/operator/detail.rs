//! The records of one device, read from the broker.

use super::shared::Shared;
use crate::bucket::Bucket;
use crate::record::last;
use fleet::names::{info_key, state_key};
use fleet::wire::Record;
use fleet::{DeviceDetail, DeviceView};
use futures_util::{StreamExt, stream};
use std::time::Duration;
use tokio::time::Instant;

/// The broker gives all records of a device within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Records that are read at the same time.
const TOGETHER: usize = 16;

/// Reads the description of a device and the states of its deployments. The first reason why one of them is missing is
/// part of the answer.
pub(super) async fn detail(shared: &Shared, (view, skew): (DeviceView, Option<i64>)) -> DeviceDetail {
    let link = shared.connection.state();
    let mut detail = DeviceDetail { view, skew, info: None, states: Default::default(), problem: None };
    if !link.is_connected {
        detail.problem = Some(link.problem.unwrap_or_else(|| "the broker is not connected".to_owned()));
        return detail;
    }
    let (device, until) = (detail.view.device.clone(), Instant::now() + PATIENCE);
    match read(shared, (Bucket::Info, &device, &info_key(&device)), until).await {
        Ok(info) => detail.info = info,
        Err(why) => detail.problem = Some(why),
    }
    let names: Vec<String> = detail.view.deployments.iter().map(|(deployment, _)| deployment.clone()).collect();
    let state = async |deployment: String| {
        let found = read(shared, (Bucket::State, &device, &state_key(&device, &deployment)), until).await;
        (deployment, found)
    };
    let mut states = stream::iter(names.into_iter().map(state)).buffer_unordered(TOGETHER);
    while let Some((deployment, found)) = states.next().await {
        match found {
            Ok(found) => detail.states.extend(found.map(|found| (deployment, found))),
            Err(why) => drop(detail.problem.get_or_insert(why)),
        }
    }
    detail
}

/// Reads a record; `None` if the broker does not have it.
async fn read<R: Record>(
    shared: &Shared,
    (bucket, device, key): (Bucket, &str, &str),
    until: Instant,
) -> Result<Option<R>, String> {
    let found = async {
        let stream = shared.connection.context.get_stream_no_info(bucket.stream()).await;
        last(&stream.map_err(|error| error.to_string())?, bucket, key).await
    };
    let late = |_| Err(format!("the broker did not give all records within {} s", PATIENCE.as_secs()));
    let Some((payload, _)) = tokio::time::timeout_at(until, found).await.unwrap_or_else(late)? else { return Ok(None) };
    shared.keys.read((device, &bucket.subject(key)), &payload).map(Some)
}
