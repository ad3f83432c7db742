//! The conversion of a guest's report to the host's report.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox::fuzzing::convert(bytes));
