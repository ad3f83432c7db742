//! A broker of three servers that loses one.

use crate::broker::program;
use crate::support::{Host, folder, get, until};
use crate::{NAMES, deploy, post, server_for_each, target};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The log of a server, in its folder.
const LOG: &str = "nats.log";

/// Three servers on loopback, which are killed when dropped.
struct Cluster {
    place: PathBuf,
    /// The ports of each server: for hosts, for the other servers, and for questions about its state.
    ports: Vec<[u16; 3]>,
    servers: Vec<Option<Child>>,
    /// The logs of the hosts that use it.
    hosts: Vec<Arc<Mutex<String>>>,
}

impl Cluster {
    fn start(place: &Path) -> Self {
        let free: Vec<TcpListener> = (0..9).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |n: usize| free[n].local_addr().unwrap().port();
        let ports = (0..3).map(|n| [0, 1, 2].map(|part| port(3 * n + part))).collect();
        drop(free);
        let mut cluster = Self { place: place.to_owned(), ports, servers: vec![None, None, None], hosts: Vec::new() };
        (0..3).for_each(|n| cluster.up(n));
        cluster
    }

    fn folder(&self, n: usize) -> PathBuf {
        self.place.join(format!("server-{n}"))
    }

    fn up(&mut self, n: usize) {
        let [port, inner, state] = self.ports[n];
        let routes: Vec<String> =
            self.ports.iter().map(|[_, inner, _]| format!("\"nats://127.0.0.1:{inner}\"")).collect();
        let folder = self.folder(n);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "server_name: s{n}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{state}\"\nlog_file: \"{}\"\n\
             jetstream {{ store_dir: \"{}\"; max_file_store: 10GB }}\n\
             cluster {{ name: fleet, listen: \"127.0.0.1:{inner}\", routes: [{}] }}\n",
            folder.join(LOG).display(),
            folder.display(),
            routes.join(", ")
        );
        let config = folder.join("nats.conf");
        fs::write(&config, text).unwrap();
        let mut command = Command::new(program());
        let started = command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers[n] = Some(started.unwrap());
    }

    /// Waits until a server that was started again has the records of the others.
    fn wait_until_caught_up(&self, n: usize) {
        let address = format!("127.0.0.1:{}", self.ports[n][2]);
        let state = || TcpStream::connect(&address).ok().map(|_| get(&address, "/healthz", None));
        until("the server has caught up", state, |state| state.as_ref().is_some_and(|(status, _)| *status == 200));
    }

    fn down(&mut self, n: usize) {
        let mut server = self.servers[n].take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Prints the logs of servers and hosts, which are lost with the test.
    fn show_logs(&self) {
        for n in 0..self.servers.len() {
            println!("server {n}:\n{}", fs::read_to_string(self.folder(n).join(LOG)).unwrap_or_default());
        }
        for log in &self.hosts {
            println!("host:\n{}", log.lock().unwrap());
        }
    }

    fn url(&self) -> String {
        self.ports.iter().map(|[port, ..]| format!("nats://127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
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
    cluster.hosts = agents.iter().chain([&operator]).map(|host| host.log.clone()).collect();
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
        cluster.wait_until_caught_up(n);
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
