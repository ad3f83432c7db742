//! Reports one problem of 5 MB for any settings.

use polliwog_sdk::{Descriptor, SettingsProblem};

guests::raw_guest!(describe, check);

fn describe() -> Descriptor {
    guests::descriptor("check-complains-hugely")
}

fn check() -> Vec<SettingsProblem> {
    vec![SettingsProblem::at("/\u{1b}[31mx".repeat(100_000), "\u{1b}[31mwrong ".repeat(500_000))]
}
