//! End-to-end tests: run the program against real servers, a real database and real plugins.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod access;
mod alerting;
mod command_line;
mod configuring;
mod correcting;
mod defining;
mod examples;
mod notifying;
mod odd_input;
mod operating;
mod plugins;
mod proxmox;
mod receiver;
mod renamed_settings;
mod running;
mod sabotage;
mod sessions;
mod support;
mod surfaces;
mod telemetry;
