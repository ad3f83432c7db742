//! Macros for the guests in `examples/`, which register them.

#![deny(unsafe_code)]

/// Registers a poll function `fn(&Target) -> Result<Report, PollError>` under a kind.
#[macro_export]
macro_rules! guest {
    ($kind:literal, $poll:path) => {
        /// The guest of this example.
        pub struct Guest;

        impl polliwog_sdk::Poller for Guest {
            type Settings = polliwog_sdk::NoSettings;
            const INFO: polliwog_sdk::Info = polliwog_sdk::Info {
                kind: $kind,
                title: $kind,
                version: "1.0.0",
                summary: "A test program",
                ..polliwog_sdk::Info::SERVICE
            };

            fn poll(
                target: &polliwog_sdk::Target,
                _: polliwog_sdk::NoSettings,
            ) -> Result<polliwog_sdk::Report, polliwog_sdk::PollError> {
                $poll(target)
            }
        }

        polliwog_sdk::register!(Guest);
    };
}

/// Registers a function `fn(&Channel, &Notification) -> Result<(), SendError>` that sends notifications, under a kind.
#[macro_export]
macro_rules! notifier {
    ($kind:literal, $send:path) => {
        /// The guest of this example.
        pub struct Guest;

        impl polliwog_sdk::Notifier for Guest {
            type Settings = polliwog_sdk::NoSettings;
            const INFO: polliwog_sdk::NotifierInfo = polliwog_sdk::NotifierInfo {
                kind: $kind,
                title: $kind,
                version: "1.0.0",
                summary: "A test program",
                needs_every_alert: false,
            };

            fn send(
                channel: &polliwog_sdk::Channel,
                _: polliwog_sdk::NoSettings,
                notification: &polliwog_sdk::Notification,
            ) -> Result<(), polliwog_sdk::SendError> {
                $send(channel, notification)
            }
        }

        polliwog_sdk::register_notifier!(Guest);
    };
}

pub use polliwog_sdk::poller_bindings::exports::polliwog::poller::poller::Guest;

/// Registers a guest that implements [`Guest`] without the SDK's trait, for results that the SDK cannot produce:
/// `raw_guest!(describe)` with a function `fn() -> Descriptor`, and `raw_guest!(describe, check)` with an additional
/// `fn() -> Vec<String>`. Its polls return an empty report.
#[macro_export]
macro_rules! raw_guest {
    ($describe:path) => {
        $crate::raw_guest!($describe, Vec::new);
    };
    ($describe:path, $check:path) => {
        /// The guest of this example.
        pub struct RawGuest;

        impl $crate::Guest for RawGuest {
            fn describe() -> polliwog_sdk::Descriptor {
                $describe()
            }

            fn check_settings(_: String) -> Vec<String> {
                $check()
            }

            fn poll(_: polliwog_sdk::Target) -> Result<polliwog_sdk::Report, polliwog_sdk::PollError> {
                Ok(polliwog_sdk::Report::empty())
            }

            fn members(_: polliwog_sdk::Target) -> Result<Vec<polliwog_sdk::Member>, polliwog_sdk::PollError> {
                Ok(Vec::new())
            }
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = RawGuest;
    polliwog_sdk::poller_bindings::export_poller!(Export with_types_in polliwog_sdk::poller_bindings);
        };
    };
}

/// Returns a valid descriptor for a kind.
pub fn descriptor(kind: &str) -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor {
        kind: kind.to_owned(),
        title: kind.to_owned(),
        version: "1.0.0".to_owned(),
        summary: "A test program".to_owned(),
        settings_schema: r#"{"type":"object","properties":{},"additionalProperties":false}"#.to_owned(),
        secrets: Vec::new(),
        default_interval_ms: 30_000,
        default_timeout_ms: 10_000,
        setup: None,
    }
}
