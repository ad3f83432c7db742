//! Polliwog: polls things and says how they are.
//!
//! This crate wires the rooms together: command line, configuration, the driver, and the host as the web room sees it.

#![forbid(unsafe_code)]
// They panic when nothing reads what they write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod api;
mod check;
mod cli;
mod clock;
mod common;
mod configurator;
mod driver;
mod estate;
mod health;
mod host;
mod logging;
mod means;
mod plugin_command;
mod plugins;
mod poll;
mod remote;
mod run;
mod setup;
mod simulate;
mod token;

use anyhow::Context;
use clap::Parser;
use cli::{Arguments, Command, PluginCommand, PollArguments, TokenCommand};
use logging::Log;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tracing::Level;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; anything else is wrong usage.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { cli::USAGE } else { 0 });
        }
    };
    if matches!(arguments.command, Command::CompilePlugin) {
        return sandbox::compile_child();
    }
    match carry_out(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            common::complain(format_args!("polliwog: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked; gives the exit code.
fn carry_out(arguments: Arguments) -> anyhow::Result<u8> {
    let usual = if matches!(arguments.command, Command::Run(_)) { Level::INFO } else { Level::WARN };
    let level = arguments.log_level.map_or_else(|| logging::level(usual), Ok)?;
    let format = arguments.log_format.map_or_else(logging::format, Ok)?;
    let log = Arc::new(Log::start(level, format)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let done = runtime.block_on(async {
        match arguments.command {
            Command::Run(arguments) => run::run(arguments, log.clone()).await,
            Command::Check { common, json, allow_missing_plugins } => {
                check::check(&common, json, allow_missing_plugins).await
            }
            Command::Poll(arguments) => poll::poll(arguments).await,
            Command::Explain { target, common } => remote::explain(&common, &target).await,
            Command::Status { common } => remote::status(&common).await,
            Command::Targets { command, common } => remote::targets(&common, command).await,
            Command::DeadLetter { command, common } => remote::dead_letter(&common, command).await,
            Command::Breaker { command, common } => remote::breaker(&common, command).await,
            Command::Settings { command, common } => remote::settings(&common, command).await,
            Command::Token { command: TokenCommand::Rotate, common } => remote::rotate_token(&common).await,
            Command::Token { command: TokenCommand::Show { demo }, common } => {
                token::show(&common.common.places(), demo)
            }
            Command::Replay { dir, port } => replay(&dir, port).await,
            Command::Setup(arguments) => setup::setup(arguments).await,
            Command::Simulate { estate, seed, json } => simulate::simulate(&estate, seed, json).await,
            Command::Plugin(PluginCommand::List { common, json }) => plugin_command::list::list(&common, json).await,
            Command::CompilePlugin => unreachable!("done before there was a runtime"),
            Command::Plugin(PluginCommand::Accept { file, common }) => plugin_command::accept::accept(&file, &common),
            Command::Plugin(PluginCommand::New { name, lang }) => plugin_command::new::new(&name, lang),
            Command::Plugin(PluginCommand::Test { path, update, json }) => {
                plugin_command::test::test(&path, update, json).await
            }
            Command::Plugin(PluginCommand::Watch { path, url, settings, secret }) => {
                plugin_command::watch::watch(&path, PollArguments::of(url, settings, secret)).await
            }
            Command::Plugin(PluginCommand::Wit { dir }) => plugin_command::new::wit(&dir),
            Command::Plugin(PluginCommand::Update { path }) => plugin_command::new::update(&path),
            Command::Plugin(PluginCommand::Retry { kind, common }) => remote::retry_plugin(&common, &kind).await,
            Command::Plugin(PluginCommand::Bench { path, recording, polls, json }) => {
                plugin_command::bench::bench(&path, recording.as_deref(), polls, json).await
            }
            Command::Plugin(PluginCommand::Inspect { file, json }) => {
                plugin_command::inspect::inspect(&file, json).await
            }
        }
    });
    // What is still under way waits for a file system that hangs, and nobody for it.
    runtime.shutdown_background();
    done
}

/// Serves recorded bodies until it is ended.
async fn replay(dir: &Path, port: u16) -> anyhow::Result<u8> {
    let files = demo::Replayed::read(dir).map_err(anyhow::Error::msg)?;
    let count = common::counted(files.names().count(), "file");
    let ready = |address| {
        common::complain(format_args!("serving {count} at http://{address}/, each under its name; Ctrl-C ends it"));
    };
    demo::replay(files, port, clock::seconds, ready).await?;
    Ok(0)
}
