//! The records of one device, read from the broker.

use crate::bucket::Bucket;
use crate::record::last;
use crate::seal::Keys;
use async_nats::jetstream::Context;
use fleet::names::{info_key, state_key};
use fleet::wire::Record;
use fleet::{DeviceDetail, DeviceView};
use std::collections::BTreeMap;

/// Reads the description of a device and the states of its deployments. What the broker cannot give is missing, and so
/// is what is not sealed as it should be.
pub(super) async fn detail(context: &Context, keys: &Keys, (view, skew): (DeviceView, Option<i64>)) -> DeviceDetail {
    let device = view.device.clone();
    let info = read(context, keys, (Bucket::Info, &device, &info_key(&device))).await;
    let mut states = BTreeMap::new();
    for (deployment, _) in &view.deployments {
        let found = read(context, keys, (Bucket::State, &device, &state_key(&device, deployment))).await;
        states.extend(found.map(|found| (deployment.clone(), found)));
    }
    DeviceDetail { view, skew, info, states }
}

async fn read<R: Record>(context: &Context, keys: &Keys, (bucket, device, key): (Bucket, &str, &str)) -> Option<R> {
    let stream = context.get_stream_no_info(bucket.stream()).await.ok()?;
    let (payload, _) = last(&stream, bucket, key).await.ok()??;
    keys.read((device, &bucket.subject(key)), &payload).ok()
}
