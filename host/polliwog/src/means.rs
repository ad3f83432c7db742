//! The host's share of the machine: descriptors, permissions of files, priorities.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept for our own listeners, the database, plugins and the log.
const RESERVE: u64 = 48;
/// With fewer nothing useful is left.
const LEAST: u64 = 64;
/// One in so many of the remaining descriptors is for connections to pages, API and metrics.
const OWN_LISTENERS: u64 = 4;

/// Raises the soft limit of descriptors to the hard one. Fails if even that is too low to run.
pub(crate) fn raise_descriptors() -> anyhow::Result<()> {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("the limit of file descriptors cannot be raised");
    }
    let descriptors = descriptors();
    if descriptors < LEAST {
        bail!("this process may have {descriptors} file descriptors, and needs {LEAST}: raise the limit (ulimit -n)");
    }
    Ok(())
}

/// Lowers the priority of the present thread: pages, API and metrics yield to polls when the CPU is short.
pub(crate) fn yield_to_polls() {
    /// A tenth of the weight of a normal thread.
    const NICE: i32 = 10;
    // Without the right to do so, the thread keeps its priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// Makes new files readable for their owner only, in any data directory.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Connections to targets that may be open at a time.
pub(crate) fn connections() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left - left / OWN_LISTENERS).unwrap_or(usize::MAX).clamp(8, 1 << 20)
}

/// Connections to each of our own listeners that may be open at a time.
pub(crate) fn served() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left / OWN_LISTENERS / 2).unwrap_or(usize::MAX).clamp(4, 512)
}

fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}
