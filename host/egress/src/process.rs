//! The egress of the process, and of one runtime.

use crate::budget::{Bytes, Gauges, Slots, Sockets};
use crate::coalesce::Coalescer;
use crate::connect::{Resolve, SystemResolver};
use crate::in_flight::Common;
use crate::pool::Pool;
use hyper::header::HeaderValue;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The settings of this crate.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of concurrent requests per host.
    pub max_requests_per_host: usize,
    /// Maximum number of body bytes that the process holds at a time.
    pub max_body_bytes_in_flight: usize,
    /// Maximum number of open connections, including idle ones.
    pub max_connections: usize,
    /// The listeners of this process. Requests by a host name are never sent to them.
    pub own_listeners: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests_per_host: 20,
            max_body_bytes_in_flight: 256 << 20,
            max_connections: 16_384,
            own_listeners: Vec::new(),
        }
    }
}

/// The egress of the process.
#[derive(Clone)]
pub struct Egress {
    pub(crate) common: Arc<Common>,
    pub(crate) coalescer: Arc<Coalescer>,
}

/// The egress of one runtime. Requests that start here run here.
#[derive(Clone)]
pub struct Lane {
    pub(crate) egress: Egress,
    pub(crate) handle: Handle,
    pub(crate) pool: Arc<Pool>,
}

impl Egress {
    /// Creates the egress. A process needs exactly one.
    pub fn new(config: Config) -> Self {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// Like [`Self::new`], with a resolver other than the system's.
    pub fn with_resolver(config: Config, resolver: Arc<dyn Resolve>) -> Self {
        let common = Common {
            resolver,
            own: config.own_listeners,
            user_agent: HeaderValue::from_static(concat!("polliwog/", env!("CARGO_PKG_VERSION"))),
            slots: Slots::new(config.max_requests_per_host),
            bytes: Bytes::new(config.max_body_bytes_in_flight),
            sockets: Sockets::new(config.max_connections),
            gauges: Gauges::default(),
        };
        Self { common: Arc::new(common), coalescer: Arc::default() }
    }

    /// Returns a lane on the runtime of `handle`.
    pub fn lane(&self, handle: Handle) -> Lane {
        let pool = Arc::<Pool>::default();
        pool.sweep(&handle);
        Lane { egress: self.clone(), handle, pool }
    }

    /// Returns the counters of the process.
    pub fn gauges(&self) -> &Gauges {
        &self.common.gauges
    }
}
