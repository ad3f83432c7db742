//! How a Proxmox VE cluster becomes a target, and its nodes.

use crate::context::Memory;
use polliwog_sdk::lenient::{Field, Flag, Text};
use polliwog_sdk::{Endpoint, Guide, Member};
use proxmox::{Answer, Api, Connected, Diagnostics, Error, Product, connect};
use serde::Deserialize;

pub(crate) const TOKEN_EXAMPLE: &str = "${account}!monitor=THE-VALUE-SHOWN";

pub(crate) fn guide() -> Guide {
    let commands = [
        "pveum user add ${account} -comment 'Polliwog, read-only'",
        "pveum acl modify / -user ${account} -role PVEAuditor",
        "pveum user token add ${account} monitor -privsep 1",
        "pveum acl modify / -token '${account}!monitor' -role PVEAuditor",
    ];
    Guide {
        port: Some(Product::Ve.port()),
        public_pointer: Some("/data".to_owned()),
        fingerprint_command: Some("pvenode cert info".to_owned()),
        commands: commands.map(str::to_owned).into(),
        account: Some("polliwog@pve".to_owned()),
        has_members: true,
        ..Guide::new("/api2/json/access/domains")
    }
}

/// An entry of `/cluster/status`: the cluster itself, or a node.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(rename = "type")]
    kind: Field<Text>,
    name: Field<Text>,
    ip: Field<Text>,
    /// Whether this node answers the request.
    local: Field<Flag>,
}

/// An entry of `/nodes`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    node: Field<Text>,
    ssl_fingerprint: Field<Text>,
}

/// The nodes other than the one that answers.
pub(crate) fn members(
    target: &Endpoint,
    authorize: impl Fn(Api, &mut Memory) -> Result<Api, Error>,
) -> Result<Vec<Member>, Error> {
    const PATHS: [&str; 2] = ["/cluster/status", "/nodes"];
    let Connected { answers, .. } = connect(target, Product::Ve, &mut Memory::load(target), &PATHS, authorize)?;
    let Ok([status, nodes]) = <[Answer; PATHS.len()]>::try_from(answers) else { return Ok(Vec::new()) };
    let mut diagnostics = Diagnostics::default();
    let entries = status.list::<Entry>(&mut diagnostics)?;
    let nodes = nodes.list::<Node>(&mut diagnostics)?;
    let member = |entry: &Entry| {
        let is = |field: &Field<Text>, text: &str| field.get().is_some_and(|Text(found)| found == text);
        let local = entry.local.get().is_some_and(|Flag(local)| *local);
        let Text(name) = entry.name.get().filter(|_| is(&entry.kind, "node") && !local)?;
        let node = nodes.iter().find(|node| is(&node.node, name));
        let text = |field: &Field<Text>| field.get().map(|Text(text)| text.clone());
        let fingerprint = node.and_then(|node| text(&node.ssl_fingerprint));
        Some(Member { address: text(&entry.ip), fingerprint, ..Member::new(name) })
    };
    Ok(entries.iter().filter_map(member).collect())
}
