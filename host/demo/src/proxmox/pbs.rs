//! Backup Server with two datastores, `fast` with a namespace and `archive`, and `groups-N` backup groups in each
//! namespace.
//!
//! The scenarios are in [`SCENARIOS`]. A request for `/pbs` lists them.

use super::api::{self, ApiRequest, PBS_TOKEN, Reply, Scenario};
use serde_json::{Value, json};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const TB: u64 = 1_000_000_000_000;

/// The names of the scenarios, with a description if the name is not sufficient.
pub(super) const SCENARIOS: &[(&str, &str)] = &[
    ("no-rights", "everything is hidden"),
    ("no-audit", "403 for the state of the server"),
    ("datastore-error", "one datastore is broken, and its entry has an error"),
    ("datastore-usage-broken", "one datastore is broken, and the list of all datastores fails"),
    ("maintenance", ""),
    ("unmounted", ""),
    ("datastore-full", ""),
    ("full-soon", ""),
    ("s3", ""),
    ("gc-failed", ""),
    ("gc-bad", ""),
    ("verify-failed", ""),
    ("sync-failed", ""),
    ("sync-warnings", ""),
    ("prune-off", ""),
    ("job-late", ""),
    ("job-running", ""),
    ("job-failing", "the job failed and is running again"),
    ("job-never", ""),
    ("old", "Backup Server 3.2"),
    ("group-old", ""),
    ("group-hidden", ""),
    ("clock-ahead", "the first group and all jobs ended in the future"),
    ("walk-hangs", ""),
    ("usage-hangs", "requests for the usage of a hanging disk are not answered"),
    ("namespaces-many", ""),
    ("snapshot-damaged", ""),
    ("tasks-failed", ""),
    ("subscribed", ""),
    ("subscription-expired", ""),
];

/// Answers a request.
pub(super) fn answer(scenario: &Scenario, request: &ApiRequest<'_>) -> Reply {
    // This path needs no login (proxmox-backup: api2/ping.rs).
    if request.path == "/ping" {
        return Reply::Data(json!({ "pong": true }));
    }
    // proxmox-rest-server: rest.rs. The body is text with the content type of JSON.
    match request.authorization.map(|value| value.strip_prefix("PBSAPIToken=")) {
        Some(Some(token)) if token == PBS_TOKEN => {}
        _ => return Reply::Refused("Unauthorized".into(), "authentication failed - invalid ticket"),
    }
    let server = Server { scenario, now: request.now };
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    let hidden = scenario.has("no-rights");
    match parts[..] {
        ["version"] => Reply::Data(server.version()),
        ["access", "permissions"] => Reply::Data(server.permissions()),
        ["nodes", _, "status"] if hidden || scenario.has("no-audit") => forbidden(),
        ["nodes", _, "status"] => Reply::Data(server.status()),
        // This path needs Sys.Modify (proxmox-backup: api2/node/certificates.rs).
        ["nodes", _, "certificates", "info"] => forbidden(),
        ["nodes", _, "subscription"] => Reply::Data(api::subscription(scenario)),
        ["nodes", _, "tasks"] => Reply::Data(server.tasks()),
        ["admin" | "status", "datastore" | "datastore-usage" | "gc" | "verify" | "prune" | "sync"] if hidden => {
            Reply::Data(json!([]))
        }
        ["admin", "datastore"] => Reply::Data(server.datastores()),
        ["status", "datastore-usage"] if scenario.has("datastore-usage-broken") => {
            bad_request("unable to open chunk store at \"/mnt/archive\" - Input/output error (os error 5)")
        }
        ["status", "datastore-usage"] if scenario.has("usage-hangs") => Reply::Never,
        ["status", "datastore-usage"] => Reply::Data(server.usage()),
        ["admin", "gc"] => Reply::Data(server.gc()),
        ["admin", "verify"] => Reply::Data(server.verify()),
        ["admin", "prune"] => Reply::Data(server.prune()),
        ["admin", "sync"] if scenario.has("old") && request.query.contains("sync-direction") => bad_request(
            "parameter verification failed - 'sync-direction': schema does not allow additional properties.",
        ),
        ["admin", "sync"] => Reply::Data(server.sync()),
        ["admin", "datastore", store, ref rest @ ..] => server.of_store(store, rest, request.query),
        _ => Reply::Error(404, "Not Found".to_owned(), format!("Path '{}' not found.", request.path)),
    }
}

/// The product's default status for errors without their own status.
fn bad_request(message: &str) -> Reply {
    Reply::Error(400, "Bad Request".to_owned(), message.to_owned())
}

fn forbidden() -> Reply {
    Reply::Error(403, "Forbidden".to_owned(), "permission check failed".to_owned())
}

struct Server<'a> {
    scenario: &'a Scenario,
    /// Seconds since the Unix epoch.
    now: i64,
}

impl Server<'_> {
    fn has(&self, name: &str) -> bool {
        self.scenario.has(name)
    }

    fn version(&self) -> Value {
        let (version, release) = if self.has("old") { ("3.2", "4") } else { ("4.2", "0") };
        json!({ "version": version, "release": release, "repoid": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567" })
    }

    /// Removes the fields that Backup Server 3.2 does not have. It supports neither removable datastores nor backends
    /// other than file systems (pbs-api-types of that time).
    fn aged(&self, mut datastores: Value) -> Value {
        if self.has("old") {
            for datastore in datastores.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                ["mount-status", "backend-type"].iter().for_each(|new| drop(datastore.remove(*new)));
            }
        }
        datastores
    }

    fn permissions(&self) -> Value {
        match (self.has("no-rights"), self.has("no-audit")) {
            (true, _) => json!({}),
            (_, true) => json!({ "/datastore": { "Datastore.Audit": true }, "/remote": { "Remote.Audit": true } }),
            _ => json!({ "/": { "Datastore.Audit": true, "Sys.Audit": true, "Remote.Audit": true } }),
        }
    }

    /// Failed tasks. pbs-api-types: lib.rs, TaskListItem.
    fn tasks(&self) -> Value {
        let task = |index: i64| {
            json!({
                "upid": "UPID:pbs:00000A1B:0012C3D4:00000001:6911D2A0:backup:fast\\x3avm-100:backup@pbs:", "node": "localhost",
                "pid": 4711, "pstart": 1_234_567, "starttime": self.now - 3600 * index, "endtime": self.now - 3600 * index + 60,
                "worker_type": "backup", "worker_id": "fast:vm/100", "user": "backup@pbs", "status": "connection error: timed out",
            })
        };
        let failed = if self.has("tasks-failed") { 2 } else { 0 };
        (1..=failed).map(task).collect()
    }

    /// pbs-api-types: node.rs, NodeStatus.
    fn status(&self) -> Value {
        json!({
            "cpu": 0.031, "wait": 0.002, "uptime": 2_345_678, "loadavg": [0.31, 0.28, 0.25],
            "memory": { "total": 33_554_432_000_u64, "used": 9_876_543_210_u64, "free": 23_677_888_790_u64 },
            "swap": { "total": 0, "used": 0, "free": 0 },
            "root": { "total": 98_000_000_000_u64, "used": 12_000_000_000_u64, "avail": 81_000_000_000_u64 },
            "kversion": "Linux 6.17.2-1-pve", "info": { "fingerprint": "aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99" },
        })
    }

    /// pbs-api-types: datastore.rs, DataStoreListItem.
    fn datastores(&self) -> Value {
        let mut archive = json!({ "store": "archive", "comment": null, "mount-status": "nonremovable", "backend-type": "filesystem" });
        if self.has("maintenance") {
            archive["maintenance"] = json!("offline,message=disk swap tonight");
        }
        if self.has("unmounted") {
            archive["mount-status"] = json!("notmounted");
        }
        if self.has("s3") {
            archive["backend-type"] = json!("s3");
        }
        let fast =
            json!({ "store": "fast", "comment": "NVMe", "mount-status": "nonremovable", "backend-type": "filesystem" });
        self.aged(json!([fast, archive]))
    }

    /// pbs-api-types: datastore.rs, DataStoreStatusListItem.
    fn usage(&self) -> Value {
        let mut fast = self.size("fast");
        fast["store"] = json!("fast");
        fast["estimated-full-date"] =
            json!(if self.has("full-soon") { self.now + 5 * DAY } else { self.now + 400 * DAY });
        let mut archive =
            json!({ "store": "archive", "history": [], "mount-status": "nonremovable", "backend-type": "filesystem" });
        if self.has("datastore-error") {
            archive["error"] =
                json!("unable to open chunk store at \"/mnt/archive\" - No such file or directory (os error 2)");
        } else if self.has("maintenance") {
            archive["error"] = json!("datastore 'archive' is unavailable: offline maintenance mode: disk swap tonight");
        } else {
            for (field, value) in self.size("archive").as_object().into_iter().flatten() {
                archive[field] = value.clone();
            }
            archive["estimated-full-date"] = json!(0);
        }
        self.aged(json!([fast, archive]))
    }

    fn size(&self, store: &str) -> Value {
        let share = match store {
            "fast" if self.has("datastore-full") => 97,
            "fast" if self.has("full-soon") => 60,
            _ => 40,
        };
        // The sum of used and avail is less than total, because some blocks are reserved.
        json!({ "total": 4 * TB, "used": 4 * TB / 100 * share, "avail": 4 * TB / 100 * (99 - share) })
    }

    fn is_unusable(&self, store: &str) -> bool {
        let broken = ["maintenance", "unmounted", "datastore-error", "datastore-usage-broken"];
        store == "archive" && broken.iter().any(|name| self.has(name))
    }

    fn ran(&self, state: &str) -> Value {
        let ended = if self.has("clock-ahead") { self.now + 3 * DAY } else { self.now - DAY / 2 };
        json!({
            "schedule": "daily", "next-run": self.now + DAY / 2, "last-run-state": state, "last-run-endtime": ended,
            "last-run-upid": "UPID:pbs:00000A1B:0012C3D4:00000001:6911D2A0:job:x:root@pam:",
        })
    }

    fn job(&self, more: Value, state: &str) -> Value {
        let mut job = self.ran(state);
        for (field, value) in more.as_object().into_iter().flatten() {
            job[field] = value.clone();
        }
        job
    }

    /// pbs-api-types: datastore.rs, GarbageCollectionJobStatus.
    fn gc(&self) -> Value {
        let state = if self.has("gc-failed") { "chunk store is full" } else { "OK" };
        let bad = if self.has("gc-bad") { 3 } else { 0 };
        let fast = self.job(json!({ "store": "fast", "disk-bytes": TB, "index-data-bytes": 12 * TB, "removed-bad": 0, "still-bad": bad }), state);
        // A datastore that cannot be used is omitted (proxmox-backup: api2/admin/gc.rs).
        if self.is_unusable("archive") { json!([fast]) } else { json!([fast, { "store": "archive" }]) }
    }

    /// pbs-api-types: jobs.rs, VerificationJobStatus.
    fn verify(&self) -> Value {
        let state =
            if self.has("verify-failed") { "verification failed - please check the log for details" } else { "OK" };
        let mut job =
            self.job(json!({ "id": "v-3f2a", "store": "fast", "ignore-verified": true, "outdated-after": 30 }), state);
        if self.has("job-late") {
            job["next-run"] = json!(self.now - 5 * HOUR);
        }
        if self.has("job-running") {
            for field in ["last-run-state", "last-run-endtime"] {
                job.as_object_mut().map(|job| job.remove(field));
            }
        }
        if self.has("job-never") {
            for field in ["last-run-state", "last-run-endtime", "last-run-upid"] {
                job.as_object_mut().map(|job| job.remove(field));
            }
        }
        json!([job])
    }

    /// pbs-api-types: jobs.rs, PruneJobStatus.
    fn prune(&self) -> Value {
        json!([self.job(
            json!({ "id": "p-91bc", "store": "fast", "ns": "", "keep-daily": 7, "disable": self.has("prune-off") }),
            "OK"
        )])
    }

    /// pbs-api-types: jobs.rs, SyncJobStatus.
    fn sync(&self) -> Value {
        let state = if self.has("sync-failed") { "sync failed with some errors." } else { "OK" };
        let mut jobs = vec![self.job(
            json!({ "id": "s-pull", "store": "archive", "remote": "offsite", "remote-store": "main", "ns": "" }),
            state,
        )];
        if !self.has("old") {
            let push = json!({ "id": "s-push", "store": "fast", "remote": "offsite", "remote-store": "copy", "sync-direction": "push" });
            jobs.push(self.job(push, if self.has("sync-warnings") { "WARNINGS: 1" } else { "OK" }));
        }
        if self.has("job-failing") {
            // The state of the job is that of the current run (pbs-api-types: jobs.rs, JobScheduleStatus).
            for field in ["last-run-state", "last-run-endtime"] {
                jobs[0].as_object_mut().map(|job| job.remove(field));
            }
        }
        Value::from(jobs)
    }

    fn of_store(&self, store: &str, rest: &[&str], query: &str) -> Reply {
        if !["fast", "archive"].contains(&store) {
            return bad_request(&format!("no such datastore '{store}'"));
        }
        if store == "archive" && self.has("maintenance") {
            return bad_request("datastore 'archive' is unavailable: offline maintenance mode: disk swap tonight");
        }
        if store == "archive" && (self.has("datastore-error") || self.has("datastore-usage-broken")) {
            return bad_request("unable to open chunk store at \"/mnt/archive\" - Input/output error (os error 5)");
        }
        match rest {
            ["status"] if self.has("usage-hangs") && store == "archive" => Reply::Never,
            ["status"] => Reply::Data(self.size(store)),
            ["namespace"] if self.has("walk-hangs") && store == "archive" => Reply::Never,
            ["namespace"] if store == "fast" && self.has("namespaces-many") => {
                Reply::Data((0..60).map(|number| json!({ "ns": format!("n{number}") })).collect())
            }
            ["namespace"] if store == "fast" => Reply::Data(json!([{ "ns": "" }, { "ns": "lab/two" }])),
            ["namespace"] => Reply::Data(json!([{ "ns": "" }])),
            ["groups"] if self.has("group-hidden") => forbidden(),
            ["groups"] => Reply::Data(self.groups(store, query)),
            ["snapshots"] => Reply::Data(self.snapshots(store)),
            _ => Reply::Error(404, "Not Found".to_owned(), "Path not found.".to_owned()),
        }
    }

    /// pbs-api-types: datastore.rs, SnapshotListItem. A snapshot that was never verified has no field for it.
    fn snapshots(&self, store: &str) -> Value {
        let snapshot = |index: i64| {
            let mut snapshot = json!({
                "backup-type": "vm", "backup-id": "100", "backup-time": self.now - DAY / 2 - index * DAY, "size": 12_345_678_901_u64,
                "owner": "backup@pbs!pve", "protected": false, "files": [{ "filename": "index.json.blob", "size": 512 }],
            });
            let damaged = self.has("snapshot-damaged") && store == "fast" && index == 1;
            if index > 0 {
                snapshot["verification"] =
                    json!({ "state": if damaged { "failed" } else { "ok" }, "upid": "UPID:pbs:x" });
            }
            snapshot
        };
        (0..3).map(snapshot).collect()
    }

    /// pbs-api-types: datastore.rs, GroupListItem.
    fn groups(&self, store: &str, query: &str) -> Value {
        let ago = |index: usize| match index {
            0 if self.has("group-old") => 30 * DAY,
            0 if self.has("clock-ahead") => -3 * DAY,
            _ => DAY / 2 + index as i64,
        };
        let group = |index: usize| {
            let kind = ["vm", "ct", "host"][index % 3];
            json!({
                "backup-type": kind, "backup-id": (100 + index).to_string(), "last-backup": self.now - ago(index),
                "backup-count": 14, "files": ["index.json.blob", "client.log.blob"], "owner": "backup@pbs!pve",
            })
        };
        let all = if store == "fast" && query.contains("lab/two") { 1 } else { self.scenario.groups };
        let mut groups: Vec<Value> = (0..all).map(group).collect();
        if store == "archive" {
            groups.push(json!({
                "backup-type": "vm", "backup-id": "666", "last-backup": self.now - 900 * DAY, "backup-count": 1,
                "files": [], "owner": "backup@pbs", "comment": "gone since last year, no-monitor",
            }));
        }
        Value::from(groups)
    }
}
