//! Finds one thing wrong with any settings, and says it in 5 MB.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe, check);

fn describe() -> Descriptor {
    guests::descriptor("check-complains-hugely")
}

fn check() -> Vec<String> {
    vec!["\u{1b}[31mwrong ".repeat(500_000)]
}
