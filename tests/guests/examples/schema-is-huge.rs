//! Has a schema of a megabyte.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let settings_schema = format!("{{\"description\":\"{}\"}}", "s".repeat(1 << 20));
    Descriptor { settings_schema, ..guests::descriptor("schema-is-huge") }
}
