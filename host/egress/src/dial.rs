//! Connections of protocols other than HTTP, with the same checks of addresses and certificates.

use crate::connect::{self, Destination, Stream};
use crate::{Egress, Error, Origin, OriginGrant, Reach};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

impl Egress {
    /// Connects to the server of an origin, without TLS. [`secure`] adds it.
    ///
    /// # Errors
    /// If the name cannot be looked up, no address may be reached, or nothing answers there.
    pub async fn dial(&self, server: &OriginGrant, reach: &Reach) -> Result<TcpStream, Error> {
        let origin = Origin { https: false, ..server.origin.clone() };
        let destination = Destination { origin, server_name: None, tls: server.tls.clone(), reach: reach.clone() };
        let (own, resolver) = (self.common.own.as_slice(), &*self.common.resolver);
        let connected = connect::connect(&destination, own, resolver, |_| {}).await;
        match connected.map_err(|not_connected| not_connected.error)?.0 {
            Stream::Plain(tcp) => Ok(tcp),
            Stream::Tls { .. } => unreachable!("the origin is not https"),
        }
    }
}

/// Performs the TLS handshake of a connection that does not speak HTTP.
///
/// # Errors
/// If the certificate is not accepted or the handshake fails.
pub async fn secure(server: &OriginGrant, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Error> {
    connect::secure(&server.origin, Arc::new(server.tls.for_other_protocols()), tcp).await
}
