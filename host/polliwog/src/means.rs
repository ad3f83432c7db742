//! Operating-system resources of the process: file descriptors, file permissions, thread priorities.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for our listeners, the database, plugins and the log.
const RESERVE: u64 = 48;
/// The fewest descriptors that the host can run with.
const LEAST: u64 = 64;
/// The fraction (1/n) of the remaining descriptors for connections to pages, API and metrics.
const OWN_LISTENERS: u64 = 4;

/// Raises the soft limit of descriptors to the hard one. Fails if even that is too low to run.
pub(crate) fn raise_descriptors() -> anyhow::Result<()> {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("cannot raise the limit of file descriptors");
    }
    let descriptors = descriptors();
    if descriptors < LEAST {
        bail!("the limit of {descriptors} file descriptors is below the required {LEAST}: raise it (ulimit -n)");
    }
    Ok(())
}

/// Lowers the priority of the current thread, so that pages, API and metrics yield to polls when the CPU is busy.
pub(crate) fn yield_to_polls() {
    /// A tenth of the weight of a normal thread.
    const NICE: i32 = 10;
    // Without the permission, the thread keeps its priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// Makes new files readable for their owner only, in any data directory.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Most concurrent connections to targets.
pub(crate) fn connections() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left - left / OWN_LISTENERS).unwrap_or(usize::MAX).clamp(8, 1 << 20)
}

/// Most concurrent connections to each of our listeners.
pub(crate) fn served() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left / OWN_LISTENERS / 2).unwrap_or(usize::MAX).clamp(4, 512)
}

fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}
