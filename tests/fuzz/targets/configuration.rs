//! Reads any text as a configuration with changed settings: it is valid, or every problem has its place.
#![no_main]

use config::{Overrides, Places, Written};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (overrides, text) = text.split_once("\n---\n").unwrap_or(("", text));
    let overrides: Overrides = (overrides.lines())
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let read = Written::read(("polliwog.toml", text), (&Places::default(), false), &|_| None);
    let read = read.map_err(|invalid| invalid.problems).and_then(|written| written.with(&overrides, &|_| None));
    match read {
        Ok(config) => assert!(config.scheduler.longest().is_none_or(|longest| config.scheduler.min <= longest)),
        Err(problems) => {
            assert!(!problems.is_empty(), "it is refused without a reason");
            for problem in problems {
                assert!(!problem.place.is_empty() && !problem.message.is_empty(), "{problem:?}");
            }
        }
    }
});
