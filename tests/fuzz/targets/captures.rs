//! A value that is captured from an answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzzing::captures(bytes));
