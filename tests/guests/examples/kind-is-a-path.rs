//! Serves a kind that is a path.

use polliwog_sdk::Descriptor;

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    guests::descriptor("../../etc/passwd")
}
