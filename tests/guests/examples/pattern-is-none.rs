//! Wants a secret of a form that nobody can check.

use polliwog_sdk::{Descriptor, PollError, Report, SecretSpec, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let secret = SecretSpec {
            name: "token".to_owned(),
            description: String::new(),
            required: false,
            pattern: Some("(".to_owned()),
            hint: None,
        };
        Descriptor { secrets: vec![secret], ..guests::descriptor("pattern-is-none") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
