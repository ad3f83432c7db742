//! A forwarder in front of the broker that can hold what a client sends, as a slow network does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The bytes of the connections of a client.
#[derive(Default)]
struct Traffic {
    is_held: bool,
    /// The bytes of a client with which the hold begins.
    awaited: Option<Vec<u8>>,
    /// Bytes that the client has sent, and for which connection.
    held: Vec<(TcpStream, Vec<u8>)>,
    /// The answers of the broker since the release.
    answers: Vec<u8>,
    is_cut: bool,
    open: Vec<TcpStream>,
}

/// A forwarder on loopback.
pub(crate) struct Proxy {
    port: u16,
    traffic: Arc<Mutex<Traffic>>,
}

impl Proxy {
    /// Forwards to a port.
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, traffic) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Traffic>>::default());
        let shared = traffic.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut traffic = shared.lock().unwrap();
                if traffic.is_cut {
                    continue;
                }
                let Ok(broker) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                traffic.open.extend([client.try_clone().unwrap(), broker.try_clone().unwrap()]);
                drop(traffic);
                forward(client, broker, shared.clone());
            }
        });
        Self { port, traffic }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Keeps what clients send, from the first bytes on that contain a text. What comes before it passes: a client
    /// that waits for the answer to an earlier request would never send the text.
    pub(crate) fn hold_from(&self, text: &str) {
        self.traffic.lock().unwrap().awaited = Some(text.as_bytes().to_vec());
    }

    /// The bytes that are held, as text.
    pub(crate) fn held(&self) -> String {
        let traffic = self.traffic.lock().unwrap();
        traffic.held.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Sends what is held to the broker, although its client may be gone.
    pub(crate) fn release(&self) {
        let mut traffic = self.traffic.lock().unwrap();
        (traffic.is_held, traffic.awaited, traffic.answers) = (false, None, Vec::new());
        for (mut broker, bytes) in std::mem::take(&mut traffic.held) {
            broker.write_all(&bytes).unwrap();
        }
    }

    /// The answers of the broker since the release.
    pub(crate) fn answers(&self) -> String {
        String::from_utf8_lossy(&self.traffic.lock().unwrap().answers).into_owned()
    }

    /// Ends all connections and refuses new ones, or accepts them again.
    pub(crate) fn cut(&self, is_cut: bool) {
        let mut traffic = self.traffic.lock().unwrap();
        traffic.is_cut = is_cut;
        for stream in traffic.open.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn forward(mut client: TcpStream, mut broker: TcpStream, traffic: Arc<Mutex<Traffic>>) {
    let (mut to_client, mut from_broker) = (client.try_clone().unwrap(), broker.try_clone().unwrap());
    let shared = traffic.clone();
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = from_broker.read(&mut buffer) {
            shared.lock().unwrap().answers.extend_from_slice(&buffer[..count]);
            // A client that was killed has no use for the answer.
            let _ = to_client.write_all(&buffer[..count]);
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let mut traffic = traffic.lock().unwrap();
            let is_awaited = |text: &Vec<u8>| buffer[..count].windows(text.len()).any(|bytes| bytes == text);
            traffic.is_held |= traffic.awaited.as_ref().is_some_and(is_awaited);
            if traffic.is_held {
                let bytes = buffer[..count].to_vec();
                traffic.held.push((broker.try_clone().unwrap(), bytes));
            } else if broker.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
}
