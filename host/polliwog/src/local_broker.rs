//! A broker of this process, for demonstrations and simulations.

use anyhow::{Context, bail};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// It listens within this many steps of [`STEP`].
const STEPS: u32 = 1000;
const STEP: Duration = Duration::from_millis(10);

/// A nats-server with an empty store, which ends with this process, however that ends.
pub(crate) struct LocalBroker {
    /// A shell, which ends the server once its input is closed.
    shell: Child,
    port: u16,
    process: u32,
    /// Removed at the end.
    _folder: TempDir,
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
        let (config, store) = (folder.path().join("nats.conf"), folder.path().join("jetstream"));
        let process = folder.path().join("process");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\npid_file: \"{}\"\n",
            store.display(),
            process.display()
        );
        std::fs::write(&config, text)?;
        let shell = Command::new("sh")
            .args(["-c", "\"$0\" -c \"$1\" & cat >/dev/null; kill $!; wait"])
            .arg(program)
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start a shell for nats-server")?;
        let mut broker = Self { shell, port, process: 0, _folder: folder };
        for _ in 0..STEPS {
            let started = std::fs::read_to_string(&process).ok().and_then(|text| text.trim().parse().ok());
            if let Some(process) = started
                && TcpStream::connect(("127.0.0.1", port)).is_ok()
            {
                broker.process = process;
                return Ok(broker);
            }
            std::thread::sleep(STEP);
        }
        bail!("{name} does not listen: `{name} -c {}` shows why", config.display())
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
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
