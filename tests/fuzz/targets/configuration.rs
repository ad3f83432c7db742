//! Any text as a configuration, with settings that were changed over it: it is read, or every problem has its place.
#![no_main]

use config::{Config, Overrides, Places};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (overrides, text) = text.split_once("\n---\n").unwrap_or(("", text));
    let overrides: Overrides = (overrides.lines())
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    match Config::read(("polliwog.toml", text), (&Places::default(), false), &overrides, &|_| None) {
        Ok(config) => assert!(config.scheduler.longest().is_none_or(|longest| config.scheduler.min <= longest)),
        Err(invalid) => {
            assert!(!invalid.problems.is_empty(), "it is refused without a reason");
            for problem in invalid.problems {
                assert!(!problem.place.is_empty() && !problem.message.is_empty(), "{problem:?}");
            }
        }
    }
});
