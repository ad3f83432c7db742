//! End to end: the program as its users run it, against real servers, a real database and real plugins.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod command_line;
mod operating;
mod plugins;
mod proxmox;
mod running;
mod sabotage;
mod support;
