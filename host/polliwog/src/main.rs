//! Polliwog: polls things and says how they are.
//!
//! This crate wires the rooms together: command line, configuration, the driver, and the host as the web room sees it.

#![forbid(unsafe_code)]

mod api;
mod check;
mod cli;
mod clock;
mod config;
mod driver;
mod estate;
mod host;
mod plugin_command;
mod plugins;
mod poll;
mod run;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; anything else is wrong usage.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { cli::USAGE } else { 0 });
        }
    };
    match cli::carry_out(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("polliwog: {error:#}");
            ExitCode::FAILURE
        }
    }
}
