//! A running host under attack or failure: hostile clients and servers, full disks, blocked logs.

use crate::support::{Host, Server, TOKEN, always, folder, get, get_as, ok, output, polliwog, preloaded, until};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const FAST: &str = "[scheduler]\nmin_interval = \"100ms\"\ncadence = \"fixed\"\n";
const LISTEN: &str = "[server]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n";

fn target(url: &str) -> String {
    format!("{FAST}[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"{url}\"\ninterval = \"100ms\"\n")
}

/// A host with an unusual stderr. Its stdout contains the API's address.
struct UnusualHost {
    child: Child,
    api: String,
}

impl UnusualHost {
    fn start(folder: &Path, stderr: Stdio) -> Self {
        let mut child = polliwog(folder, &["run", "--data-dir", "data"])
            .env("POLLIWOG_ADMIN_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let api =
            line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}")).split('/').next().unwrap().to_owned();
        Self { child, api }
    }

    fn terminate(mut self) -> Option<i32> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for UnusualHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_log_that_cannot_be_written_or_is_not_read_does_not_block_the_host() {
    let server = Server::start(vec![("/", always(ok("fine")))]);
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    for (name, stderr) in [("a full disk", full()), ("closed", Stdio::piped()), ("not read", Stdio::piped())] {
        let (_keep, folder) = folder();
        let config = format!("{LISTEN}{}", target(&server.url("/")));
        fs::write(folder.join("polliwog.toml"), &config).unwrap();
        let mut host = UnusualHost::start(&folder, stderr);
        if name == "closed" {
            drop(host.child.stderr.take());
        }
        // Each problem is a log line; together they exceed the pipe and the queue.
        let problems: String = (0..20_000).map(|number| format!("odd_key_{number} = 1\n")).collect();
        fs::write(folder.join("polliwog.toml"), format!("{config}[metrics]\n{problems}")).unwrap();
        let settings = || get(&host.api, "/api/v1/settings", Some(TOKEN)).1;
        until("the problems are reported", settings, |settings| settings.contains("odd_key_19999"));
        let before = server.count("/");
        until("polling continues", || server.count("/"), |count| *count > before + 5);
        assert_eq!(get(&host.api, "/readyz", None).0, 200, "{name}");
        assert_eq!(host.terminate(), Some(0), "{name}");
    }
}

#[test]
fn odd_json_from_a_polled_server_does_not_break_api_responses() {
    let (_keep, folder) = folder();
    let odd: String = ["{\"a\":1e309}", "{\"a\":\"\\ud800\"}", "{\"$serde_json::private::RawValue\":\"x\"}"]
        .iter()
        .enumerate()
        .map(|(number, contact)| format!("{{\"name\":\"d{number}\",\"healthy\":true,\"contact\":{contact}}},"))
        .collect();
    let deep = format!("{}1{}", "{\"a\":".repeat(130), "}".repeat(130));
    let body = format!(
        "[{odd}{{\"name\":\"deep\",\"healthy\":true,\"contact\":{deep}}},{{\"name\":\"good\",\"healthy\":true}}]"
    );
    let server = Server::start(vec![("/", always(ok(body)))]);
    let config = target(&server.url("/")).replace("\"http\"", "\"proactive-deps\"");
    let host = Host::start(&folder, &config);
    let found = || get(&host.api, "/api/v1/dependencies", Some(TOKEN));
    let (status, body) = until("it is polled", found, |(status, body)| *status != 200 || body.contains("\"good\""));
    assert_eq!(status, 200, "{body}");
    assert!(!get(&host.metrics, "/metrics", None).1.contains("polliwog_web_panics_total 1"));
}

#[test]
fn a_log_in_creates_a_session_that_ends_on_log_out() {
    let (_keep, folder) = folder();
    let host = Host::start(&folder, &target("http://127.0.0.1:9/"));
    let sent = |request: &str| {
        let mut stream = TcpStream::connect(&host.api).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let close = "Host: localhost\r\nConnection: close\r\n";
    let login = sent(&format!("GET /login?token={TOKEN} HTTP/1.1\r\n{close}\r\n"));
    let cookie = login.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
    assert!(!cookie.contains(TOKEN) && cookie.contains("HttpOnly") && !cookie.contains("Secure"), "{cookie}");
    let secure = sent(&format!("GET /login?token={TOKEN} HTTP/1.1\r\nX-Forwarded-Proto: https\r\n{close}\r\n"));
    assert!(secure.contains("__Host-") && secure.contains("; Secure"), "{secure}");
    let id = cookie.split(';').next().unwrap().to_owned();
    let page = |id: &str| get_as(&host.api, "/", &format!("Cookie: {id}\r\n"));
    let (status, body) = page(&id);
    assert_eq!(status, 200);
    let csrf = body.split("csrf-token\" content=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();

    // A log-out needs the CSRF token and ends the session.
    let api = host.api.clone();
    assert_eq!(
        sent(&format!("POST /logout HTTP/1.1\r\nCookie: {id}\r\n{close}Content-Length: 0\r\n\r\n")).split(' ').nth(1),
        Some("403")
    );
    let logout =
        format!("POST /logout HTTP/1.1\r\nCookie: {id}\r\nX-CSRF-Token: {csrf}\r\n{close}Content-Length: 0\r\n\r\n");
    assert_eq!(sent(&logout).split(' ').nth(1), Some("204"));
    assert_ne!(page(&id).0, 200);

    // A request with another host name is refused.
    for path in ["/metrics", "/healthz", "/login"] {
        let address = if path == "/metrics" { &host.metrics } else { &api };
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("[server] hosts"), "{path}: {answer}");
    }
    assert_eq!(get(&host.api, "/api/v1/targets", Some("not-the-token")).0, 401);
}

#[test]
fn a_rotated_token_stays_valid_after_a_restart() {
    let (_keep, folder) = folder();
    let host = Host::start(&folder, &target("http://127.0.0.1:9/"));
    let (code, _, why) = host.command(&folder, &["token", "rotate"]);
    assert!(code == 1 && why.contains("POLLIWOG_ADMIN_TOKEN"), "{why}");
    assert_eq!(host.terminate(), 0);
    // Without the variable, the token that it set stays valid.
    let host = Host::start_with(&folder, &target("http://127.0.0.1:9/"), &[("POLLIWOG_ADMIN_TOKEN", "")]);
    let (code, rotated, why) = host.command(&folder, &["token", "rotate"]);
    assert_eq!(code, 0, "{why}");
    assert_eq!(get(&host.api, "/api/v1/targets", Some(TOKEN)).0, 401);
    assert_eq!(get(&host.api, "/api/v1/targets", Some(rotated.trim())).0, 200);
    assert_eq!(host.terminate(), 0);
    let host = Host::start_with(&folder, &target("http://127.0.0.1:9/"), &[("POLLIWOG_ADMIN_TOKEN", "")]);
    assert_eq!(get(&host.api, "/api/v1/targets", Some(TOKEN)).0, 401);
    assert_eq!(get(&host.api, "/api/v1/targets", Some(rotated.trim())).0, 200);
}

#[test]
fn the_token_is_not_sent_to_a_host_that_only_a_file_in_the_current_directory_names() {
    let (_keep, folder) = folder();
    let server = Server::start(vec![]);
    fs::write(folder.join("polliwog.toml"), format!("[server]\nlisten = \"127.0.0.1:{}\"\n", server.port)).unwrap();
    let ask = |more: &[&str]| {
        let all: Vec<&str> = ["targets"].iter().chain(more).copied().collect();
        let asked =
            polliwog(&folder, &all).env("POLLIWOG_TOKEN", "secret-admin-token").env("POLLIWOG_URL", "").output();
        String::from_utf8(asked.unwrap().stderr).unwrap()
    };
    let why = ask(&[]);
    assert!(why.contains("POLLIWOG_TOKEN is not sent") && why.contains("--config"), "{why}");
    assert!(server.requests.lock().unwrap().is_empty());
    ask(&["--config", "polliwog.toml"]);
    assert_eq!(server.requests.lock().unwrap().len(), 1, "a file passed with --config is trusted");
}

#[test]
fn files_are_private_in_an_open_data_directory() {
    use std::os::unix::fs::PermissionsExt;
    let (_keep, folder) = folder();
    fs::create_dir(folder.join("data")).unwrap();
    fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("data/polliwog.db"), "").unwrap();
    let server = Server::start(vec![("/", always(ok("fine")))]);
    let host = Host::start(&folder, &target(&server.url("/")));
    until("it is polled", || host.target("a")["lastPolled"].clone(), |at| !at.is_null());
    let open: Vec<String> = fs::read_dir(folder.join("data"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o077 != 0)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn control_characters_from_servers_are_escaped_in_terminal_output() {
    let (_keep, folder) = folder();
    let body = "[{\"name\":\"db\\u202egnp\",\"healthy\":false,\"errorMessage\":\"bad\\u001b[2Jthing\"}]";
    let server = Server::start(vec![("/", always(ok(body)))]);
    let url = server.url("/");
    for json in [true, false] {
        let mut arguments = vec!["poll", "--kind", "proactive-deps", "--url", &url];
        if json {
            arguments.push("--json");
        }
        let (_, stdout, stderr) = output(&folder, &arguments);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!stdout.contains(acts) && !stderr.contains(acts), "{stdout:?} {stderr:?}");
        assert!(stdout.contains("dbgnp"), "{stdout}");
    }
}

#[test]
fn announced_events_are_stored_when_disk_writes_fail() {
    // Enough events for several transactions, checkpoints and retries.
    const EVENTS: usize = 20;
    let flaps = Arc::new(|number: usize| ok(format!("[{{\"name\":\"db\",\"healthy\":{}}}]", number.is_multiple_of(2))));
    let server = Server::start(vec![("/", flaps)]);
    for (kind, every) in [("full", "20"), ("full", "60"), ("broken", "40"), ("short", "3")] {
        let (_keep, folder) = folder();
        let library = preloaded(&folder, "faults.c");
        let config = target(&server.url("/")).replace("\"http\"", "\"proactive-deps\"");
        // Create the database without faults first, because a host needs one.
        assert_eq!(Host::start(&folder, &config).terminate(), 0);
        let environment = [("LD_PRELOAD", &*library), ("FAULT_KIND", kind), ("FAULT_EVERY", every)];
        let Some(host) = Host::try_start(&folder, &config, &environment) else {
            // The host refused to start and changed nothing.
            continue;
        };
        let announced: Vec<i64> = host.events(Some(0)).iter().filter_map(|(id, ..)| id).take(EVENTS).collect();
        assert_eq!(announced.len(), EVENTS, "{kind} {every}: {}", host.log.lock().unwrap());
        let code = host.terminate();
        let host = Host::start(&folder, &config);
        let events = host.events(Some(0));
        let stored: Vec<i64> = events.iter().filter_map(|(id, ..)| id).take(announced.len()).collect();
        assert_eq!(stored, announced, "{kind} {every}, exit code {code}");
        assert_eq!(host.terminate(), 0);
    }
}
