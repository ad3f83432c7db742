//! What people and programs see: REST, SSE, pages, metrics.
//!
//! This room defines the trait it needs ([`Host`]: reads and commands) and whoever wires the rooms together implements
//! it. Views are plain types of this room; how they look as JSON is decided in [`wire`](self) and nowhere else.
//!
//! Invariant: everything but `/healthz`, `/readyz`, the log-in page and the metrics port needs a token.
//! Invariant: what a plugin or a polled system says is escaped where it is shown.

#![forbid(unsafe_code)]

mod api;
mod auth;
mod events;
mod gauges;
mod host;
mod listener;
mod metrics;
mod page;
mod server;
mod status;
mod wire;

pub use auth::{Auth, TokenHash};
pub use events::{Announcement, Announcer};
pub use gauges::Gauges;
pub use host::{
    BreakerView, CommandError, DeadView, DependencyView, ExplanationView, Host, Overview, PluginUsage, PluginView,
    PollErrorView, ProcessView, SchedulerView, SettingView, SettingsView, StoredEvents, TargetView, Wish,
};
pub use metrics::{Metrics, PollMeasure};
pub use server::{Listening, Port, ServerError, serve, serve_metrics};
pub use wire::{dependency_id, event_json, plugin_json};
