//! Describes its settings in no JSON Schema.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let settings_schema = r#"{"type":"nonsense"}"#.to_owned();
        Descriptor { settings_schema, ..guests::descriptor("schema-is-none") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
