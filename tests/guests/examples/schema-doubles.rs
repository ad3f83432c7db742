//! Describes its settings by a schema of sixty lines that is 2^60 parts long, once its references are followed.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let level = |n: u32| {
            let next = format!("{{\"$ref\":\"#/$defs/a{}\"}}", n + 1);
            format!("\"a{n}\":{{\"allOf\":[{next},{next}]}}")
        };
        let levels: Vec<String> = (0..60).map(level).collect();
        let schema = format!("{{\"$ref\":\"#/$defs/a0\",\"$defs\":{{{},\"a60\":{{}}}}}}", levels.join(","));
        Descriptor { settings_schema: schema, ..guests::descriptor("schema-doubles") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
