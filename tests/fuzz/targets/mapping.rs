//! Any body under any mapping: the first line is the mapping, the rest is the body.
#![no_main]

use plugin_mapping::MappingPoller;
use polliwog_sdk::CallError;
use polliwog_sdk::testing::{self, Recording};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (settings, body) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let Ok(settings) = std::str::from_utf8(settings) else { return };
    let problems = testing::check_settings::<MappingPoller>(settings);
    let result = testing::poll::<MappingPoller>(Recording::of_body(body), testing::target(settings));
    match result {
        Ok(report) => {
            assert!(problems.is_empty(), "bad settings were polled with: {problems:?}");
            assert!(report.dependencies.iter().all(|dependency| !dependency.name.is_empty()), "{report:?}");
        }
        Err(CallError::Transient(failure) | CallError::Permanent(failure) | CallError::Misconfigured(failure)) => {
            assert!(!failure.code.is_empty() && !failure.message.is_empty(), "{failure:?}");
        }
    }
});
