//! Macros for the guests in `examples/`, which register them.

#![deny(unsafe_code)]

/// Registers a poll function `fn(&Endpoint) -> Result<Report, CallError>` under a kind.
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
                target: &polliwog_sdk::Endpoint,
                _: polliwog_sdk::NoSettings,
            ) -> Result<polliwog_sdk::Report, polliwog_sdk::CallError> {
                $poll(target)
            }
        }

        polliwog_sdk::register!(Guest);
    };
}

/// Registers a function `fn(&Endpoint, &Notification) -> Result<(), CallError>` that sends notifications, under a kind.
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
                ..polliwog_sdk::NotifierInfo::RECEIVER
            };

            fn send(
                channel: &polliwog_sdk::Endpoint,
                _: polliwog_sdk::NoSettings,
                notification: &polliwog_sdk::Notification,
            ) -> Result<(), polliwog_sdk::CallError> {
                $send(channel, notification)
            }
        }

        polliwog_sdk::register_notifier!(Guest);
    };
}

pub use polliwog_sdk::bindings::exports::polliwog::plugin::definition::Guest as DefinitionGuest;
pub use polliwog_sdk::bindings::exports::polliwog::plugin::poller::Guest as PollerGuest;

/// Registers a guest that implements the exports without the SDK's trait, for results that the SDK cannot produce:
/// `raw_guest!(describe)` with a function `fn() -> Descriptor`, `raw_guest!(describe, check)` with an additional
/// `fn() -> Vec<SettingsProblem>`, and `raw_guest!(describe, check, migrate)` with a third one, `fn() -> String`. Its
/// polls return an empty report.
#[macro_export]
macro_rules! raw_guest {
    ($describe:path) => {
        $crate::raw_guest!($describe, Vec::new);
    };
    ($describe:path, $check:path) => {
        $crate::raw_guest!($describe, $check, String::new);
    };
    ($describe:path, $check:path, $migrate:path) => {
        /// The guest of this example.
        pub struct RawGuest;

        impl $crate::DefinitionGuest for RawGuest {
            fn describe() -> polliwog_sdk::Descriptor {
                $describe()
            }

            fn check_settings(_: String) -> Vec<polliwog_sdk::SettingsProblem> {
                $check()
            }

            fn migrate_settings(_: u32, _: String) -> Result<String, polliwog_sdk::SettingsProblem> {
                Ok($migrate())
            }
        }

        impl $crate::PollerGuest for RawGuest {
            fn poll(_: polliwog_sdk::Endpoint) -> Result<polliwog_sdk::Report, polliwog_sdk::CallError> {
                Ok(polliwog_sdk::Report::empty())
            }
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Export = RawGuest;
    polliwog_sdk::bindings::export_definition!(Export with_types_in polliwog_sdk::bindings);
    polliwog_sdk::bindings::export_poller!(Export with_types_in polliwog_sdk::bindings);
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
        homepage: None,
        license: None,
        schemes: Vec::new(),
        settings_schema: r#"{"type":"object","properties":{},"additionalProperties":false}"#.to_owned(),
        settings_version: 1,
        secrets: Vec::new(),
        default_interval_ms: Some(30_000),
        default_timeout_ms: 10_000,
        extra: Vec::new(),
    }
}
