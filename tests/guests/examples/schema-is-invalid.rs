//! Has a schema that is not a JSON Schema.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let settings_schema = r#"{"type":"nonsense"}"#.to_owned();
    Descriptor { settings_schema, ..guests::descriptor("schema-is-invalid") }
}
