//! Has a schema of sixty lines that expands to 2^60 parts when references are followed.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let level = |n: u32| {
        let next = format!("{{\"$ref\":\"#/$defs/a{}\"}}", n + 1);
        format!("\"a{n}\":{{\"allOf\":[{next},{next}]}}")
    };
    let levels: Vec<String> = (0..60).map(level).collect();
    let schema = format!("{{\"$ref\":\"#/$defs/a0\",\"$defs\":{{{},\"a60\":{{}}}}}}", levels.join(","));
    Descriptor { settings_schema: schema, ..guests::descriptor("schema-doubles") }
}
