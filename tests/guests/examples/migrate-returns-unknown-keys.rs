//! Converts settings to those that its own schema does not accept.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 2, ..guests::descriptor("migrate-returns-unknown-keys") }
}

fn migrate() -> String {
    r#"{"odd": 1}"#.to_owned()
}

guests::raw_guest!(describe, Vec::new, migrate);
