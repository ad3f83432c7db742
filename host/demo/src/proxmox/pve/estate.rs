//! The simulated cluster, and the parts of answers that several paths share.

use crate::proxmox::api::{Reply, Scenario};
use serde_json::{Value, json};

pub(super) const DAY: i64 = 24 * 3600;
pub(super) const GB: u64 = 1_000_000_000;

/// pve-http-server: PVE/APIServer/Formatter/Standard.pm.
pub(super) fn server_error(message: &str) -> Reply {
    Reply::Error(500, message.to_owned(), json!({ "data": null, "message": format!("{message}\n") }).to_string())
}

/// pve-access-control: PVE/RPCEnvironment.pm, check.
pub(super) fn refused(path: &str, privilege: &str) -> Reply {
    let message = format!("Permission check failed ({path}, {privilege})");
    let body = json!({ "data": null, "message": format!("{message}\n") });
    Reply::Error(403, message, body.to_string())
}

/// The simulated cluster of a scenario.
pub(super) struct Estate<'a> {
    pub(super) scenario: &'a Scenario,
    /// Seconds since the Unix epoch.
    pub(super) now: i64,
}

impl Estate<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.scenario.has(name)
    }

    pub(super) fn count(&self) -> usize {
        if self.has("standalone") { 1 } else { self.scenario.nodes.max(1) }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = String> {
        (1..=self.count()).map(|number| format!("pve{number}"))
    }

    pub(super) fn last(&self) -> String {
        format!("pve{}", self.count())
    }

    pub(super) fn is_offline(&self, node: &str) -> bool {
        self.has("node-offline") && node == self.last()
    }

    /// The output of `ceph -s`, or an error without Ceph (pve-manager: PVE/API2/Cluster/Ceph.pm).
    pub(super) fn ceph(&self) -> Reply {
        let down =
            json!({ "severity": "HEALTH_WARN", "summary": { "message": "1 osds down", "count": 1 }, "muted": false });
        let full =
            json!({ "severity": "HEALTH_ERR", "summary": { "message": "2 full osd(s)", "count": 2 }, "muted": false });
        let (status, up, checks) = if self.has("ceph-err") {
            ("HEALTH_ERR", 5, json!({ "OSD_DOWN": down, "OSD_FULL": full }))
        } else if self.has("ceph-warn") {
            (
                "HEALTH_WARN",
                5,
                json!({ "OSD_DOWN": down, "POOL_NO_REDUNDANCY": {
                "severity": "HEALTH_WARN", "summary": { "message": "1 pool(s) have no replicas configured", "count": 1 }, "muted": true,
            } }),
            )
        } else if self.has("ceph") || self.has("ceph-elsewhere") {
            ("HEALTH_OK", 6, json!({}))
        } else {
            return server_error("pveceph configuration not initialized - missing '/etc/pve/ceph.conf'");
        };
        Reply::Data(json!({
            "fsid": "11111111-2222-3333-4444-555555555555", "health": { "status": status, "checks": checks, "mutes": [] },
            "osdmap": { "epoch": 100, "num_osds": 6, "num_up_osds": up, "num_in_osds": 6, "num_remapped_pgs": 0 },
            "pgmap": { "num_pgs": 129, "bytes_used": 1_000_000_000_000_u64, "bytes_total": 6_000_000_000_000_u64 },
        }))
    }
}

/// pve-common: PVE/Tools.pm, upid_encode; pve-manager: PVE/API2/Tasks.pm.
pub(super) fn task(node: &str, kind: &str, id: &str, began: i64, status: &str) -> Value {
    json!({
        "upid": format!("UPID:{node}:0000A1B2:0012C3D4:{began:08X}:{kind}:{id}:root@pam:"), "node": node, "pid": 41_394,
        "pstart": 1_229_780, "type": kind, "id": id, "user": "root@pam", "starttime": began, "endtime": began + 300,
        "status": status, "saved": "1",
    })
}
