//! Wants more secrets than anybody has.

use polliwog_sdk::{Descriptor, PollError, Report, SecretSpec, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let secret = |number: u32| SecretSpec {
            name: number.to_string(),
            description: String::new(),
            required: true,
            pattern: None,
            hint: None,
        };
        Descriptor { secrets: (0..10_000).map(secret).collect(), ..guests::descriptor("wants-too-many-secrets") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
