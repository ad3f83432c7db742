//! The SDK for Polliwog plugins in Rust.
//!
//! A plugin decides what a reply *means*. The host decides when to poll, sends the requests, keeps the secrets and
//! stores the results. A plugin that needs one GET request and a parser consists of one function and [`register!`]:
//!
//! ```
//! use polliwog_sdk::prelude::*;
//!
//! polliwog_sdk::register! {
//!     kind: "queues",
//!     title: "Queue depths",
//!     summary: "A JSON object of queue names and how many messages wait in each",
//!     parse: queues,
//! }
//!
//! fn queues(body: &[u8]) -> Result<Report, CallError> {
//!     let depths: std::collections::BTreeMap<String, u64> = json(body)?;
//!     Ok(depths.into_iter().map(|(queue, depth)| match depth {
//!         0..1000 => Dependency::ok(queue),
//!         _ => Dependency::warning(queue, format!("{depth} messages wait")),
//!     }).collect())
//! }
//!
//! assert_eq!(queues(br#"{"mail": 3}"#).unwrap().dependencies.len(), 1);
//! ```
//!
//! A plugin that needs settings or several requests implements [`Poller`] and registers it with `register!(MyPoller)`.
//!
//! A plugin that sends notifications implements [`Notifier`] and registers it with [`register_notifier!`].
//!
//! Both expand only for wasm32, so plugins can be tested natively with `cargo test`. [`testing`] answers their
//! requests from recorded exchanges.

#![deny(unsafe_code)]

pub mod cache;
pub mod clock;
mod definition;
pub mod http;
mod json;
pub mod lenient;
pub mod log;
#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
mod memory;
mod notifier;
mod poller;
pub mod progress;
mod report;
pub mod store;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

#[doc(hidden)]
#[rustfmt::skip]
pub mod bindings;

pub use bindings::exports::polliwog::plugin::definition::{Descriptor, SecretSpec, SettingsProblem};
pub use bindings::exports::polliwog::plugin::notifier::{Alert, DeliveryRules, Notification};
pub use bindings::exports::polliwog::plugin::poller::{Dependency, DependencyFlags, Report, Sample, SampleKind};
pub use bindings::exports::polliwog::plugin::setup::{Guide, Member};
pub use bindings::polliwog::plugin::types::{Endpoint, Error as CallError, Extra, Failure, Label, Status};
pub use json::json;
pub use notifier::{Event, ExportedNotifier, Message, Notifier, NotifierInfo, escape_html};
pub use poller::{Exported, Info, NoSettings, Poller, Session, Setup};
pub use {schemars, serde, serde_json};

/// The items that most plugins need.
pub mod prelude {
    pub use crate::{
        CallError, Dependency, Endpoint, Info, NoSettings, Poller, Report, Sample, SecretSpec, SettingsProblem, Status,
        json,
    };
    pub use crate::{clock, http, log};
    pub use schemars::JsonSchema;
    pub use serde::Deserialize;
    pub use serde_json::Value;
}

/// The items that most plugins for notifications need.
pub mod notifier_prelude {
    pub use crate::{
        Alert, CallError, Endpoint, Event, Label, Message, Notification, Notifier, NotifierInfo, SecretSpec,
        SettingsProblem, Status, escape_html,
    };
    pub use crate::{clock, http, log, progress};
    pub use schemars::JsonSchema;
    pub use serde::Deserialize;
    pub use serde_json::{self, Value, json};
}

/// Exports a [`Poller`], or a function from a body to a report, as a component. `register!(MyPoller with setup)` also
/// exports its [`Setup`], `register!(MyPoller with session)` its [`Session`], and `with setup with session` both.
#[macro_export]
macro_rules! register {
    ($poller:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::Exported<$poller>;
    $crate::bindings::export_definition!(Export with_types_in $crate::bindings);
    $crate::bindings::export_poller!(Export with_types_in $crate::bindings);
        };
    };
    ($poller:ident with setup $($more:tt)*) => {
        $crate::register!($poller $($more)*);
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::Exported<$poller>;
    $crate::bindings::export_setup!(Export with_types_in $crate::bindings);
        };
    };
    ($poller:ident with session $($more:tt)*) => {
        $crate::register!($poller $($more)*);
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::Exported<$poller>;
    $crate::bindings::export_session!(Export with_types_in $crate::bindings);
        };
    };
    (kind: $kind:expr, title: $title:expr, summary: $summary:expr, parse: $parse:path $(,)?) => {
        /// The plugin that this crate registers.
        pub struct Plugin;

        impl $crate::Poller for Plugin {
            type Settings = $crate::NoSettings;
            const INFO: $crate::Info = $crate::Info {
                kind: $kind,
                title: $title,
                version: env!("CARGO_PKG_VERSION"),
                summary: $summary,
                ..$crate::Info::SERVICE
            };

            fn poll(_: &$crate::Endpoint, _: Self::Settings) -> Result<$crate::Report, $crate::CallError> {
                $parse($crate::http::get("")?.body())
            }
        }

        $crate::register!(Plugin);
    };
}

/// Exports a [`Notifier`] as a component. `register_notifier!(MyNotifier with session)` also exports its [`Session`].
#[macro_export]
macro_rules! register_notifier {
    ($notifier:ident with session) => {
        $crate::register_notifier!($notifier);
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::ExportedNotifier<$notifier>;
    $crate::bindings::export_session!(Export with_types_in $crate::bindings);
        };
    };
    ($notifier:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::ExportedNotifier<$notifier>;
    $crate::bindings::export_definition!(Export with_types_in $crate::bindings);
    $crate::bindings::export_notifier!(Export with_types_in $crate::bindings);
        };
    };
}
