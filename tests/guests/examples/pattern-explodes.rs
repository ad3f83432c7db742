//! Has a pattern of a secret that needs gigabytes to compile.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = SecretSpec::optional("token", "").with_pattern("((a{1,100}){1,100}){1,100}", "");
    Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-explodes") }
}
