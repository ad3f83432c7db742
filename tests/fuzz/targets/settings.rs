//! A plugin's schema, and settings under it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| sandbox::fuzzing::settings(text));
