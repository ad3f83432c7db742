//! Describes its settings by a schema that the host would have to fetch.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let settings_schema = r#"{"$ref":"http://127.0.0.1:9/schema.json"}"#.to_owned();
        Descriptor { settings_schema, ..guests::descriptor("schema-is-elsewhere") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
