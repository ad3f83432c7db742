//! Helpers: a server to poll, the program under test, and waiting for a state.

use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two reads of a state.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the raw response for the n-th request to a path: status line, headers and body.
pub(crate) type Answer = Arc<dyn Fn(usize) -> Vec<u8> + Send + Sync>;

/// An HTTP/1.1 server on loopback that counts requests.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) requests: Arc<Mutex<Requests>>,
}

/// Returns a response with status 200 and this body.
pub(crate) fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// Returns the same response to every request.
pub(crate) fn always(answer: Vec<u8>) -> Answer {
    Arc::new(move |_| answer.clone())
}

/// The number of requests and the last request's head, by path.
type Requests = HashMap<String, (usize, String)>;

impl Server {
    pub(crate) fn start(routes: Vec<(&'static str, Answer)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Requests>> = Arc::default();
        let seen = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (routes, seen) = (routes.clone(), seen.clone());
                thread::spawn(move || serve(stream, &routes, &seen));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn count(&self, path: &str) -> usize {
        self.requests.lock().unwrap().get(path).map_or(0, |(count, _)| *count)
    }

    /// Returns the head of the last request for a path.
    pub(crate) fn last(&self, path: &str) -> String {
        self.requests.lock().unwrap().get(path).map_or_else(String::new, |(_, head)| head.clone())
    }
}

fn serve(mut stream: TcpStream, routes: &[(&'static str, Answer)], seen: &Mutex<Requests>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let number = {
            let mut seen = seen.lock().unwrap();
            let (count, last) = seen.entry(path.clone()).or_default();
            (*count, *last) = (*count + 1, head);
            *count - 1
        };
        let route = routes.iter().find(|(known, _)| *known == path);
        let answer = route.map_or_else(
            || b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
            |(_, answer)| answer(number),
        );
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Returns the command for the program with arguments and a minimal environment.
pub(crate) fn polliwog(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polliwog"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("POLLIWOG_URL", "http://127.0.0.1:9");
    command
}

/// Runs the program until it ends. Returns exit code, stdout and stderr.
pub(crate) fn output(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = polliwog(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Runs `poll … --json`. Returns exit code and output.
pub(crate) fn poll_json(folder: &Path, arguments: &[&str]) -> (i32, Value) {
    let all: Vec<&str> = ["poll", "--json"].iter().chain(arguments).copied().collect();
    let (code, stdout, stderr) = output(folder, &all);
    (code, serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}")))
}

/// Creates a data directory with the machine code that one shared run has written, because unpacking it takes longer
/// than many tests. An existing directory is left unchanged.
fn copy_compiled_plugins(data: &Path) {
    static FIRST: OnceLock<tempfile::TempDir> = OnceLock::new();
    if data.exists() {
        return;
    }
    let first = FIRST.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (_, _, stderr) = output(folder.path(), &["plugin", "list", "--data-dir", "data"]);
        assert!(folder.path().join("data/installation.key").is_file(), "{stderr}");
        folder
    });
    let from = first.path().join("data");
    for folder in [data.to_owned(), data.join("compiled")] {
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::copy(from.join("installation.key"), data.join("installation.key")).unwrap();
    for entry in std::fs::read_dir(from.join("compiled")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), data.join("compiled").join(entry.file_name())).unwrap();
    }
}

/// A running host, which is killed when dropped.
pub(crate) struct Host {
    child: Child,
    pub(crate) api: String,
    pub(crate) metrics: String,
    pub(crate) log: Arc<Mutex<String>>,
}

const LISTEN: &str = "[server]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n";

pub(crate) const TOKEN: &str = "a-token-for-tests-only";

impl Host {
    /// Starts `run` with this configuration and waits until it listens.
    pub(crate) fn start(folder: &Path, config: &str) -> Self {
        Self::start_with(folder, config, &[])
    }

    /// Like [`Host::start`], with environment variables.
    pub(crate) fn start_with(folder: &Path, config: &str, environment: &[(&str, &str)]) -> Self {
        Self::launch(folder, config, environment).unwrap_or_else(|log| panic!("the host did not start: {log}"))
    }

    /// Like [`Host::start_with`]. Returns `None` if the host does not start.
    pub(crate) fn try_start(folder: &Path, config: &str, environment: &[(&str, &str)]) -> Option<Self> {
        Self::launch(folder, config, environment).ok()
    }

    fn launch(folder: &Path, config: &str, environment: &[(&str, &str)]) -> Result<Self, String> {
        Self::launch_with(folder, config, environment, &[])
    }

    /// Like [`Host::start_with`], with further arguments.
    pub(crate) fn launch_with(
        folder: &Path,
        config: &str,
        environment: &[(&str, &str)],
        more: &[&str],
    ) -> Result<Self, String> {
        Self::configure(folder, config);
        copy_compiled_plugins(&folder.join("data"));
        let arguments: Vec<&str> = ["run", "--data-dir", "data"].iter().chain(more).copied().collect();
        let mut child = polliwog(folder, &arguments)
            .env("POLLIWOG_ADMIN_TOKEN", TOKEN)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log: Arc<Mutex<String>> = Arc::default();
        let (own, (sender, receiver)) = (log.clone(), channel());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                own.lock().unwrap().push_str(&format!("{line}\n"));
                if line.contains("pages and API at") {
                    let address = |after: &str| line.split(after).nth(1).unwrap().split('/').next().unwrap().to_owned();
                    let _ = sender.send((address("pages and API at http://"), address("metrics at http://")));
                }
            }
        });
        let Ok((api, metrics)) = receiver.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            let _ = child.wait();
            let log = log.lock().unwrap().clone();
            return Err(log);
        };
        Ok(Self { child, api, metrics, log })
    }

    /// Runs a command that calls this host. Returns exit code, stdout and stderr.
    pub(crate) fn command(&self, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
        let mut command = polliwog(folder, arguments);
        command.env("POLLIWOG_URL", format!("http://{}", self.api)).env("POLLIWOG_TOKEN", TOKEN);
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Runs a command with `--json`, which must succeed. Returns its output.
    pub(crate) fn asked(&self, folder: &Path, arguments: &[&str]) -> Value {
        let all: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let (code, stdout, stderr) = self.command(folder, &all);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{arguments:?}: {stdout}"))
    }

    /// Replaces the configuration file.
    pub(crate) fn configure(folder: &Path, config: &str) {
        // Like an editor: write a new file and rename it.
        let new = folder.join("polliwog.toml.new");
        std::fs::write(&new, format!("{LISTEN}{config}")).unwrap();
        std::fs::rename(new, folder.join("polliwog.toml")).unwrap();
    }

    /// Requests a path of the API with the token. Returns the JSON body.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = get(&self.api, path, Some(TOKEN));
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Returns one target from the API.
    pub(crate) fn target(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/targets/{id}"))
    }

    /// Kills the host with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends the host with SIGTERM. Returns its exit code.
    pub(crate) fn terminate(self) -> i32 {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until the host ends. Returns its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// Subscribes to events after this sequence number. Each event has id, name and payload.
    pub(crate) fn events(&self, after: Option<i64>) -> Receiver<(Option<i64>, String, Value)> {
        let mut stream = TcpStream::connect(&self.api).unwrap();
        let last = after.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let (mut id, mut name, mut data) = (None, String::new(), None);
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix("id: ") {
                    id = text.parse().ok();
                } else if let Some(text) = line.strip_prefix("event: ") {
                    text.clone_into(&mut name);
                } else if let Some(text) = line.strip_prefix("data: ") {
                    data = serde_json::from_str(text).ok();
                } else if line.is_empty() {
                    let Some(payload) = data.take() else { continue };
                    if sender.send((id.take(), std::mem::take(&mut name), payload)).is_err() {
                        return;
                    }
                }
            }
        });
        receiver
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a GET request with an optional token. Returns status and body.
pub(crate) fn get(address: &str, path: &str, token: Option<&str>) -> (u16, String) {
    get_as(address, path, &token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n")))
}

/// Sends a GET request with these header lines. Returns status and body.
pub(crate) fn get_as(address: &str, path: &str, headers: &str) -> (u16, String) {
    send(address, ("GET", path), headers, "")
}

/// Sends a request with these header lines and a body. Returns status and body.
pub(crate) fn send(
    address: &str,
    (method, path): (&str, &str),
    headers: &str,
    body: impl AsRef<[u8]>,
) -> (u16, String) {
    let (mut stream, body) = (TcpStream::connect(address).unwrap(), body.as_ref());
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n");
    write!(stream, "{head}Content-Type: application/json\r\nConnection: close\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { dechunked(body) } else { body.to_owned() })
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// Waits until `holds` returns true. Panics with the last value after [`PATIENCE`].
#[allow(clippy::disallowed_methods, reason = "a test must not wait forever")]
pub(crate) fn until<T: std::fmt::Debug>(what: &str, mut read: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = read();
        if holds(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "timeout waiting for: {what}; last seen: {seen:?}");
        // Without a pause, the waiting tests would take the cores from the hosts.
        thread::park_timeout(PAUSE);
    }
}

/// Creates an empty folder, which is removed at the end of the test.
pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

/// Compiles a C file next to the tests as a library that a host preloads. Returns its path.
pub(crate) fn preloaded(folder: &Path, name: &str) -> String {
    let library = folder.join(name).with_extension("so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/end_to_end").join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "this test needs a C compiler");
    library.to_str().unwrap().to_owned()
}
