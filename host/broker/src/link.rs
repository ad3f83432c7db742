//! The way to the broker.

use crate::seal::Keys;
use rustls::ClientConfig;
use std::net::IpAddr;

/// How to reach the broker.
#[derive(Clone, Debug)]
pub struct Link {
    /// The URL, for example `nats://broker:4222` or `tls://broker:4222`; those of several servers with commas.
    pub url: String,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// The keys that seal records.
    pub keys: Keys,
    /// The verification of the broker's certificate; `None` for that of the client's library.
    pub tls: Option<ClientConfig>,
    /// The address from which it connects; `None` for that which the system chooses.
    pub local: Option<IpAddr>,
    /// The name of this client, for the broker's lists.
    pub name: String,
    /// Makes the delays of this client differ from those of others.
    pub seed: u64,
}

impl Link {
    /// The URLs of the broker's servers.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.url.split(',').map(|url| url.trim().to_owned()).collect()
    }
}
