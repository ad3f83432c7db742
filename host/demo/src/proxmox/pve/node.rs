//! The paths of a node, which the requested node forwards.

use super::estate::{DAY, Estate, GB, refused, server_error, task};
use crate::proxmox::api::{Reply, certificates, subscription};
use serde_json::{Value, json};

impl Estate<'_> {
    pub(super) fn of_node(&self, node: &str, rest: &[&str], query: &str) -> Reply {
        if !self.nodes().any(|known| known == node) {
            return server_error(&format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
            ));
        }
        if self.is_offline(node) || self.has("node-unreachable") && node == self.last() {
            return Reply::proxy(595, "No route to host");
        }
        if self.has("node-hangs") && node == self.last() {
            return Reply::Never;
        }
        if self.has("node-slow") && node == self.last() {
            return Reply::proxy(596, "Connection timed out");
        }
        match rest {
            ["storage"] => Reply::Data(self.node_storage(node)),
            ["certificates", "info"] => {
                Reply::Data(certificates(self.scenario, self.now, ["pve-root-ca.pem", "pve-ssl.pem"]))
            }
            ["subscription"] => Reply::Data(self.subscription()),
            ["disks", "zfs"] => Reply::Data(self.zfs()),
            ["disks", "list"] => Reply::Data(self.disks()),
            ["apt", "update"] if self.has("updates") => Reply::Data(json!([
                { "Package": "pve-manager", "Version": "9.1.7", "OldVersion": "9.1.6", "Priority": "optional" },
                { "Package": "openssl", "Version": "3.5.5-1", "OldVersion": "3.5.4-1", "Priority": "important" },
            ])),
            // This path needs more than the role PVEAuditor (pve-manager: PVE/API2/APT.pm).
            ["apt", "update"] => refused(&format!("/nodes/{node}"), "Sys.Modify"),
            ["ceph", "status"] if node != "pve1" => self.ceph(),
            ["replication"] => Reply::Data(self.replication(node)),
            ["tasks"] if query.contains("typefilter=vzdump") && self.has("backup-never") => Reply::Data(json!([])),
            ["tasks"] if query.contains("typefilter=vzdump") => Reply::Data(self.backups(node)),
            ["tasks"] => Reply::Data(self.tasks_of_guest(query)),
            ["qemu" | "lxc", id, "config"] => Reply::Data(
                json!({ "name": format!("guest-{id}"), "onboot": u8::from(*id != "103"), "memory": "4096", "cores": 2 }),
            ),
            _ => Reply::Error(501, "Method not implemented".to_owned(), String::new()),
        }
    }

    /// pve-manager: PVE/API2/Subscription.pm, get. An active subscription has a level, c, b, s or p. That of Backup
    /// Server has none.
    fn subscription(&self) -> Value {
        let mut found = subscription(self.scenario);
        if found["status"] == "active" {
            found["level"] = json!("c");
        }
        found
    }

    /// pve-manager: PVE/API2/Replication.pm, job_status.
    fn replication(&self, node: &str) -> Value {
        if node != "pve1" || self.count() < 2 {
            return json!([]);
        }
        let late = self.has("replication-late");
        let (last, next) = match (late, self.has("replication-never")) {
            (true, _) => (self.now - 2 * DAY, self.now - 2 * DAY + 900),
            // The next time of the schedule after the last try, which is 0 because the job never ran.
            (_, true) => (0, 900),
            _ if self.has("replication-ahead") => (self.now + 3 * DAY, self.now + 3 * DAY + 900),
            _ => (self.now - 600, self.now + 300),
        };
        let mut job = json!({
            "id": "100-0", "type": "local", "guest": "100", "jobnum": "0", "target": "pve2", "schedule": "*/15",
            "source": "pve1", "vmtype": "qemu", "last_sync": last, "last_try": last, "next_sync": next,
            "duration": 4.123_456, "fail_count": 0,
        });
        if self.has("replication-failing") {
            job["fail_count"] = json!(3);
            job["error"] = json!("command 'zfs send' failed: exit code 255");
        }
        json!([job])
    }

    /// The tasks of a guest on its node. The node's list is longer than the cluster's (pve-manager: PVE/API2/Tasks.pm).
    fn tasks_of_guest(&self, query: &str) -> Value {
        let of_it = query.contains("vmid=100") && self.has("stopped-long-ago");
        json!(
            of_it.then(|| task("pve1", "qmshutdown", "100", self.now - 7 * DAY, "OK")).into_iter().collect::<Vec<_>>()
        )
    }

    fn backups(&self, node: &str) -> Value {
        let night = self.now - if self.has("backup-old") { 30 * DAY } else { DAY / 2 };
        let status = match (self.has("backup-failed"), self.has("backup-warnings")) {
            (true, _) => "job errors",
            (_, true) => "WARNINGS: 2",
            _ => "OK",
        };
        let mut all = vec![task(node, "vzdump", "", night, status)];
        if node == "pve1" {
            let failed = "command 'vma create' failed: exit code 1";
            let by_hand = self.has("backup-by-hand");
            let began = if by_hand { self.now - 30 * DAY } else { night } + 3600;
            all.push(task(
                node,
                "vzdump",
                "100",
                began,
                if by_hand || self.has("backup-failed") { failed } else { "OK" },
            ));
        }
        if self.has("backup-running") {
            // The list of all tasks has this status for a task that has not ended.
            let mut running = task(node, "vzdump", "", self.now - 60, "RUNNING");
            running.as_object_mut().map(|task| task.remove("endtime"));
            all.insert(0, running);
        }
        Value::from(all)
    }

    /// pve-storage: PVE/API2/Storage/Status.pm.
    fn node_storage(&self, node: &str) -> Value {
        let entry = |name: &str, shared: bool| {
            let gone = self.is_gone(name, node);
            let total = if gone { 0 } else { 960 * GB };
            json!({
                "storage": name, "type": "dir", "content": "images", "enabled": 1, "active": u8::from(!gone),
                "shared": u8::from(shared), "total": total, "used": total / 100 * 42, "avail": total / 100 * 58,
            })
        };
        Value::from(vec![entry("local", false), entry("local-zfs", false), entry("nfs-backup", true)])
    }

    /// pve-storage: PVE/API2/Disks/ZFS.pm.
    fn zfs(&self) -> Value {
        let health = if self.has("zfs-degraded") { "DEGRADED" } else { "ONLINE" };
        json!([{
            "name": "rpool", "size": 960 * GB, "alloc": 410 * GB, "free": 550 * GB, "frag": 12, "dedup": 1.0, "health": health,
        }])
    }

    /// pve-storage: PVE/API2/Disks.pm. The wearout of a hard disk is not a number.
    fn disks(&self) -> Value {
        let health = match (self.has("disk-failing"), self.has("disk-impending")) {
            (true, _) => "FAILED!",
            (_, true) => "HARDWARE IMPENDING FAILURE GENERAL HARD DRIVE FAILURE [asc=5d, ascq=10]",
            _ => "PASSED",
        };
        let left = match (self.has("disk-worn"), self.has("disk-overworn")) {
            (true, _) => 7,
            // 104 % of the rated endurance are used (pve-storage: PVE/Diskmanage.pm).
            (_, true) => -4,
            _ => 96,
        };
        json!([
            { "devpath": "/dev/nvme0n1", "model": "Simulated SSD", "serial": "S1", "size": 960 * GB, "health": "PASSED", "wearout": left, "type": "nvme" },
            { "devpath": "/dev/sda", "model": "Simulated disk", "serial": "S2", "size": 8_000 * GB, "health": health, "wearout": "N/A", "type": "hdd" },
        ])
    }
}
