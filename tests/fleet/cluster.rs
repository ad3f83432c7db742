//! A broker of three servers that loses one.

use crate::broker::program;
use crate::support::{Host, folder, until};
use crate::{NAMES, deploy, post, server_for_each, target};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Three servers on loopback, which are killed when dropped.
struct Cluster {
    place: PathBuf,
    ports: Vec<(u16, u16)>,
    servers: Vec<Option<Child>>,
}

impl Cluster {
    fn start(place: &Path) -> Self {
        let free: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |n: usize| free[n].local_addr().unwrap().port();
        let ports = (0..3).map(|n| (port(2 * n), port(2 * n + 1))).collect();
        drop(free);
        let mut cluster = Self { place: place.to_owned(), ports, servers: vec![None, None, None] };
        (0..3).for_each(|n| cluster.up(n));
        cluster
    }

    fn up(&mut self, n: usize) {
        let (port, inner) = self.ports[n];
        let routes: Vec<String> = self.ports.iter().map(|(_, inner)| format!("\"nats://127.0.0.1:{inner}\"")).collect();
        let folder = self.place.join(format!("server-{n}"));
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "server_name: s{n}\nlisten: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\"; max_file_store: 10GB }}\ncluster {{ \
             name: fleet, listen: \"127.0.0.1:{inner}\", routes: [{}] }}\n",
            folder.display(),
            routes.join(", ")
        );
        let config = folder.join("nats.conf");
        fs::write(&config, text).unwrap();
        let mut command = Command::new(program());
        let started = command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers[n] = Some(started.unwrap());
    }

    fn down(&mut self, n: usize) {
        let mut server = self.servers[n].take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    fn url(&self) -> String {
        self.ports.iter().map(|(port, _)| format!("nats://127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut server in self.servers.drain(..).flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn nothing_is_lost_when_any_of_three_servers_is_killed() {
    let (_keep, place) = folder();
    let (server, broken) = server_for_each(&place);
    let mut cluster = Cluster::start(&place);
    let start = |name: &str, part: &str| {
        let folder = place.join(name);
        fs::create_dir_all(&folder).unwrap();
        let url = cluster.url();
        let egress = "[egress]\napi_target_cidrs = [\"127.0.0.0/8\"]";
        Host::start(&folder, &format!("{egress}\n[fleet]\nurl = \"{url}\"\n{part}\n"))
    };
    let operator = start("operator", "role = \"operator\"\nreplicas = 3");
    let agents = NAMES.map(|name| start(name, &format!("role = \"agent\"\ndevice = \"{name}\"")));
    deploy(&operator, "web", &json!({ "targets": [target("web", &server.url("/${device.id}"))] }));
    let counts = |expected: [u64; 2]| {
        let view = || operator.get("/api/v1/fleet/deployments/web");
        let is = |view: &Value| [&view["succeeded"], &view["failed"]] == [&json!(expected[0]), &json!(expected[1])];
        until(&format!("the counters are {expected:?}"), view, is)
    };
    counts([3, 0]);
    // One of them leads each stream, and one has the connection of the operator; each is killed once.
    for n in 0..3 {
        cluster.down(n);
        fs::write(&broken[n], "").unwrap();
        post(&agents[n], "/api/v1/targets/web/poll");
        counts([2, 1]);
        fs::remove_file(&broken[n]).unwrap();
        post(&agents[n], "/api/v1/targets/web/poll");
        counts([3, 0]);
        cluster.up(n);
        let linked = |host: &Host| host.get("/api/v1/fleet");
        let well = |found: &Value| {
            let part = if found["agent"].is_null() { &found["operator"] } else { &found["agent"] };
            part["broker"]["connected"] == true && part["broker"]["problem"].is_null()
        };
        for host in agents.iter().chain([&operator]) {
            until("it is connected", || linked(host), well);
        }
    }
}
