//! Panics while it converts settings.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 2, ..guests::descriptor("migrate-panics") }
}

fn migrate() -> String {
    panic!("no settings are converted here")
}

guests::raw_guest!(describe, Vec::new, migrate);
