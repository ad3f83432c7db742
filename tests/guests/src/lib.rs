//! What the guests in `examples/` share: nothing but how they introduce themselves.

#![deny(unsafe_code)]

/// Registers a poll function `fn(&Target) -> Result<Report, PollError>` under a kind.
#[macro_export]
macro_rules! guest {
    ($kind:literal, $poll:path) => {
        /// The guest.
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
