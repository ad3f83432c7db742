//! Any body as an answer of the proactive-deps libraries.
#![no_main]

use plugin_proactive_deps::ProactiveDeps;
use polliwog_sdk::testing::{self, Recording};

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    match testing::poll::<ProactiveDeps>(Recording::of_body(body), testing::target("{}")) {
        Ok(report) => {
            assert!(report.dependencies.iter().all(|dependency| !dependency.name.trim().is_empty()), "{report:?}");
        }
        Err(error) => assert!(!error.failure().message.is_empty()),
    }
});
