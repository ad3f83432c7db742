//! Has settings of version 0.

fn describe() -> polliwog_sdk::Descriptor {
    polliwog_sdk::Descriptor { settings_version: 0, ..guests::descriptor("settings-version-is-zero") }
}

guests::raw_guest!(describe);
