//! The records of one device, read from the broker.

use super::shared::Shared;
use crate::bucket::Bucket;
use crate::record::last;
use fleet::names::{info_key, state_key};
use fleet::wire::Record;
use fleet::{DeviceDetail, DeviceView};
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::time::Duration;

/// The broker gives all records of a device within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Records that are read at the same time.
const TOGETHER: usize = 16;

/// Reads the description of a device and the states of its deployments. What is not sealed as it should be is missing.
pub(super) async fn detail(shared: &Shared, (view, skew): (DeviceView, Option<i64>)) -> DeviceDetail {
    let missing = |view: DeviceView, why: String| {
        let (info, states) = (None, BTreeMap::new());
        DeviceDetail { view, skew, info, states, problem: Some(why) }
    };
    let link = shared.connection.state();
    if !link.is_connected {
        return missing(view, link.problem.unwrap_or_else(|| "the broker is not connected".to_owned()));
    }
    let device = &view.device;
    let names: Vec<String> = view.deployments.iter().map(|(deployment, _)| deployment.clone()).collect();
    let state = async |deployment: String| {
        let found = read(shared, (Bucket::State, device, &state_key(device, &deployment))).await?;
        Some((deployment, found))
    };
    let reads = async {
        let info = read(shared, (Bucket::Info, device, &info_key(device))).await;
        let states = stream::iter(names.into_iter().map(state));
        let states: Vec<_> = states.buffer_unordered(TOGETHER).collect().await;
        (info, states.into_iter().flatten().collect())
    };
    match tokio::time::timeout(PATIENCE, reads).await {
        Ok((info, states)) => DeviceDetail { view, skew, info, states, problem: None },
        Err(_) => missing(view, format!("the broker did not answer within {} s", PATIENCE.as_secs())),
    }
}

async fn read<R: Record>(shared: &Shared, (bucket, device, key): (Bucket, &str, &str)) -> Option<R> {
    let stream = shared.connection.context.get_stream_no_info(bucket.stream()).await.ok()?;
    let (payload, _) = last(&stream, bucket, key).await.ok()??;
    shared.keys.read((device, &bucket.subject(key)), &payload).ok()
}
