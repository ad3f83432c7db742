//! A client of the broker that sends whatever it wants, with the protocol in plain text.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection as a user.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(port: u16, user: &str, password: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self { stream: BufReader::new(stream) };
        client.line();
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true,\"user\":\"{user}\",\"pass\":\"{password}\"}}"
        );
        client.send(format!("{hello}\r\n"));
        client
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    /// Publishes with a reply subject and a header, and waits until the broker has handled it. Returns what it refused.
    pub(crate) fn publish(&mut self, subject: &str, reply: &str, header: &str, body: impl AsRef<[u8]>) -> String {
        let header =
            if header.is_empty() { "NATS/1.0\r\n\r\n".to_owned() } else { format!("NATS/1.0\r\n{header}\r\n\r\n") };
        let body = body.as_ref();
        let (head, all) = (header.len(), header.len() + body.len());
        self.send(format!("HPUB {subject} {reply} {head} {all}\r\n{header}"));
        self.send([body, b"\r\nPING\r\n"].concat());
        let mut refused = String::new();
        loop {
            let line = self.line();
            if line.starts_with("-ERR") {
                refused.push_str(&line);
            }
            if line.starts_with("PONG") || line.is_empty() {
                return refused;
            }
        }
    }

    /// Sends an empty request, and returns the payload of the answer.
    pub(crate) fn ask(&mut self, subject: &str) -> Vec<u8> {
        self.send(format!("SUB _INBOX.asked 1\r\nUNSUB 1 1\r\nPUB {subject} _INBOX.asked 0\r\n\r\n"));
        loop {
            let line = self.line();
            assert!(!line.is_empty() && !line.starts_with("-ERR"), "{subject}: {line}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let size = |from_end: usize| words[words.len() - from_end].parse::<usize>().unwrap();
            let (head, all) = match words[0] {
                "HMSG" => (size(2), size(1)),
                "MSG" => (0, size(1)),
                _ => continue,
            };
            let mut answer = vec![0; all + 2];
            self.stream.read_exact(&mut answer).unwrap();
            return answer[head..all].to_vec();
        }
    }
}
