//! Reports thousands of problems for any settings.

use polliwog_sdk::{Descriptor, SettingsProblem};

guests::raw_guest!(describe, check);

fn describe() -> Descriptor {
    guests::descriptor("check-complains-without-end")
}

fn check() -> Vec<SettingsProblem> {
    (0..5_000).map(|number| SettingsProblem::of_all(format!("problem {number}"))).collect()
}
