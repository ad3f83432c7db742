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
//! fn queues(body: &[u8]) -> Result<Report, PollError> {
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
pub mod http;
pub mod lenient;
pub mod log;
#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
mod memory;
mod notifier;
mod poller;
mod report;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

#[rustfmt::skip]
pub mod bindings;

#[rustfmt::skip]
pub mod notifier_bindings;

#[rustfmt::skip]
pub mod poller_bindings;

pub use bindings::polliwog::poller::types::{
    Dependency, Descriptor, Failure, Label, Member, PollError, Report, Sample, SampleKind, SecretSpec, Setup, Status,
    Target,
};
pub use notifier::{ExportedNotifier, Message, Notifier, NotifierInfo, escape_html};
pub use notifier_bindings::exports::polliwog::poller::notifier::{
    Alert, Channel, Event, Notification, NotifierDescriptor, SendError,
};
pub use poller::{Exported, Info, NoSettings, Poller, json};
pub use {schemars, serde, serde_json};

/// The items that most plugins need.
pub mod prelude {
    pub use crate::{Dependency, Info, NoSettings, PollError, Poller, Report, Sample, Status, Target, json};
    pub use crate::{http, log};
    pub use schemars::JsonSchema;
    pub use serde::Deserialize;
}

/// The items that most plugins for notifications need.
pub mod notifier_prelude {
    pub use crate::{
        Alert, Channel, Event, Label, Message, Notification, Notifier, NotifierInfo, SecretSpec, SendError, Status,
        escape_html,
    };
    pub use crate::{http, log};
    pub use schemars::JsonSchema;
    pub use serde::Deserialize;
    pub use serde_json::{self, Value, json};
}

/// Exports a [`Poller`], or a function from a body to a report, as a component.
#[macro_export]
macro_rules! register {
    ($poller:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::Exported<$poller>;
    $crate::poller_bindings::export_poller!(Export with_types_in $crate::poller_bindings);
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

            fn poll(_: &$crate::Target, _: Self::Settings) -> Result<$crate::Report, $crate::PollError> {
                $parse($crate::http::get("")?.body())
            }
        }

        $crate::register!(Plugin);
    };
}

/// Exports a [`Notifier`] as a component.
#[macro_export]
macro_rules! register_notifier {
    ($notifier:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = $crate::ExportedNotifier<$notifier>;
    $crate::notifier_bindings::export_notifier!(Export with_types_in $crate::notifier_bindings);
        };
    };
}
