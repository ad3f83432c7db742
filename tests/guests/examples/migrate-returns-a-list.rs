//! Converts settings to something else than an object.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 2, ..guests::descriptor("migrate-returns-a-list") }
}

fn migrate() -> String {
    "[]".to_owned()
}

guests::raw_guest!(describe, Vec::new, migrate);
