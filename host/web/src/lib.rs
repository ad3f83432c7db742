//! The HTTP interfaces: REST, server-sent events, pages and metrics.
//!
//! This crate defines the trait [`Host`] (point queries and commands); `polliwog` implements it over the engine's read
//! model. Only the module `api` defines the JSON format of values.
//!
//! Invariant: every path except `/healthz`, `/readyz`, the log-in page, its assets, the status pages that
//! the operator made with their badges, and the metrics port needs a token.
//! Invariant: text from a plugin or from a polled system is escaped where it is displayed.

#![forbid(unsafe_code)]

mod api;
mod auth;
mod chart;
mod compression;
mod condition;
mod dependants;
mod error;
mod etag;
mod event_wire;
mod events;
mod exposition;
mod filter;
mod fleet;
mod gauges;
mod graph;
mod host;
mod listener;
mod pages;
mod pauses;
mod proxy;
mod range;
mod reads;
mod recent;
mod server;
mod state;
mod status;
mod timeline;
mod totals;
mod wire;

pub use api::PluginWire;
pub use auth::{Auth, TokenHash};
pub use event_wire::{event_json, event_text};
pub use exposition::render as render_metrics;
pub use fleet::Fleet;
pub use gauges::Gauges;
pub use host::{Host, Recent};
pub use proxy::Proxy;
pub use reads::Reads;
pub use server::{Listening, Port, ServerError, serve, serve_metrics};
pub use wire::dependency_id;
