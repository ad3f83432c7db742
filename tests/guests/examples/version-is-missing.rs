//! Has an empty version.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    Descriptor { version: String::new(), ..guests::descriptor("version-is-missing") }
}
