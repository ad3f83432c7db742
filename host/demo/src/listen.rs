//! Binds the ports of the demo.

use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// A clock that returns seconds since the Unix epoch.
pub type Now = fn() -> i64;

/// The error for a port that the demo cannot use.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}")]
pub struct DemoError {
    address: SocketAddr,
    why: String,
}

impl DemoError {
    pub(crate) fn at(port: u16, why: String) -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), why }
    }
}

/// Binds a port on loopback.
pub(crate) async fn bind(port: u16) -> Result<TcpListener, DemoError> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program uses this port: stop it or choose another port".to_owned()
            }
            _ => error.to_string(),
        };
        DemoError::at(port, why)
    };
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(failed)
}
