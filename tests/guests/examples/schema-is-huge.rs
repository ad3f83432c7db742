//! Describes its settings in a megabyte.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let settings_schema = format!("{{\"description\":\"{}\"}}", "s".repeat(1 << 20));
        Descriptor { settings_schema, ..guests::descriptor("schema-is-huge") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
