//! Has a kind of a million letters.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    guests::descriptor(&"k".repeat(1_000_000))
}
