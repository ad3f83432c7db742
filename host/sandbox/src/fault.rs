//! What ended a call, in words for the plugin's author: the limit or the trap, the functions that were running, and what the
//! plugin wrote before.

use crate::convert;
use crate::host::State;
use crate::limits::Limits;
use crate::meter::CpuExhausted;
use model::{Failure, FailureCategory};
use wasmtime::{Trap, WasmBacktrace};

/// A failure of the plugin, not of its target.
pub(crate) fn plugin_fault(code: &str, message: String) -> Failure {
    Failure { category: FailureCategory::Plugin, code: code.to_owned(), message, retry_after: None }
}

/// The plugin used up its CPU time.
pub(crate) fn cpu_fault(limits: &Limits) -> Failure {
    plugin_fault("cpu_limit", format!("the plugin used more than its {} ms of CPU time", limits.cpu.as_millis()))
}

/// Which limit ended a call, or what the guest did.
pub(crate) fn fault(error: &wasmtime::Error, state: &State, limits: &Limits) -> Failure {
    if error.downcast_ref::<CpuExhausted>().is_some() {
        let failure = cpu_fault(limits);
        return Failure { message: failure.message + &functions(error), ..failure };
    }
    if let Some(code) = state.limiter.denied {
        let message = match code {
            "memory_limit" => format!("the plugin wanted more than its {} MiB of memory", limits.memory >> 20),
            _ => "the plugin wanted more table entries than a poll may have".to_owned(),
        };
        return plugin_fault(code, message + &functions(error));
    }
    // wasmtime gives this one no type of its own.
    if format!("{error:#}").contains("fuel allocated for hostcalls") {
        let message = format!("the plugin handed over more than {} MiB at once", limits.report >> 20);
        return plugin_fault("output_limit", message);
    }
    if let Some(wasmtime_wasi::I32Exit(code)) = error.downcast_ref() {
        return plugin_fault("exit", format!("the plugin ended itself (with code {code}): a poll ends with a report"));
    }
    let (code, message) = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow | Trap::MemoryOutOfBounds) => {
            ("stack", "the plugin ran out of stack, or touched memory that is not its own".to_owned())
        }
        Some(Trap::UnreachableCodeReached) => ("panic", "the plugin panicked or aborted".to_owned()),
        Some(trap) => ("trap", format!("the plugin trapped: {trap}")),
        None => ("trap", convert::clean(&format!("the plugin failed: {:#}", error.root_cause()), 512)),
    };
    plugin_fault(code, format!("{message}{}", functions(error)))
}

/// The guest's functions on the stack, innermost first, if the plugin has a name section. Each has its file and line if the engine
/// reads [`Backtrace::SourceLines`](crate::Backtrace::SourceLines) and the plugin carries them.
fn functions(error: &wasmtime::Error) -> String {
    const SHOWN: usize = 6;
    /// What is on every such stack, and says nothing.
    const COMMON: [&str; 11] = [
        "abort",
        "alloc::",
        "core::",
        "export_call",
        "panic",
        "polliwog:poller/",
        "polliwog_sdk::",
        "__rust",
        "std::",
        "wit_bindgen",
        "wit_dylib",
    ];
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    // The backtrace's own text has demangled names; `FrameInfo::func_name` does not. A frame is a line with a name, followed by a
    // line with its place. A frame without a place has `MODULE!` before its name.
    let text = backtrace.to_string();
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("- ") {
            frames.push((name.split_once('!').map_or(name, |(_, name)| name).trim(), None));
        } else if let (Some(place), Some((_, known))) = (line.trim().strip_prefix("at "), frames.last_mut()) {
            *known = Some(place);
        }
    }
    // Of `<Queues as polliwog_sdk::Poller>::poll` it is the author's type that counts.
    let subject = |name: &str| match name.strip_prefix('<').and_then(|name| name.split_once(" as ")) {
        Some((subject, _)) => subject.to_owned(),
        None => name.to_owned(),
    };
    let telling = |name: &str| {
        !name.is_empty()
            && name != "<unknown>"
            && !name.starts_with("<wasm function")
            && !COMMON.iter().any(|common| subject(name).contains(common))
    };
    let frames = frames.into_iter().filter(|(name, _)| telling(name)).take(SHOWN);
    let names: Vec<String> = frames
        .map(|(name, place)| {
            let name = convert::clean(name, 80);
            // What matters of a long path is its end.
            let place = place.map(|place| {
                let parts: Vec<&str> = place.rsplit('/').take(3).collect();
                convert::clean(&parts.into_iter().rev().collect::<Vec<_>>().join("/"), 120)
            });
            place.map_or(name.clone(), |place| format!("{name} ({place})"))
        })
        .collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(", called by ")) }
}

/// What a guest wrote before it failed says most about why.
pub(crate) fn with_last_words(mut failure: Failure, words: &str) -> Failure {
    /// Lines that a language's runtime adds to a panic in Rust and to an exception in JavaScript or Python. They do not help: a
    /// guest has no environment to set `RUST_BACKTRACE` in.
    const ADDED: [&str; 6] = [
        "note: run with `RUST_BACKTRACE=1` environment variable",
        "invalid variant tag value `undefined`",
        "Stack:",
        "/initializer.js:",
        "Redirecting call to abort() to mozalloc_abort",
        "panicked at runtime/src/lib.rs:",
    ];
    // Python prints its own traceback after the message of our helpers.
    let own = words.split("Traceback (most recent call last):").next().filter(|own| !own.trim().is_empty());
    let told: Vec<&str> =
        own.unwrap_or(words).lines().filter(|line| !ADDED.iter().any(|added| line.contains(added))).collect();
    let told = told.join("\n");
    // A plugin without our helpers has nothing but the runtime's lines.
    let words = if told.trim().is_empty() { words.trim() } else { told.trim() };
    if failure.category == FailureCategory::Plugin && !words.is_empty() {
        failure.message = convert::clean(&format!("{}; it wrote: {words}", failure.message), 1024);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_the_plugins_own() {
        let told = |words: &str| with_last_words(plugin_fault("panic", "it panicked".to_owned()), words).message;
        let javascript = "TypeError: no such field (lib/util.js:1)\ninvalid variant tag value `undefined` (received `TypeError`)\nStack:\n  \
                          poll@/tmp/a/initializer.js:1567:17\nRedirecting call to abort() to mozalloc_abort\n";
        assert_eq!(told(javascript), "it panicked; it wrote: TypeError: no such field (lib/util.js:1)");
        let rust = "\nthread '<unnamed>' panicked at src/lib.rs:3:5:\nno queue\nnote: run with `RUST_BACKTRACE=1` environment variable to \
                    display a backtrace\n";
        assert_eq!(told(rust), "it panicked; it wrote: thread '<unnamed>' panicked at src/lib.rs:3:5: no queue");
        let python = "KeyError: 'a' (own.py, line 2, in inner)\nTraceback (most recent call last):\n  File \"/0/polliwog.py\"\n\
                      KeyError: 'a'\nthread '<unnamed>' panicked at runtime/src/lib.rs:1293:29:\nunexpected\n";
        assert_eq!(told(python), "it panicked; it wrote: KeyError: 'a' (own.py, line 2, in inner)");
        let alone = "invalid variant tag value `undefined` (received `TypeError: x`)";
        assert_eq!(told(alone), format!("it panicked; it wrote: {alone}"), "nothing else says why");
        assert_eq!(told("\n"), "it panicked");
    }
}
