//! A real nats-server that a test starts, kills, wipes and restores.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A broker on loopback, which is killed when dropped.
pub(crate) struct Broker {
    port: u16,
    folder: PathBuf,
    more: String,
    /// The process that holds the mount of a small disk in memory. Only it and the broker see that mount.
    disk: Option<Child>,
    child: Option<Child>,
}

/// The size of a small disk in MiB. The records of a test fit.
const SMALL_MIB: u32 = 24;

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
        Self::start_on_disk(folder, more, None)
    }

    /// Starts it with its store on a disk that [`Broker::fill`] fills.
    pub(crate) fn start_on_small_disk(folder: &Path) -> Self {
        let store = folder.join("jetstream");
        std::fs::create_dir_all(&store).unwrap();
        let script = "mount -t tmpfs -o size=\"$1\"m none \"$2\" && echo mounted && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", script, "sh", &SMALL_MIB.to_string()]).arg(&store);
        let mut disk = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(disk.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "a file system cannot be mounted in a namespace here");
        Self::start_on_disk(folder, "", Some(disk))
    }

    fn start_on_disk(folder: &Path, more: &str, disk: Option<Child>) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut broker = Self { port, folder: folder.to_owned(), more: more.to_owned(), disk, child: None };
        broker.up();
        broker
    }

    /// The file that fills the small disk.
    fn filler(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.disk.as_ref().unwrap().id());
        Path::new(&root).join(self.folder.join("jetstream/filler").strip_prefix("/").unwrap())
    }

    /// Fills the small disk until nothing more can be written.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        // One byte at last, so that no part of a page is free.
        for size in [1 << 16, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Frees the space that [`Broker::fill`] took.
    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.filler()).unwrap();
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
        let place = format!("jetstream {{ store_dir: \"{}\"; ", store.display());
        // A second block would replace the first one.
        let more = match self.more.contains("jetstream {") {
            true => self.more.replace("jetstream {", &place),
            // By default, it would limit itself to three quarters of the free space.
            false => format!("{place}max_file_store: 10GB }}\n{}", self.more),
        };
        let text = format!("listen: \"127.0.0.1:{port}\"\n{more}\n");
        std::fs::write(&config, text).unwrap();
        let program = program();
        let mut command = match &self.disk {
            None => Command::new(&program),
            Some(disk) => {
                let mut command = Command::new("nsenter");
                command.args(["-t", &disk.id().to_string(), "-U", "-m", "--preserve-credentials", &program]);
                command
            }
        };
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
        copy(&self.folder, from, to);
    }
}

/// Copies a directory in a folder to another name there, in place of what has that name.
pub(crate) fn copy(folder: &Path, from: &str, to: &str) {
    let _ = std::fs::remove_dir_all(folder.join(to));
    let copied = Command::new("cp").arg("-a").args([from, to].map(|name| folder.join(name))).status();
    assert!(copied.unwrap().success());
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.down();
        if let Some(mut disk) = self.disk.take() {
            let _ = disk.kill();
            let _ = disk.wait();
        }
    }
}
