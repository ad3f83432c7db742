//! Describes its settings by a schema that contains itself.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let settings_schema = r##"{"allOf":[{"$ref":"#"},{"$ref":"#"}]}"##.to_owned();
        Descriptor { settings_schema, ..guests::descriptor("schema-goes-round") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
