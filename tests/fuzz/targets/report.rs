//! What a guest hands over, made into the host's report.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox::fuzzing::convert(bytes));
