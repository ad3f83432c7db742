//! Converts settings in an endless loop.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 2, ..guests::descriptor("migrate-loops") }
}

fn migrate() -> String {
    loop {
        std::hint::black_box(());
    }
}

guests::raw_guest!(describe, Vec::new, migrate);
