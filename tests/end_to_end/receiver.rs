//! A server that records requests: of notifications, and of data for a collector.

use crate::support::ok;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Returns a header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns the body as JSON; null if it is not.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// Returns the raw answer to the n-th request; `None` closes the connection without one.
type Answers = Arc<dyn Fn(usize, &Received) -> Option<Vec<u8>> + Send + Sync>;

/// A server on loopback.
pub(crate) struct Receiver {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub(crate) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let seen = received.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, seen) = (answers.clone(), seen.clone());
                thread::spawn(move || while answer(&stream, &answers, &seen).is_some() {});
            }
        });
        Self { port, received }
    }

    /// Takes everything.
    pub(crate) fn patient() -> Self {
        Self::start(Arc::new(|_, _| Some(ok("ok"))))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the alerts of all notifications.
    pub(crate) fn alerts(&self) -> Vec<Value> {
        let alerts = |received: Received| received.json()["alerts"].as_array().cloned().unwrap_or_default();
        self.all().into_iter().flat_map(alerts).collect()
    }
}

/// Reads a request and answers it. `None` if the connection ended.
fn answer(mut stream: &TcpStream, answers: &Answers, seen: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut lines, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        lines.push(std::mem::take(&mut line).trim_end().to_owned());
    }
    let headers = lines.iter().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let mut received = Received { path, headers, body: Vec::new() };
    received.body = vec![0; received.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut received.body).ok()?;
    let place = {
        let mut seen = seen.lock().unwrap();
        seen.push(received.clone());
        seen.len() - 1
    };
    stream.write_all(&answers(place, &received)?).ok()
}
