//! The surfaces for people and programs: REST, SSE, pages, metrics.
//!
//! This crate defines the trait that it needs ([`Host`]: point queries and commands); `polliwog` implements it over the
//! engine's read model. How values look as JSON is decided in [`wire`](self) and nowhere else.
//!
//! Invariant: everything but `/healthz`, `/readyz`, the log-in page and the metrics port needs a token.
//! Invariant: text of a plugin or of a polled system is escaped where it is shown.

#![forbid(unsafe_code)]

mod api;
mod auth;
mod error;
mod event_wire;
mod events;
mod exposition;
mod gauges;
mod host;
mod listener;
mod page;
mod server;
mod state;
mod status;
mod totals;
mod wire;

pub use auth::{Auth, TokenHash};
pub use event_wire::event_json;
pub use gauges::Gauges;
pub use host::Host;
pub use server::{Listening, Port, ServerError, serve, serve_metrics};
pub use wire::{dependency_id, plugin_json};
