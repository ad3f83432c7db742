//! Describes more secrets than the host accepts.

use polliwog_sdk::{Descriptor, SecretSpec};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let secret = |number: u32| SecretSpec::required(number.to_string(), "");
    Descriptor { secrets: (0..10_000).map(secret).collect(), ..guests::descriptor("wants-too-many-secrets") }
}
