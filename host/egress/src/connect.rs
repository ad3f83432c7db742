//! Resolves a host name once, checks every address, and connects to a checked address.

use crate::address::{self, Reach};
use crate::error::without_os_number;
use crate::handshake::{handshake_error, refusal};
use crate::peer::Peer;
use crate::{Error, Origin, Tls};
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connect timeout if there are several addresses. The last address gets all the remaining time.
const ATTEMPT: Duration = Duration::from_secs(3);
/// Maximum number of failed addresses in an error message.
const SHOWN: usize = 3;

/// Resolves host names.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Returns every address of a host with `port`, in the order in which they should be tried. The error's text is
    /// shown to users.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver. It supports hosts files, mDNS and search domains.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let _turn = LOOK_UPS.acquire().await;
            tokio::net::lookup_host((host, port)).await.map(Vec::from_iter)
        })
    }
}

/// Where to connect, how to verify the server, and which addresses are allowed.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub origin: Origin,
    /// The name for TLS, in the request for a certificate and in the certificate. `None` stands for the host of the
    /// origin.
    pub server_name: Option<Arc<str>>,
    pub tls: Tls,
    pub reach: Reach,
}

impl Destination {
    pub(crate) fn server_name(&self) -> &Arc<str> {
        self.server_name.as_ref().unwrap_or(&self.origin.host)
    }
}

/// The duration of each phase of connecting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases {
    pub dns: Duration,
    pub connect: Duration,
    pub tls: Duration,
}

/// A connected stream.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls { stream: Box<TlsStream<TcpStream>>, peer: Arc<Peer>, http2: bool },
}

/// Why there is no connection.
pub(crate) struct NotConnected {
    pub error: Error,
    /// The server, if its certificate was refused.
    pub refused: Option<Arc<Peer>>,
}

impl From<Error> for NotConnected {
    fn from(error: Error) -> Self {
        Self { error, refused: None }
    }
}

pub(crate) async fn connect(
    destination: &Destination,
    own: &[SocketAddr],
    resolver: &dyn Resolve,
    phase: impl Fn(&'static str),
) -> Result<(Stream, Phases), NotConnected> {
    let mut phases = Phases::default();
    let start = Instant::now();
    phase("looking up the name");
    let addresses = allowed(destination, own, resolve(&destination.origin, resolver).await?)?;
    phases.dns = start.elapsed();
    phase("connecting");
    let tcp = first_to_answer(&addresses).await?;
    refuse_ourselves(destination, own, &tcp)?;
    // Without this, a small request may wait for the acknowledgement of the previous packet.
    let _ = tcp.set_nodelay(true);
    phases.connect = start.elapsed() - phases.dns;
    if !destination.origin.https {
        return Ok((Stream::Plain(tcp), phases));
    }
    phase("performing the TLS handshake");
    let handshake_start = Instant::now();
    let stream = handshake(destination, tcp).await?;
    phases.tls = handshake_start.elapsed();
    Ok((stream, phases))
}

pub(crate) async fn resolve(origin: &Origin, resolver: &dyn Resolve) -> Result<Vec<SocketAddr>, Error> {
    if let Some(ip) = origin.address() {
        return Ok(vec![SocketAddr::new(ip, origin.port)]);
    }
    let name = origin.host.to_string();
    match resolver.resolve(&origin.host, origin.port).await {
        Ok(addresses) if addresses.is_empty() => Err(Error::DnsNotFound(name)),
        Ok(addresses) => Ok(addresses),
        // These are the resolver's texts for "no such name" and "no address for it". Other errors are failures of the
        // resolver.
        Err(error) if ["not known", "No address", "nodename"].iter().any(|word| error.to_string().contains(word)) => {
            Err(Error::DnsNotFound(name))
        }
        Err(error) => Err(Error::DnsFailed { name, why: error.to_string() }),
    }
}

fn allowed(destination: &Destination, own: &[SocketAddr], found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Error> {
    let named = destination.origin.address();
    let mut allowed = Vec::new();
    let mut denied = None;
    for address in found {
        match address::check(address, named, &destination.reach, own) {
            Ok(()) => allowed.push(address),
            Err(why) => denied = Some((address, why)),
        }
    }
    match denied {
        Some((address, why)) if allowed.is_empty() => Err(Error::Denied { what: forbidden(destination, address), why }),
        _ => Ok(allowed),
    }
}

/// Refuses a connection to this host's own listeners. A listener on the unspecified address accepts connections at
/// every address of this machine. Such a connection has the same address at both ends.
pub(crate) fn refuse_ourselves(destination: &Destination, own: &[SocketAddr], tcp: &TcpStream) -> Result<(), Error> {
    let (Ok(here), Ok(there)) = (tcp.local_addr(), tcp.peer_addr()) else { return Ok(()) };
    let listens = own.iter().any(|listener| listener.ip().is_unspecified() && listener.port() == there.port());
    if !listens || here.ip() != there.ip() || destination.origin.address().is_some() {
        return Ok(());
    }
    Err(Error::Denied { what: forbidden(destination, there), why: "it is one of this host's own listeners" })
}

fn forbidden(destination: &Destination, address: SocketAddr) -> String {
    match destination.origin.address() {
        Some(_) => format!("this target may not reach {}", address.ip()),
        None => format!("{} resolves to {}, which this target may not reach", destination.origin.host, address.ip()),
    }
}

/// Limits concurrent name lookups. The system's resolver uses a thread for each lookup and cannot be interrupted.
static LOOK_UPS: Semaphore = Semaphore::const_new(32);

pub(crate) async fn first_to_answer(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut failures = Vec::new();
    for (index, &address) in addresses.iter().enumerate() {
        let attempt = TcpStream::connect(address);
        let result = if index + 1 < addresses.len() {
            match tokio::time::timeout(ATTEMPT, attempt).await {
                Ok(result) => result,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        } else {
            attempt.await
        };
        match result {
            Ok(stream) => return Ok(stream),
            Err(error) => failures.push((address, error)),
        }
    }
    if let Some(resource) = failures.iter().find_map(|(_, error)| missing_resource(error)) {
        return Err(Error::OutOfMeans(resource));
    }
    let tried: Vec<String> = failures.iter().take(SHOWN).map(|(address, _)| address.to_string()).collect();
    let address = tried.join(", ");
    if failures.iter().all(|(_, error)| error.kind() == io::ErrorKind::ConnectionRefused) {
        return Err(Error::ConnectRefused(address));
    }
    let is_unreachable =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable);
    let unreachable = !failures.is_empty() && failures.iter().all(|(_, error)| is_unreachable(error));
    let why = failures.pop().map_or_else(String::new, |(_, error)| without_os_number(&error));
    Err(Error::ConnectFailed { address, why, unreachable })
}

/// Returns the resource that this machine lacks if the error says so (errno ENFILE, EMFILE, ENOMEM or ENOBUFS).
fn missing_resource(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        23 | 24 => Some("file descriptors"),
        12 | 105 => Some("memory for connections"),
        _ => None,
    }
}

pub(crate) async fn handshake(destination: &Destination, tcp: TcpStream) -> Result<Stream, NotConnected> {
    let (origin, server_name) = (&destination.origin, destination.server_name());
    let stream = match secured(server_name, destination.tls.config(), tcp).await? {
        Ok(stream) => stream,
        Err(error) => {
            let refused = refusal(&error).map(|refused| Arc::new(Peer::refused(refused, server_name)));
            return Err(NotConnected { error: handshake_error(origin.authority(), server_name, &error), refused });
        }
    };
    let (_, session) = stream.get_ref();
    let peer = Arc::new(Peer::of(session, server_name));
    let http2 = session.alpn_protocol() == Some(b"h2");
    Ok(Stream::Tls { stream: Box::new(stream), peer, http2 })
}

/// Performs a TLS handshake with the server of an origin.
pub(crate) async fn secure(
    origin: &Origin,
    config: Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, Error> {
    secured(&origin.host, config, tcp).await?.map_err(|error| handshake_error(origin.authority(), &origin.host, &error))
}

async fn secured(
    server_name: &str,
    config: Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<io::Result<TlsStream<TcpStream>>, Error> {
    let server = ServerName::try_from(server_name.to_owned()).map_err(|error| Error::BadRequest(error.to_string()))?;
    Ok(TlsConnector::from(config).connect(server, tcp).await)
}
