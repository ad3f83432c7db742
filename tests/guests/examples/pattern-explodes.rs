//! Has a pattern of a secret that needs gigabytes to compile.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = SecretSpec {
        name: "token".to_owned(),
        description: String::new(),
        required: false,
        pattern: Some("((a{1,100}){1,100}){1,100}".to_owned()),
        hint: None,
        example: None,
    };
    Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-explodes") }
}
