//! Has a path as its kind.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    guests::descriptor("../../etc/passwd")
}
