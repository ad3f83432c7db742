//! Has a schema that contains itself.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let settings_schema = r##"{"allOf":[{"$ref":"#"},{"$ref":"#"}]}"##.to_owned();
    Descriptor { settings_schema, ..guests::descriptor("schema-is-recursive") }
}
