//! Has a pattern of a secret that is not a regular expression.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = SecretSpec::optional("token", "").with_pattern("(", "");
    Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-is-invalid") }
}
