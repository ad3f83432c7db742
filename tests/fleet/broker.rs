//! A real nats-server that a test starts, kills, wipes and restores.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A broker on loopback, which is killed when dropped.
pub(crate) struct Broker {
    port: u16,
    folder: PathBuf,
    more: String,
    child: Option<Child>,
}

/// The program that `NATS_SERVER` names, or `nats-server`.
pub(crate) fn program() -> String {
    std::env::var("NATS_SERVER").unwrap_or_else(|_| "nats-server".to_owned())
}

impl Broker {
    /// Starts the broker with its store in a folder.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, "")
    }

    /// Like [`Broker::start`], with further lines of configuration.
    pub(crate) fn start_with(folder: &Path, more: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut broker = Self { port, folder: folder.to_owned(), more: more.to_owned(), child: None };
        broker.up();
        broker
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The URL of a broker that was started with a certificate.
    pub(crate) fn tls_url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    /// Starts it again on the same port.
    pub(crate) fn up(&mut self) {
        let (port, store) = (self.port, self.folder.join("jetstream"));
        let config = self.folder.join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{}\n",
            store.display(),
            self.more
        );
        std::fs::write(&config, text).unwrap();
        let program = program();
        let mut command = Command::new(&program);
        command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{program}: {error}; install nats-server")));
        let listens = (0..3000).any(|_| {
            let connected = TcpStream::connect(("127.0.0.1", port)).is_ok();
            if !connected {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected
        });
        assert!(listens, "{program} does not listen: `{program} -c {}` shows why", config.display());
    }

    /// Stops it with SIGSTOP, or continues it.
    pub(crate) fn pause(&self, paused: bool) {
        let (signal, id) = (if paused { "-STOP" } else { "-CONT" }, self.child.as_ref().unwrap().id());
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    }

    /// Kills it with SIGKILL.
    pub(crate) fn down(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Deletes its store. It must be down.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(self.folder.join("jetstream")).unwrap();
    }

    /// Copies its store to another folder, or back. It must be down.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        let _ = std::fs::remove_dir_all(self.folder.join(to));
        let copied = Command::new("cp").arg("-a").arg(self.folder.join(from)).arg(self.folder.join(to)).status();
        assert!(copied.unwrap().success());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.down();
    }
}
