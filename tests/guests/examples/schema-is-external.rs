//! Has a schema that refers to another URL.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let settings_schema = r#"{"$ref":"http://127.0.0.1:9/schema.json"}"#.to_owned();
    Descriptor { settings_schema, ..guests::descriptor("schema-is-external") }
}
