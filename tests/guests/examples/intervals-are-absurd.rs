//! Suggests an interval of 0 ms and a timeout of 49 days.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    Descriptor {
        default_interval_ms: Some(0),
        default_timeout_ms: u32::MAX,
        title: "\u{1b}[31m\u{202e}evil\n".repeat(1000),
        ..guests::descriptor("intervals-are-absurd")
    }
}
