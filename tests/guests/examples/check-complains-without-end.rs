//! Reports thousands of problems for any settings.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe, check);

fn describe() -> Descriptor {
    guests::descriptor("check-complains-without-end")
}

fn check() -> Vec<String> {
    (0..5_000).map(|number| format!("problem {number}")).collect()
}
