//! Has a pattern of a secret that is not a regular expression.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = SecretSpec {
        name: "token".to_owned(),
        description: String::new(),
        required: false,
        pattern: Some("(".to_owned()),
        hint: None,
        example: None,
    };
    Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-is-invalid") }
}
