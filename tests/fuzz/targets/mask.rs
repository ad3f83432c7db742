//! A response with a secret in it, as a plugin sees it, for two secrets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzzing::mask(bytes));
