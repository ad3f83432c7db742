//! Converts settings to a text of several megabytes.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 2, ..guests::descriptor("migrate-returns-too-much") }
}

fn migrate() -> String {
    format!("{{\"a\": \"{}\"}}", "x".repeat(8 << 20))
}

guests::raw_guest!(describe, Vec::new, migrate);
