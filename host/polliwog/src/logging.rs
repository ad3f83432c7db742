//! The log on stderr: its level, its format, and panics.

use crate::cli::LogFormat;
use anyhow::Context;
use clap::ValueEnum;
use config::environment;
use engine::Log;
use std::io::{self, IsTerminal};
use tracing::Level;
use tracing_subscriber::EnvFilter;

/// Returns the level from the environment, or `usual` if it is not set.
pub(crate) fn level(usual: Level) -> anyhow::Result<Level> {
    let named = environment("POLLIWOG_LOG_LEVEL");
    let wrong = |name: &String| format!("POLLIWOG_LOG_LEVEL is {name:?}: use error, warn, info, debug or trace");
    named.map_or(Ok(usual), |name| name.parse().map_err(|_| anyhow::anyhow!(wrong(&name))))
}

/// Returns the format from the environment, or text if it is not set.
pub(crate) fn format() -> anyhow::Result<LogFormat> {
    let Some(name) = environment("POLLIWOG_LOG_FORMAT") else { return Ok(LogFormat::Text) };
    LogFormat::from_str(&name, true).map_err(|_| anyhow::anyhow!("POLLIWOG_LOG_FORMAT is {name:?}: use text or json"))
}

/// Starts the log. `RUST_LOG` sets the filter; without it, lines from `level` on are logged.
pub(crate) fn start(level: Level, format: LogFormat) -> anyhow::Result<Log> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) => EnvFilter::try_new(&filter).with_context(|| format!("RUST_LOG={filter:?}"))?,
        // The client of the broker logs each failed attempt. This program logs each problem once.
        Err(_) => EnvFilter::new(format!("{},async_nats=off", level.as_str())),
    };
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = Log::writing_to(io::stderr())?;
    let queue = log.lines().clone();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || queue.clone())
        .with_target(false)
        // The library would print its own errors, which panics if stderr is closed.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(colours).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    log_panics();
    Ok(log)
}

/// Logs panics. The default hook writes to stderr directly and would block on a pipe that is not read.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!("thread {:?} panicked: {panic}\n{backtrace}", thread.name().unwrap_or("unnamed"));
    }));
}
