//! The state that every handler shares.

use crate::auth::Auth;
use crate::gauges::Gauges;
use crate::host::Host;
use crate::pages::{Kept, Pictures};
use crate::recent::LastHour;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The state that every handler shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub host: Arc<dyn Host>,
    pub auth: Auth,
    pub gauges: Arc<Gauges>,
    pub ending: CancellationToken,
    pub pictures: Arc<Pictures>,
    pub hour: Arc<LastHour>,
    pub kept: Arc<Kept>,
}
