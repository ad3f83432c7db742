//! Wants a secret of a form that takes gigabytes to check.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = SecretSpec {
        name: "token".to_owned(),
        description: String::new(),
        required: false,
        pattern: Some("((a{1,100}){1,100}){1,100}".to_owned()),
        hint: None,
    };
    Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-explodes") }
}
