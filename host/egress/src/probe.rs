//! Examines step by step how an origin is reached, for people who set up a target.
//!
//! The steps are those of every connection. They are done again, outside polls, and nothing is sent except TLS
//! handshakes.

use crate::address;
use crate::connect::{Destination, Stream, first_to_answer, handshake, refuse_ourselves, resolve};
use crate::grant::server_name;
use crate::peer::{Certificate, Peer};
use crate::{Egress, Error, OriginGrant, Reach};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// One step, with its duration.
#[derive(Debug)]
pub struct ProbeStep {
    /// The name: `name look-up`, `address`, `connect` or `TLS`.
    pub name: &'static str,
    /// The host name, the address, or the address with the port.
    pub subject: String,
    /// The duration.
    pub took: Duration,
    /// A text for users, or the error.
    pub result: Result<String, Error>,
    /// The server's certificate, also if it is not trusted.
    pub certificate: Option<Certificate>,
}

/// The steps so far, and the end of the time for all of them.
struct Steps {
    done: Vec<ProbeStep>,
    deadline: Instant,
}

impl Steps {
    /// Does a step that is over in time. Keeps it with the text that `said` returns. Returns its result, if it
    /// succeeded.
    async fn run<T>(
        &mut self,
        (name, subject, phase): (&'static str, String, &'static str),
        step: impl Future<Output = Result<T, Error>>,
        said: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        let start = Instant::now();
        let result = match timeout_at(self.deadline, step).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { after: start.elapsed(), phase }),
        };
        let (text, kept) = match result {
            Ok(result) => (Ok(said(&result)), Some(result)),
            Err(error) => (Err(error), None),
        };
        self.done.push(ProbeStep { name, subject, took: start.elapsed(), result: text, certificate: None });
        kept
    }
}

impl Egress {
    /// Examines how an origin is reached, within this time. `host` is the `Host` header of the target, if it has one.
    /// The last step is the first that failed, except that each address has a step.
    pub async fn probe(
        &self,
        granted: &OriginGrant,
        (host, reach): (Option<&str>, &Reach),
        longest: Duration,
    ) -> Vec<ProbeStep> {
        let OriginGrant { origin, tls } = granted;
        let server_name = host.filter(|_| origin.https).map(server_name);
        let destination = Destination { origin: origin.clone(), server_name, tls: tls.clone(), reach: reach.clone() };
        let mut steps = Steps { done: Vec::new(), deadline: Instant::now() + longest };
        self.examine(&destination, &mut steps).await;
        steps.done
    }

    async fn examine(&self, destination: &Destination, steps: &mut Steps) -> Option<()> {
        let (resolver, own) = (&*self.common.resolver, self.common.own.as_slice());
        let origin = &destination.origin;
        let told = |found: &Vec<SocketAddr>| match (origin.address(), found.len()) {
            (Some(_), _) => "the URL has an address, so there is nothing to look up".to_owned(),
            (None, 1) => "1 address".to_owned(),
            (None, count) => format!("{count} addresses"),
        };
        let looking = ("name look-up", origin.host.to_string(), "looking up the name");
        let found = steps.run(looking, resolve(origin, resolver), told).await?;
        let mut allowed = Vec::new();
        for address in found {
            let verdict = address::check(address, origin.address(), &destination.reach, own);
            let verdict = async {
                let what = || format!("this target may not reach {}", address.ip());
                verdict.map_err(|why| Error::Denied { what: what(), why })
            };
            let asked = ("address", address.ip().to_string(), "");
            if steps.run(asked, verdict, |()| "may be reached".to_owned()).await.is_some() {
                allowed.push(address);
            }
        }
        if allowed.is_empty() {
            return None;
        }
        let connecting = async {
            let tcp = first_to_answer(&allowed).await?;
            refuse_ourselves(destination, own, &tcp)?;
            Ok(tcp)
        };
        let reached = |tcp: &tokio::net::TcpStream| match tcp.peer_addr() {
            Ok(address) => format!("{address} answers"),
            Err(_) => "the server answers".to_owned(),
        };
        let tcp = steps.run(("connect", origin.authority(), "connecting"), connecting, reached).await?;
        if !origin.https {
            return Some(());
        }
        let shaking = ("TLS", origin.authority(), "performing the TLS handshake");
        let verified = |stream: &Stream| match peer(stream) {
            Some(_) if destination.tls.verifies() => "the certificate is trusted".to_owned(),
            _ => "the certificate is not verified (insecure)".to_owned(),
        };
        let mut refused = None;
        let handshake = async {
            handshake(destination, tcp).await.map_err(|not_connected| {
                refused = not_connected.refused;
                not_connected.error
            })
        };
        let stream = steps.run(shaking, handshake, verified).await;
        let peer = stream.as_ref().and_then(peer).or(refused);
        steps.done.last_mut()?.certificate = peer.and_then(|peer| peer.chain().first().cloned());
        Some(())
    }
}

fn peer(stream: &Stream) -> Option<Arc<Peer>> {
    match stream {
        Stream::Plain(_) => None,
        Stream::Tls { peer, .. } => Some(peer.clone()),
    }
}
