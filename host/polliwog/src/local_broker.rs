//! A broker of this process, for demonstrations and simulations.

use anyhow::{Context, bail};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// It listens within this many steps of [`STEP`].
const STEPS: u32 = 1000;
const STEP: Duration = Duration::from_millis(10);

/// A nats-server with an empty store, which ends with this process, however that ends.
pub(crate) struct LocalBroker {
    program: PathBuf,
    /// A shell, which ends the server once its input is closed; `None` while it does not run.
    shell: Option<Child>,
    port: u16,
    process: u32,
    /// Removed at the end.
    folder: TempDir,
}

impl LocalBroker {
    /// Starts the program, and waits until it listens. Blocks.
    ///
    /// # Errors
    /// If the program does not exist, or does not listen.
    pub(crate) fn start(program: &Path) -> anyhow::Result<Self> {
        let name = program.display();
        let shown = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        shown.with_context(|| {
            format!("cannot start {name}: install nats-server (apt install nats-server, or https://nats.io), or name it with --server")
        })?;
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut broker = Self { program: program.to_owned(), shell: None, port, process: 0, folder };
        broker.run()?;
        Ok(broker)
    }

    /// Starts the server with the store that it has, and waits until it listens. Blocks.
    ///
    /// # Errors
    /// If it does not listen.
    pub(crate) fn run(&mut self) -> anyhow::Result<()> {
        let (folder, port) = (self.folder.path(), self.port);
        let (config, store, process) = (folder.join("nats.conf"), folder.join("jetstream"), folder.join("process"));
        // By default, the server limits itself to three quarters of the free space. The fleet reserves 2.7 GB.
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\"; max_file_store: 10GB }}\npid_file: \"{}\"\n",
            store.display(),
            process.display()
        );
        std::fs::write(&config, text)?;
        let log = folder.join("log");
        let shell = Command::new("sh")
            .args(["-c", "\"$0\" -c \"$1\" & cat >/dev/null; kill -9 $!; wait"])
            .arg(&self.program)
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("cannot start a shell for nats-server")?;
        self.shell = Some(shell);
        for _ in 0..STEPS {
            let started = std::fs::read_to_string(&process).ok().and_then(|text| text.trim().parse().ok());
            if let Some(process) = started
                && TcpStream::connect(("127.0.0.1", port)).is_ok()
            {
                self.process = process;
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        let written = std::fs::read_to_string(&log).unwrap_or_default();
        let last = written.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
        bail!("{} did not listen within 10 s; the last line that it wrote: {last}", self.program.display())
    }

    /// Kills the server. Its store remains until this is dropped.
    pub(crate) fn kill(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
            let _ = std::fs::remove_file(self.folder.path().join("process"));
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The number of the server's process.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }
}

impl Drop for LocalBroker {
    fn drop(&mut self) {
        self.kill();
    }
}
