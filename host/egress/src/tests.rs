//! Tests against real servers on loopback.

mod answers;
mod authentication;
mod certificates;
mod connections;
mod encodings;
mod probing;
mod reading;
mod recordings;
mod requests;
mod secrets;
mod sharing;

use super::*;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use secrecy::SecretString;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

const LIMITS: Limits = Limits { requests: 100, body: 1 << 20, bodies: 2 << 20 };

/// Starts a server that handles each connection with `serve`. Returns its port.
async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// Reads the head of one request and any bytes that arrived with it. Returns `None` if the connection ended.
async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
        }
    }
    Some(String::from_utf8_lossy(&read).into_owned())
}

/// Starts a server that answers every request with the same bytes. Returns its port.
async fn canned(answer: impl Into<Vec<u8>>) -> u16 {
    let answer = Arc::new(answer.into());
    server(move |mut stream| {
        let answer = answer.clone();
        async move {
            while head(&mut stream).await.is_some() {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn secrets(values: &[(&str, &str)]) -> Secrets {
    Secrets::new(values.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect()).unwrap()
}

pub(crate) fn grant(url: &str, tls: Tls, secrets: Secrets) -> Arc<Grant> {
    let (base, origin) = Origin::parse(url).unwrap();
    let origins = vec![OriginGrant { origin, tls }];
    Arc::new(Grant::new(base, origins, secrets))
}

struct Poll {
    session: Session,
    egress: Egress,
}

fn poll_with(egress: Egress, grant: Arc<Grant>, limits: Limits) -> Poll {
    let lane = egress.lane(tokio::runtime::Handle::current());
    let deadline = Instant::now() + Duration::from_secs(20);
    Poll { session: Session::new(lane, grant, limits, deadline), egress }
}

fn poll(url: &str) -> Poll {
    poll_with(Egress::new(Config::default()), grant(url, Tls::system().unwrap(), Secrets::default()), LIMITS)
}

async fn code(poll: &Poll, request: Request) -> String {
    match poll.session.fetch(request).await {
        Ok(response) => panic!("the server answered {} {}", response.status, response.reason),
        Err(error) => {
            assert!(!error.to_string().contains("Error"), "the message contains the name of an internal type: {error}");
            error.code().to_owned()
        }
    }
}
