//! Sessions of plugins: log-ins that survive a restart, and log-outs.

use crate::plugins::{plugin_folder, target, until_polled};
use crate::receiver::{Received, Receiver};
use crate::support::{Host, folder, ok, until};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A server whose refresh tokens are valid once, and whose tickets are valid until the log-out.
fn server() -> Receiver {
    let (number, refresh, tickets) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    Receiver::start(Arc::new(move |_, received| {
        let refused = || b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec();
        let known = |set: &Mutex<BTreeSet<String>>, name: &str| set.lock().unwrap().contains(&received.header(name));
        Some(match received.path.as_str() {
            "/renew" if !refresh.lock().unwrap().remove(&received.header("refresh")) => refused(),
            "/login" | "/renew" => {
                let number = number.fetch_add(1, Ordering::Relaxed);
                let (one, other) = (format!("refresh-{number}"), format!("ticket--{number}"));
                let answer = ok(format!(r#"{{"refresh":"{one}","ticket":"{other}"}}"#));
                refresh.lock().unwrap().insert(one);
                tickets.lock().unwrap().insert(other);
                answer
            }
            "/logout" => {
                tickets.lock().unwrap().remove(&received.header("ticket"));
                ok("bye")
            }
            _ if known(&tickets, "ticket") => ok("works"),
            _ => refused(),
        })
    }))
}

/// The requests for a path: ticket and refresh token of each.
fn sent(server: &Receiver, path: &str) -> Vec<(String, String)> {
    let of_path = |received: &Received| received.path == path;
    let sent = server.all().into_iter().filter(of_path);
    sent.map(|received| (received.header("ticket"), received.header("refresh"))).collect()
}

fn until_sent(server: &Receiver, path: &str, count: usize) -> (String, String) {
    until(&format!("{count} requests for {path}"), || sent(server, path), |sent| sent.len() == count).pop().unwrap()
}

fn pair(ticket: &str, refresh: &str) -> (String, String) {
    (ticket.to_owned(), refresh.to_owned())
}

#[test]
fn a_log_in_survives_a_kill_and_each_end_logs_out() {
    let ((_keep, folder), server) = (folder(), server());
    let file = plugin_folder(&folder).join("session.wasm");
    fs::write(&file, tests::guests::OPENS_A_SESSION).unwrap();
    let of = |more: &str| target("a", "opens-a-session", &server.url("/")) + more;
    let host = Host::start(&folder, &of(""));
    until_polled(&host, "a");
    assert_eq!((sent(&server, "/login").len(), sent(&server, "/renew").len()), (1, 0));
    let kept = folder.join("data/captured/a.opens-a-session");
    assert!(!String::from_utf8_lossy(&fs::read(&kept).unwrap()).contains("refresh-0"), "it is not encrypted");
    host.kill();
    let host = Host::start(&folder, &of(""));
    assert_eq!(until_sent(&server, "/renew", 1), pair("", "refresh-0"), "it does not log in again");
    until_polled(&host, "a");
    // While it is disabled, nothing needs the ticket. The refresh token is kept.
    Host::configure(&folder, &of("enabled = false\n"));
    assert_eq!(until_sent(&server, "/logout", 1), pair("ticket--1", ""));
    Host::configure(&folder, &of(""));
    assert_eq!(until_sent(&server, "/renew", 2), pair("", "refresh-1"));
    until_polled(&host, "a");
    // Another version has the refresh token, and another ticket.
    let section = [0, 5, 4, b'n', b'e', b'x', b't'];
    fs::write(&file, [tests::guests::OPENS_A_SESSION, &section].concat()).unwrap();
    assert_eq!(until_sent(&server, "/logout", 2), pair("ticket--2", ""));
    assert_eq!(until_sent(&server, "/renew", 3), pair("", "refresh-2"));
    until("the state", || sent(&server, "/state"), |sent| sent.last() == Some(&pair("ticket--3", "")));
    // The end of the host.
    assert_eq!(host.terminate(), 0);
    assert_eq!(until_sent(&server, "/logout", 3), pair("ticket--3", ""));
    let host = Host::start(&folder, &of(""));
    assert_eq!(until_sent(&server, "/renew", 4), pair("", "refresh-3"));
    until_polled(&host, "a");
    // Removed: nothing is left.
    Host::configure(&folder, &target("b", "http", &server.url("/other")));
    assert_eq!(until_sent(&server, "/logout", 4), pair("ticket--4", "refresh-4"));
    until("the file is removed", || kept.exists(), |exists| !exists);
    Host::configure(&folder, &of(""));
    until_sent(&server, "/login", 2);
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_target_with_another_server_does_not_get_the_log_in_of_the_first() {
    let ((_keep, folder), first, second) = (folder(), server(), server());
    fs::write(plugin_folder(&folder).join("session.wasm"), tests::guests::OPENS_A_SESSION).unwrap();
    let of = |server: &Receiver| target("a", "opens-a-session", &server.url("/"));
    let host = Host::start(&folder, &of(&first));
    until_polled(&host, "a");
    Host::configure(&folder, &of(&second));
    until_sent(&second, "/login", 1);
    assert_eq!(until_sent(&first, "/logout", 1), pair("ticket--0", "refresh-0"));
    until_polled(&host, "a");
    host.kill();
    // The same change while the host does not run.
    let host = Host::start(&folder, &of(&first));
    until_sent(&first, "/login", 2);
    assert_eq!((sent(&first, "/renew").len(), sent(&second, "/renew").len()), (0, 0));
    drop(host);
}

#[test]
fn an_end_of_a_session_that_never_returns_holds_up_nothing() {
    let ((_keep, folder), server) = (folder(), server());
    fs::write(plugin_folder(&folder).join("session.wasm"), tests::guests::CLOSE_NEVER_ENDS).unwrap();
    let host = Host::start(&folder, &target("a", "close-never-ends", &server.url("/")));
    until_polled(&host, "a");
    let log = host.log.clone();
    assert_eq!(host.terminate(), 0);
    assert_eq!(sent(&server, "/logout").len(), 8);
    let log = log.lock().unwrap().clone();
    assert!(log.contains("its session was not ended"), "{log}");
}
