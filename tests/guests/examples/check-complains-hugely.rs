//! Reports one problem of 5 MB for any settings.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe, check);

fn describe() -> Descriptor {
    guests::descriptor("check-complains-hugely")
}

fn check() -> Vec<String> {
    vec!["\u{1b}[31mwrong ".repeat(500_000)]
}
