//! Polliwog: polls targets and reports their status.
//!
//! This crate is the command line, a file for each command, and the wiring of the other crates.

#![deny(unsafe_code)]
// These macros panic if stdout or stderr is closed.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod admin;
mod cli;
mod client;
mod commands;
mod configuration;
mod definer;
mod demo_fleet;
mod demo_past;
mod fleet_host;
mod fleet_plugins;
mod kubernetes;
mod local_broker;
mod logging;
mod means;
mod output;
mod plugins;
mod routing;
mod silences;
mod telemetry;
mod troubles;
mod web_host;
mod what_if;

use anyhow::Context;
use clap::Parser;
use cli::{Arguments, Command, PluginCommand, PollArguments, RouteCommand};
use commands::check::Allowed;
use commands::{
    alerts, apply, breaker, channel, check, dead_letter, events, explain, fleet, history, import, plugin, poll, replay,
    run, settings, setup, silence, simulate, status, targets, token,
};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// How long a thread for blocking work waits for more. Until it ends, the allocator keeps the memory that it freed.
/// The start has nine such threads, and with tokio's ten seconds rare work would keep all of them alive in turn.
const BLOCKING_IDLE: Duration = Duration::from_secs(1);

/// Polls allocate on one thread what another one frees, and a large estate has millions of small blocks: the system's
/// allocator searches for free ones in all of its memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are not errors; anything else is wrong usage.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { cli::USAGE } else { 0 });
        }
    };
    if matches!(arguments.command, Command::CompilePlugin) {
        return sandbox::compile_child();
    }
    means::bound_allocators();
    match carry_out(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output::complain(format_args!("polliwog: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns the exit code.
fn carry_out(arguments: Arguments) -> anyhow::Result<u8> {
    let serves = matches!(arguments.command, Command::Run(_));
    let usual = if serves { Level::INFO } else { Level::WARN };
    let level = arguments.log_level.map_or_else(|| logging::level(usual), Ok)?;
    let format = arguments.log_format.map_or_else(logging::format, Ok)?;
    let log = Arc::new(logging::start(level, format)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(BLOCKING_IDLE)
        .on_thread_start(move || {
            if serves {
                means::yield_to_polls();
            }
        })
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let done = runtime.block_on(async {
        match arguments.command {
            Command::Run(arguments) => run::run(arguments, log.clone()).await,
            Command::Check { common, json, allow_missing_plugins, allow_missing_targets } => {
                let allowed =
                    Allowed { missing_plugins: allow_missing_plugins, missing_targets: allow_missing_targets };
                check::check(&common, json, allowed).await
            }
            Command::Apply(arguments) => apply::apply(&arguments).await,
            Command::Import { file, kind } => import::import(&file, &kind),
            Command::Poll(arguments) => poll::poll(arguments).await,
            Command::Explain { target, common } => explain::explain(&common, &target).await,
            Command::Events { arguments, common } => events::events(&common, &arguments).await,
            Command::History { target, range, common } => history::history(&common, ("/api/v1", &target), &range).await,
            Command::Status { common } => status::status(&common).await,
            Command::Targets { command, common } => targets::targets(&common, command).await,
            Command::Alerts { command, common } => alerts::alerts(&common, command).await,
            Command::Silence { command, common } => silence::silence(&common, command).await,
            Command::Channel { command, common } => channel::channel(&common, command).await,
            Command::Route(RouteCommand::Explain { alert, common }) => channel::explain(&common, &alert).await,
            Command::DeadLetter { command, common } => dead_letter::dead_letter(&common, command).await,
            Command::Breaker { command, common } => breaker::breaker(&common, command).await,
            Command::Settings { command, common } => settings::settings(&common, command).await,
            Command::Token { command, common } => token::token(&common, command).await,
            Command::Fleet { command, common } => fleet::fleet(&common, command).await,
            Command::Replay { dir, port } => replay::replay(&dir, port).await,
            Command::Setup(arguments) => setup::setup(arguments).await,
            Command::Simulate(arguments) => simulate::simulate(&arguments).await,
            Command::Plugin(PluginCommand::List { common, json }) => plugin::list::list(&common, json).await,
            Command::CompilePlugin => unreachable!("handled before the runtime starts"),
            Command::Plugin(PluginCommand::Accept { file, common }) => plugin::accept::accept(&file, &common),
            Command::Plugin(PluginCommand::New { name, lang, notifier }) => plugin::new::new(&name, (lang, notifier)),
            Command::Plugin(PluginCommand::Send(arguments)) => plugin::send::send(&arguments).await,
            Command::Plugin(PluginCommand::Test { path, update, json }) => {
                plugin::test::test(&path, update, json).await
            }
            Command::Plugin(PluginCommand::Watch { path, url, settings, secret }) => {
                plugin::watch::watch(&path, PollArguments::of(url, settings, secret)).await
            }
            Command::Plugin(PluginCommand::Wit { dir }) => plugin::new::wit(&dir),
            Command::Plugin(PluginCommand::Update { path }) => plugin::new::update(&path),
            Command::Plugin(PluginCommand::Retry { kind, common }) => plugin::retry::retry(&common, &kind).await,
            Command::Plugin(PluginCommand::Bench { path, recording, polls, json }) => {
                plugin::bench::bench(&path, recording.as_deref(), polls, json).await
            }
            Command::Plugin(PluginCommand::Inspect { file, json }) => plugin::inspect::inspect(&file, json).await,
        }
    });
    // Do not wait for a task that hangs in a file-system call.
    runtime.shutdown_background();
    done
}
