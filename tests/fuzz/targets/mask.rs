//! What a plugin sees of an answer that has a secret in it, for two secrets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzzing::mask(bytes));
